"""Round trips through our broker beside `zmq.proxy`, with the same messages, clients and servers, in the same run.

A client process keeps `DEPTH` requests in flight, the broker process under test is in the middle, a server process
answers. `python -m bench.hops.broker client|server|proxy ...` are the parts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import zmq

from bench.table import print_table
from mesh.config.network import LinkConfig
from mesh.frames import BROKER, Beat, BrokerBeat, Credit, Frame, Head, Push, SessionClaim, lane_of
from mesh.frames.packets import Opened, encode_table, read_opened, seal, seal_payload
from mesh.link.sockets import drainer, open_dealer, sender

SECONDS = 1.5
ROUNDS = 2
DEPTH = 64
#: Bytes of payload behind the frame: a control frame, and an utterance of two seconds in Opus and in PCM16.
PAYLOADS = (0, 8_000, 64_000)

EDGE = "edge:bench:00000001"
SELECTOR = "selector:bench:00000002"
ASK = SessionClaim("r-1", "s-1", EDGE, 0, "tenant", "en", "es")
ANSWER = Push("job-00-x", 1, "node-1", EDGE, "r-1", "s-1", 1)
INLINE_BYTES_MAX = LinkConfig().inline_bytes_max


def run() -> None:
    """Measure and print."""
    rows = []
    for payload in PAYLOADS:
        # In turns, and the better of each: whatever else the machine does should not decide.
        rounds = [(_measure("broker", payload), _measure("proxy", payload)) for _ in range(ROUNDS)]
        ours, plain = (max(column, key=lambda figures: figures["per_second"]) for column in zip(*rounds, strict=True))
        for name, figures in (("our broker", ours), ("zmq.proxy", plain)):
            rows.append(
                [
                    f"{name}, {payload} B",
                    f"{figures['per_second']:.0f}",
                    f"{figures['lone_us']:.0f}",
                    f"{figures['cpu_us']:.1f}",
                    f"{plain['per_second'] / figures['per_second']:.2f}",
                ]
            )
    print_table(
        f"Broker: round trips with {DEPTH} in flight, and one at a time",
        ["", "round trips/s", "lone, us", "broker cpu us/message", "proxy / this"],
        rows,
    )


def _measure(kind: str, payload: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="lm-") as folder:
        front, back = f"ipc://{folder}/front", f"ipc://{folder}/back"
        middle = {
            "broker": ["-m", "broker", "--name", "bench", "--frontend", front, "--backend", back],
            "proxy": ["-m", "bench.hops.broker", "proxy", front, back],
        }[kind]
        children = [_start(middle), _start(["-m", "bench.hops.broker", "server", back, str(payload)])]
        try:
            broker = psutil.Process(children[0].pid)
            before = broker.cpu_times()
            client = _start(["-m", "bench.hops.broker", "client", front, str(payload), kind])
            children.append(client)
            assert client.stdout is not None
            figures: dict[str, float] = json.loads(client.stdout.readline())
            after = broker.cpu_times()
        finally:
            for child in children:
                child.kill()
                child.wait()
                assert child.stdout is not None
                child.stdout.close()
        spent = after.user + after.system - before.user - before.system
        return {**figures, "cpu_us": spent * 1e6 / (2 * figures["round_trips"])}


def _start(arguments: list[str]) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "LINGUA_LOG_LEVEL": "warning"},
    )
    assert child.stdout is not None
    if arguments[-1] not in ("broker", "proxy"):
        child.stdout.readline()
    return child


# --- the parts ------------------------------------------------------------------------------------


def _proxy(front: str, back: str) -> None:
    """ROUTER on both sides needs addresses, so the plain proxy pairs ROUTER with DEALER, as its manual shows."""
    context = zmq.Context()
    inner, outer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    inner.bind(front)
    outer.bind(back)
    print("ready", flush=True)
    zmq.proxy(inner, outer)


def _packet(to: str, source: str, frame: Frame, body: bytes = b"") -> list[Any]:
    """A packet of one frame: the middle gets as many messages as there are frames, as a proxy does."""
    head = Head(lane_of(frame), to, 3, source, time.time_ns() // 1_000)
    payload, blobs = seal_payload([body] if body else [], INLINE_BYTES_MAX)
    return [encode_table([seal(head, frame, payload, len(blobs))]), *blobs]


class _Peer:
    """A DEALER that blocks: the leanest thing that speaks our frames, so that the middle is what is measured."""

    def __init__(self, endpoint: str, identity: str) -> None:
        self.socket = open_dealer(zmq.Context(), LinkConfig(), identity)
        self.socket.connect(endpoint)
        self.socket.poll(5_000, zmq.POLLOUT)
        self.identity = identity
        self.receive = drainer(self.socket, 1_000)
        self.send = sender(self.socket)

    def send_frame(self, to: str, frame: Frame, body: bytes = b"") -> None:
        self.send(_packet(to, self.identity, frame, body))

    def drain(self) -> list[list[Any]]:
        self.socket.poll(1_000)
        return self.receive()

    def frames(self) -> list[Opened]:
        """What has arrived: a broker may put several frames into one packet."""
        return [entry for parts in self.drain() for entry in read_opened(parts[0])[0]]


def _server(endpoint: str, payload: int) -> None:
    """Answers with `payload` bytes. With a proxy the first part is the client's address; it goes back as it came."""
    peer = _Peer(endpoint, SELECTOR)
    body, consumed, seen = b"a" * payload, 0, 0
    peer.send_frame(BROKER, Beat("selector", 100_000, 0))
    print("ready", flush=True)
    next_beat = time.monotonic() + 0.5
    while True:
        for parts in peer.drain():
            address = [parts.pop(0)] if parts[0].bytes == EDGE.encode() else []
            for entry in read_opened(parts[0])[0]:
                if type(entry.frame) is BrokerBeat:
                    seen, consumed = entry.frame.sent, 0
                    continue
                peer.send([*address, *_packet(entry.source, SELECTOR, ANSWER, body)])
                consumed += 1
        if time.monotonic() > next_beat:
            next_beat += 0.5
            peer.send_frame(BROKER, Beat("selector", 100_000, seen + consumed))
        elif consumed and consumed % DEPTH == 0:
            peer.send_frame(BROKER, Credit(seen + consumed))


def _client(endpoint: str, payload: int, kind: str) -> None:
    peer = _Peer(endpoint, EDGE)
    body = b"a" * payload
    if kind == "broker":
        peer.send_frame(BROKER, Beat("edge", 0, 0))
        _wait_for_selector(peer)

    def ask() -> None:
        peer.send_frame("", ASK, body)

    def answers() -> int:
        return sum(type(entry.frame) is Push for entry in peer.frames())

    lone_trips, begin = 0, time.monotonic()
    while time.monotonic() < begin + SECONDS / 3:
        ask()
        while not answers():
            pass
        lone_trips += 1
    lone_us = (time.monotonic() - begin) * 1e6 / lone_trips
    for _ in range(DEPTH):
        ask()
    done, begin, next_beat = 0, time.monotonic(), time.monotonic()
    while (now := time.monotonic()) < begin + SECONDS:
        count = answers()
        done += count
        for _ in range(count):
            ask()
        if kind == "broker" and now > next_beat:
            next_beat += 0.5
            peer.send_frame(BROKER, Beat("edge", 0, 0))
    spent = time.monotonic() - begin
    figures = {"per_second": done / spent, "lone_us": lone_us, "round_trips": done + lone_trips}
    print(json.dumps(figures), flush=True)


def _wait_for_selector(peer: _Peer) -> None:
    """Wait until a selector replies to one request; before that the broker replies Busy."""
    while True:
        peer.send_frame("", ASK)
        if any(type(entry.frame) is Push for entry in peer.frames()):
            return
        time.sleep(0.05)


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            run()
        case ["proxy", front, back]:
            _proxy(front, back)
        case ["server", endpoint, payload]:
            _server(endpoint, int(payload))
        case ["client", endpoint, payload, kind]:
            _client(endpoint, int(payload), kind)
