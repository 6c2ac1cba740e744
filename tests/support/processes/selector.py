"""A real Redis, a real broker process, real selector processes, and an edge made of a bare Link."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from urllib.request import urlopen

import msgspec

from linguamesh.local.redis_server import RedisCluster, RedisServer
from lua.engine.runner import Runner
from lua.store import Store
from mesh import clock
from mesh.cells import cell_of, cell_of_job
from mesh.config import Config
from mesh.config.network import LinkConfig, MeshConfig, RedisConfig
from mesh.frames import (
    Assign,
    Cancel,
    Dispatch,
    Finished,
    FinishedAck,
    FinishedJob,
    Frame,
    JobDone,
    NodeHeartbeat,
    NodeLoad,
    NodeRegister,
    NodeRegistered,
    Query,
    QueryAnswer,
    Refused,
    ResultAck,
    ResultAcks,
)
from mesh.keys import Keys
from mesh.link.link import Link, Received
from mesh.random_ids import new_peer_identity
from tests.support import conditions
from tests.support.builders.selector import CAPS, job
from tests.support.builders.store import node_changes
from tests.support.conditions import DEADLINE_S

F = TypeVar("F", bound=Frame)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that only Redis can tell."""
    await conditions.until(condition, condition.__name__)


class FakeEdge:
    """Both ends of every job: it owns sessions and nodes, and keeps what it receives."""

    def __init__(self, name: str, endpoints: list[str], cells: int) -> None:
        self.identity = new_peer_identity("edge", name)
        self.received: list[Received] = []
        #: Request -> what was last asked for it; nothing of it shall wait for the nodes of the next test.
        self.asked: dict[str, Dispatch] = {}
        self._cells = cells
        self._arrived = asyncio.Event()
        self._queries = 0
        self.link = Link(
            identity=self.identity,
            kind="edge",
            endpoints=endpoints,
            config=LinkConfig(),
            window=0,
            on_messages=self._on_messages,
        )

    def _on_messages(self, messages: list[Received]) -> None:
        self.received += messages
        self._arrived.set()

    async def start(self) -> None:
        await self.link.start()
        await self.link.ready(10_000)

    def send_record(self, record_id: str, frame: Frame, *payload: bytes) -> None:
        assert self.link.send("", cell_of(record_id, self._cells), frame, *payload)

    def send_job(self, job_id: str, frame: Frame, *payload: bytes) -> None:
        assert self.link.send("", cell_of_job(job_id), frame, *payload)

    async def take(self, kind: type[F], matching: Callable[[F], bool] = lambda _: True) -> tuple[F, list[bytes]]:
        """The next frame of this kind, removed from what was received."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for place, message in enumerate(self.received):
                    if isinstance(message.frame, kind) and matching(message.frame):
                        del self.received[place]
                        return message.frame, message.payload
                self._arrived.clear()
                await self._arrived.wait()

    async def take_ack(self, job_id: str = "") -> ResultAck:
        """The next acknowledgement of a result, of this job if one is named."""
        frame, _ = await self.take(
            ResultAcks, lambda frame: any(ack.job_id == (job_id or ack.job_id) for ack in frame.acks)
        )
        return next(ack for ack in frame.acks if ack.job_id == (job_id or ack.job_id))

    async def take_finished(self, assign: Assign) -> None:
        """Wait until the end of this attempt is acknowledged."""
        job = FinishedJob(assign.node_id, assign.job_id, assign.attempt)
        await self.take(FinishedAck, lambda frame: job in frame.jobs)

    async def take_first(self, *kinds: type[Frame]) -> Frame:
        """The next frame of any of these kinds."""
        return (await self.take(Frame, lambda frame: isinstance(frame, kinds)))[0]

    def has(self, kind: type[Frame]) -> bool:
        return any(isinstance(message.frame, kind) for message in self.received)

    # --- stories ------------------------------------------------------------------------------------------

    async def add_node(self, node_id: str, **caps: Any) -> int:
        """Register a node and send its first heartbeat; its epoch."""
        its_caps = msgspec.structs.replace(CAPS, **caps)
        self.send_record(node_id, NodeRegister(f"ref-{node_id}", node_id, self.identity, its_caps))
        registered, _ = await self.take(NodeRegistered, lambda frame: frame.node_id == node_id)
        self.send_record(node_id, NodeHeartbeat(node_id, self.identity, registered.epoch, NodeLoad()))
        return registered.epoch

    def dispatch(self, request_id: str, *, attempt: int = 1, session_id: str = "s-1", **changes: Any) -> Dispatch:
        """Ask for a node, as the session's edge does."""
        changes.setdefault("deadline_ms", clock.wall_ms() + 30_000)
        before = self.asked.get(request_id)
        is_resend = before is not None and before.attempt == attempt
        changes.setdefault("resend", before.resend + 1 if before is not None and is_resend else 0)
        frame = job(request_id=request_id, attempt=attempt, session_id=session_id, edge=self.identity, **changes)
        self.send_record(session_id, frame, b"work", b"audio")
        self.asked[request_id] = frame
        return frame

    def withdraw(self, request_id: str) -> None:
        """Nobody waits for it any more."""
        frame = self.asked.pop(request_id)
        cancel = Cancel(request_id, "", frame.attempt, "", frame.session_id, "session_closed")
        self.link.send("", cell_of(frame.session_id, self._cells), cancel)

    def finish(self, assign: Assign, text: bytes = b"{}", *, resend: int = 0, **changes: Any) -> None:
        """Send the node's result, as the node's edge does."""
        done = JobDone(
            job_id=assign.job_id,
            attempt=changes.get("attempt", assign.attempt),
            node_id=assign.node_id,
            node_edge=self.identity,
            request_id=assign.request_id,
            session_id=assign.session_id,
            utterance_index=assign.utterance_index,
            session_edge=changes.get("session_edge", assign.session_edge),
            success=True,
            resend=resend,
            took_ms=changes.get("took_ms", -1),
            pair=assign.pair,
            audio_ms=assign.audio_ms,
        )
        self.send_job(assign.job_id, done, text)

    def finish_directly(self, assign: Assign, *, to: str | None = None, **changes: Any) -> None:
        """Report the end of a job whose result goes directly to its session; to its selector, or as `to` says."""
        frame = Finished(
            job_id=assign.job_id,
            attempt=changes.get("attempt", assign.attempt),
            node_id=assign.node_id,
            node_edge=self.identity,
            success=True,
            took_ms=changes.get("took_ms", -1),
            pair=assign.pair,
            audio_ms=assign.audio_ms,
        )
        receiver = assign.selector if to is None else to
        assert self.link.send(receiver, cell_of_job(assign.job_id), frame)

    def beat(self, node_id: str, epoch: int, **fields: Any) -> None:
        """One heartbeat of a node; fields of NodeHeartbeat, or of its load."""
        load = NodeLoad(**{name: fields.pop(name) for name in NodeLoad.__struct_fields__ if name in fields})
        self.send_record(node_id, NodeHeartbeat(node_id, self.identity, epoch, load, **fields))

    async def query(self, kind: str, *, to: str = "", cell: int = 0, **params: str | list[str]) -> tuple[int, Any]:
        """Ask what an operator asks: status and decoded answer. `to`: one selector, else any of the cell."""
        body = await self.query_bytes(kind, to=to, cell=cell, **params)
        return body[0], json.loads(body[1])

    async def query_bytes(
        self, kind: str, *, to: str = "", cell: int = 0, **params: str | list[str]
    ) -> tuple[int, bytes]:
        """The same with the answer as it came."""
        self._queries += 1
        ref = f"q-{self._queries}"
        lists = {name: [value] if isinstance(value, str) else value for name, value in params.items()}
        assert self.link.send(to, cell, Query(ref, self.identity, kind, lists))
        answer, payload = await self.take(QueryAnswer, lambda frame: frame.ref == ref)
        return answer.status, payload[0]

    async def _answer_to(self, request_id: str, at: FakeEdge) -> tuple[Assign, list[bytes]] | None:
        assigned = asyncio.ensure_future(at.take(Assign, lambda frame: frame.request_id == request_id))
        refused = asyncio.ensure_future(self.take(Refused, lambda frame: frame.request_id == request_id))
        try:
            await asyncio.wait([assigned, refused], return_when=asyncio.FIRST_COMPLETED)
            return assigned.result() if assigned.done() else None
        finally:
            for task in (assigned, refused):
                task.cancel()
            await asyncio.gather(assigned, refused, return_exceptions=True)

    async def place(self, request_id: str, *, at: FakeEdge | None = None, **changes: Any) -> tuple[Assign, list[bytes]]:
        """Dispatch and repeat, as an edge does, until the Assign comes (to the edge `at`, if that is another)."""
        for _ in range(200):
            self.dispatch(request_id, **changes)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    answer = await self._answer_to(request_id, at or self)
                    if answer is not None:
                        return answer
                    await asyncio.sleep(0.05)  # refused: retry after a moment
        raise AssertionError(f"{request_id} was never placed; received {[type(m.frame) for m in self.received]}")


class Rig:
    """One mesh without real edges."""

    def __init__(self, directory: Path, redis: RedisServer | RedisCluster) -> None:
        is_cluster = isinstance(redis, RedisCluster)
        self.config = Config(
            mesh=MeshConfig(),
            link=LinkConfig(frontends=[f"ipc://{directory}/front"], backends=[f"ipc://{directory}/back"]),
            redis=RedisConfig(url=redis.url, cluster=is_cluster),
        )
        self.processes: list[subprocess.Popen[bytes]] = []
        self.edges: list[FakeEdge] = []
        #: Name of a process -> its identity in the mesh.
        self.identities: dict[str, str] = {}
        self._urls: dict[str, str] = {}

    def spawn(self, module: str, name: str, **environ: str) -> subprocess.Popen[bytes]:
        """Start a process of the mesh and wait for its ready line."""
        process = self.begin(module, name, **environ)
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        assert line["ready"] and (line["kind"], line["id"]) == (module, name)
        self.identities[name] = line["identity"]
        self._urls[name] = line.get("url", "")
        return process

    def metric(self, name: str, metric: str) -> float:
        """The value of a metric without labels in a process's scrape."""
        with urlopen(f"{self._urls[name]}/metrics", timeout=DEADLINE_S) as response:
            lines = response.read().decode().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"{metric} ")))

    def begin(self, module: str, name: str, **environ: str) -> subprocess.Popen[bytes]:
        """Start a process of the mesh."""
        settings = {
            "LINGUA_LINK_FRONTENDS": self.config.link.frontends[0],
            "LINGUA_LINK_BACKENDS": self.config.link.backends[0],
            "LINGUA_REDIS_URL": self.config.redis.url,
            "LINGUA_REDIS_CLUSTER": str(self.config.redis.cluster),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--name", name, "--die-with-parent"],
            env={**os.environ, **settings, **environ},
            stdout=subprocess.PIPE,
        )
        self.processes.append(process)
        return process

    def end(self, processes: list[subprocess.Popen[bytes]]) -> None:
        """Stop these processes."""
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
            self.processes.remove(process)

    async def add_edge(self, name: str) -> FakeEdge:
        edge = FakeEdge(name, self.config.link.frontends, self.config.mesh.cells)
        self.edges.append(edge)
        await edge.start()
        return edge

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        runner = await Runner.connect(self.config.redis)
        try:
            yield Store(runner, Keys(self.config.mesh.key_prefix), self.config)
        finally:
            await runner.close()

    async def used(self, node_id: str) -> int:
        """Leases that Redis holds for a node."""
        async with self.store() as store:
            changes = await node_changes(store, cell_of(node_id, self.config.mesh.cells), 0, 1_000)
        return next((row.used for row in changes.rows if row.node_id == node_id), -1)

    async def until_used(self, node_id: str, used: int) -> None:
        async def is_so() -> bool:
            return await self.used(node_id) == used

        await until(is_so)

    async def close_edges(self) -> None:
        for edge in self.edges:
            for request_id in list(edge.asked):
                edge.withdraw(request_id)
            await edge.link.close()
        self.edges.clear()


@contextlib.contextmanager
def selecting(redis: RedisServer, *selectors: str, **settings: str) -> Iterator[Rig]:
    """A broker and selectors of these names and settings, for all tests of a file."""
    with TemporaryDirectory(prefix="lm-") as directory:
        rig = Rig(Path(directory), redis)
        try:
            rig.spawn("broker", "b1")
            for name in selectors:
                rig.spawn("selector", name, **settings)
            yield rig
        finally:
            rig.end(list(rig.processes))
