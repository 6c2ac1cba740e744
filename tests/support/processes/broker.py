"""Real broker processes and links. `python -m tests.support.processes.broker ENDPOINT` is an echoing selector."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import zmq

from mesh.config.network import LinkConfig
from mesh.frames import BROKER, FRAME_VERSION, Beat, Failed, Frame, Head, SessionClaim, encode, lane_of
from mesh.frames.packets import seal, seal_payload
from mesh.link.link import Link, Received
from mesh.link.sockets import open_dealer, sender
from mesh.process import PARENT_PID
from mesh.random_ids import new_peer_identity
from tests.support.conditions import DEADLINE_S, until

ROOT = Path(__file__).parents[3]
#: Beats are quick, so that tests are; silence is long, so that a busy machine is not taken for a dead peer.
CONFIG = LinkConfig(beat_ms=100, dead_ms=1_000, reconnect_ms=20, reconnect_ms_max=100)
SETTINGS = {
    "LINGUA_LINK_BEAT_MS": "100",
    "LINGUA_LINK_DEAD_MS": "1000",
    "LINGUA_LOG_LEVEL": "warning",
}


def start(arguments: list[str], **settings: str) -> subprocess.Popen[str]:
    """A Python process that dies with this one."""
    environ = {**os.environ, **SETTINGS, **settings, PARENT_PID: str(os.getpid())}
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environ,
    )


class BrokerProcess:
    """One broker on ipc:// endpoints in a directory; can be killed and started again."""

    def __init__(self, directory: Path, name: str, transport: str = "ipc", **settings: str) -> None:
        self.name = name
        self._settings = settings
        wanted = {
            "ipc": [f"ipc://{directory}/{name}.front", f"ipc://{directory}/{name}.back"],
            "tcp": ["tcp://127.0.0.1:*", "tcp://127.0.0.1:*"],
        }
        self.front, self.back = wanted[transport]
        self.start()

    def start(self) -> None:
        arguments = ["--name", self.name, "--frontend", self.front, "--backend", self.back, "--die-with-parent"]
        self.process = start(["broker", *arguments], **self._settings)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.ready: dict[str, Any] = json.loads(line)
        self.front, self.back = self.ready["frontend"], self.ready["backend"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit code."""
        self.process.send_signal(number)
        self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.ready['metrics_port']}/metrics", timeout=DEADLINE_S
        ) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


class Rig:
    """Brokers and links of one test; `close` ends them all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.brokers: list[BrokerProcess] = []
        self.links: list[Link] = []
        self.sockets: list[zmq.Socket[bytes]] = []
        self.processes: list[subprocess.Popen[str]] = []
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def broker(self, transport: str = "ipc", **settings: str) -> BrokerProcess:
        broker = BrokerProcess(self._directory, f"b{len(self.brokers)}", transport, **settings)
        self.brokers.append(broker)
        return broker

    async def link(
        self,
        kind: Literal["edge", "selector"],
        on_messages: Callable[[list[Received]], None],
        window: int = 0,
        config: LinkConfig = CONFIG,
    ) -> Link:
        """A started link to all brokers, once every broker has answered."""
        endpoints = [broker.front if kind == "edge" else broker.back for broker in self.brokers]
        identity = new_peer_identity(kind, f"{kind[0]}{len(self.links)}")
        link = Link(
            identity=identity, kind=kind, endpoints=endpoints, config=config, window=window, on_messages=on_messages
        )
        self.links.append(link)
        await link.start()
        await until(lambda: link.brokers_live() == len(self.brokers), f"{identity} knows all brokers")
        return link

    async def edge(self) -> Inbox:
        inbox = Inbox()
        inbox.link = await self.link("edge", inbox.put)
        return inbox

    async def selector(self, window: int, *, keep: bool = False) -> Inbox:
        """Answers and gives back all work at once, or keeps it."""
        inbox = Inbox(answers=not keep)
        inbox.link = await self.link("selector", inbox.put, window)
        return inbox

    def raw(self, endpoint: str, identity: str, config: LinkConfig = CONFIG) -> zmq.Socket[bytes]:
        """A DEALER under the control of the test."""
        socket = open_dealer(self._context, config, identity)
        self.sockets.append(socket)
        socket.connect(endpoint)
        assert socket.poll(int(DEADLINE_S * 1_000), zmq.POLLOUT), f"cannot connect to {endpoint}"
        return socket

    async def close(self) -> None:
        for link in self.links:
            await link.close()
        for socket in self.sockets:
            socket.close(linger=0)
        self._context.term()
        for process in [*self.processes, *(broker.process for broker in self.brokers)]:
            process.kill()
            process.communicate()


class Inbox:
    """What a link received."""

    def __init__(self, *, answers: bool = False) -> None:
        self.link: Link
        self.messages: list[Received] = []
        self._answers = answers

    def put(self, messages: list[Received]) -> None:
        self.messages += messages
        if self._answers:
            self.answer(messages)

    def answer(self, messages: list[Received]) -> None:
        for received in messages:
            if received.costs_credit:
                self.link.consumed({received.broker: 1})
            if isinstance(received.frame, SessionClaim):
                self.link.send(received.head.source, 0, Failed(received.frame.ref, "echo", self.link.identity))

    def frames(self, kind: type[Frame]) -> list[Any]:
        return [received.frame for received in self.messages if isinstance(received.frame, kind)]


async def rig_in(directory: Path) -> AsyncIterator[Rig]:
    """For a fixture."""
    rig = Rig(directory)
    try:
        yield rig
    finally:
        await rig.close()


def claim(ref: str) -> SessionClaim:
    """A work frame."""
    return SessionClaim(ref, ref, "", 0, "", "en", "es")


def parts_of(source: str, to: str, frame: Frame, *payload: bytes, version: int = FRAME_VERSION) -> list[bytes]:
    """A packet of one frame, as a DEALER sends it."""
    sealed, blobs = seal_payload(payload, CONFIG.inline_bytes_max)
    entry = seal(Head(lane_of(frame), to, 0, source, time.time_ns() // 1_000), frame, sealed, len(blobs))
    return [encode((version, [entry])), *blobs]


def introduce(socket: zmq.Socket[bytes], identity: str, kind: str) -> None:
    """Send a first Beat by hand."""
    sender(socket)(parts_of(identity, BROKER, Beat(kind, 0, 0)))


async def _echo(endpoint: str) -> None:
    inbox = Inbox(answers=True)
    inbox.link = Link(
        identity=new_peer_identity("selector", "echo"),
        kind="selector",
        endpoints=[endpoint],
        config=CONFIG,
        window=64,
        on_messages=inbox.put,
    )
    await inbox.link.start()
    await inbox.link.ready(int(DEADLINE_S * 1_000))
    print(inbox.link.identity, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_echo(sys.argv[1]))
