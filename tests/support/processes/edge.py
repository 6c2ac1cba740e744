"""A real broker process, real edges in this process and a fake selector with its records in dicts."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from websockets.asyncio.client import ClientConnection, connect

from edge.app import Edge
from edge.metrics import EdgeMetrics
from mesh.cells import cell_of, job_id_in
from mesh.config import Config
from mesh.config.jobs import JobConfig
from mesh.config.network import EdgeConfig, LinkConfig, SelectorConfig
from mesh.config.sessions import RoomsConfig, SessionConfig, SpeechConfig
from mesh.frames import (
    Assign,
    AssignFailed,
    Bounce,
    Cancel,
    CancelJob,
    Dispatch,
    Finished,
    FinishedAck,
    FinishedJob,
    Frame,
    JobDone,
    NodeHeartbeat,
    NodeOffline,
    NodeRegister,
    NodeRegistered,
    NodeStale,
    Push,
    Query,
    QueryAnswer,
    Refused,
    ResultAck,
    ResultAcks,
    Undone,
    Waiting,
)
from mesh.link.link import Link, Received
from mesh.random_ids import new_peer_identity
from tests.support.conditions import DEADLINE_S, until
from tests.support.fakes.rooms import FakeRooms
from tests.support.fakes.sessions import FakeSessions
from tests.support.processes.running_mesh import MeshProcess

CELLS = 16

REGISTER: dict[str, Any] = {
    "type": "node_register",
    "node_id": None,
    "version": "2.0.0",
    "capability_schema_version": "2.0",
    "platform": "windows",
    "hardware": {"cpu_cores": 8, "memory_gb": 32, "gpus": [{"name": "RTX", "memory_gb": 12}]},
    "installed_models": [],
    "installed_services": [{"service_id": "whisper", "type": "asr", "device": "gpu", "status": "running"}],
    "capability_by_type": [{"type": kind, "ready": True} for kind in ("asr", "nmt", "tts", "semantic")],
    "features_supported": {},
    "accept_public_jobs": True,
    "language_capabilities": {"asr_languages": ["zh", "en"], "semantic_languages": ["zh", "en"]},
}
INIT: dict[str, Any] = {
    "type": "session_init",
    "client_version": "web-1.0",
    "platform": "web",
    "src_lang": "zh",
    "tgt_lang": "en",
}
AUDIO = bytes(range(256)) * 125  # 1 s of PCM16 at 16 kHz


class FakeSelector(FakeRooms, FakeSessions):
    """Replies as a selector does, from dicts. Frames for which `mute` is true are ignored."""

    def __init__(self, endpoints: list[str]) -> None:
        FakeRooms.__init__(self)
        FakeSessions.__init__(self)
        self.nodes: dict[str, tuple[str, int]] = {}
        self.jobs: dict[str, tuple[Dispatch, Assign]] = {}
        #: Request and attempt -> the job that it became.
        self._placed: dict[tuple[str, int], str] = {}
        self.seen: list[Frame] = []
        self.mute: Callable[[Frame], bool] = lambda frame: False
        #: Dispatches that are queued before one is placed, and the interval after which edges retry them.
        self.in_line = 0
        self.ask_again_ms = 50
        #: `late_after_ms` of each Assign.
        self.late_after_ms = 0
        #: Kind of query -> status and body.
        self.answers: dict[str, tuple[int, Any]] = {}
        #: True: receive work without returning credit for it.
        self.holds_credit = False
        self._held: Counter[str] = Counter()
        self._epoch = 1_000
        self._serial = 0
        self.link = Link(
            identity=new_peer_identity("selector", "fake"),
            kind="selector",
            endpoints=endpoints,
            config=LinkConfig(beat_ms=100, dead_ms=1_000),
            window=64,
            on_messages=self._on_messages,
        )

    async def receives(self, kind: type[Frame]) -> None:
        """Wait until a frame of that kind was received."""
        await until(lambda: self.seen_of(kind), f"the selector receives {kind.__name__}")

    def seen_of(self, kind: type[Frame]) -> list[Any]:
        """The frames of one kind that came so far."""
        return [frame for frame in self.seen if isinstance(frame, kind)]

    def _on_messages(self, messages: list[Received]) -> None:
        for message in messages:
            self.seen.append(message.frame)
            if not self.mute(message.frame):
                handler = getattr(self, f"_on_{type(message.frame).__name__.lower()}", None)
                if handler is not None:
                    handler(message)
            if message.costs_credit:
                self._held[message.broker] += 1
        if not self.holds_credit:
            self.give_credit()

    def give_credit(self) -> None:
        """Return the credit of all work received so far."""
        self.holds_credit = False
        self.link.consumed(self._held)
        self._held.clear()

    def _on_noderegister(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, NodeRegister)
        self._epoch += 1
        self.nodes[frame.node_id] = (frame.edge, self._epoch)
        self.link.send(frame.edge, 0, NodeRegistered(frame.ref, frame.node_id, self._epoch, "registering"))

    def _on_nodeheartbeat(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, NodeHeartbeat)
        known = self.nodes.get(frame.node_id)
        if known is None or known[1] != frame.epoch:
            reason = "unknown" if known is None else "superseded"
            self.link.send(frame.edge, 0, NodeStale(frame.node_id, frame.epoch, reason))

    def _on_nodeoffline(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, NodeOffline)
        if self.nodes.get(frame.node_id) == (frame.edge, frame.epoch):
            del self.nodes[frame.node_id]

    def _on_dispatch(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, Dispatch)
        placed = self.jobs.get(self._placed.get((frame.request_id, frame.attempt), ""))
        if placed is not None:
            self.link.send(self.nodes_edge(placed[1]), 0, placed[1], *message.payload)
            return
        if self.in_line:
            self.in_line -= 1
            waiting = Waiting(frame.request_id, frame.attempt, "capacity_exceeded", self.ask_again_ms)
            self.link.send(frame.edge, 0, waiting)
            return
        free = [node for node in self.nodes if node not in frame.excluded]
        if not free:
            reason = "excluded" if self.nodes else "no_nodes"
            counts = {reason: len(self.nodes)}
            refused = Refused(frame.request_id, frame.attempt, "NO_AVAILABLE_NODE", reason, counts, 50)
            self.link.send(frame.edge, 0, refused)
            return
        self._serial += 1
        node_id = free[self._serial % len(free)]
        edge, epoch = self.nodes[node_id]
        assign = Assign(
            job_id=job_id_in(cell_of(node_id, CELLS), f"{self._serial:032x}"),
            attempt=frame.attempt,
            node_id=node_id,
            node_epoch=epoch,
            request_id=frame.request_id,
            session_id=frame.session_id,
            utterance_index=frame.utterance_index,
            session_edge=frame.edge,
            deadline_ms=frame.deadline_ms,
            trace_id=frame.trace_id,
            late_after_ms=self.late_after_ms,
        )
        self.jobs[assign.job_id] = (frame, assign)
        self._placed[frame.request_id, frame.attempt] = assign.job_id
        self.link.send(edge, 0, assign, *message.payload)

    def nodes_edge(self, assign: Assign) -> str:
        """Where the job was sent."""
        return self.nodes.get(assign.node_id, ("", 0))[0]

    def _on_assignfailed(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, AssignFailed)
        self._undo(frame.request_id, frame.attempt, frame.job_id, frame.node_id, frame.session_edge, frame.reason)

    def _on_bounce(self, message: Received) -> None:
        assert isinstance(message.frame, Bounce)

    def _undo(self, request_id: str, attempt: int, job_id: str, node_id: str, edge: str, reason: str) -> None:
        self.jobs.pop(job_id, None)
        self.link.send(edge, 0, Undone(request_id, attempt, job_id, node_id, reason, True))

    def _on_jobdone(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, JobDone)
        self._finish(frame)
        owner = frame.session_edge if not frame.resend else self.sessions.get(frame.session_id, "")
        if frame.job_id not in self.jobs or not owner:
            self._acknowledge(frame, "fenced")
            return
        push = Push(
            job_id=frame.job_id,
            attempt=frame.attempt,
            node_id=frame.node_id,
            node_edge=frame.node_edge,
            request_id=frame.request_id,
            session_id=frame.session_id,
            utterance_index=frame.utterance_index,
        )
        record = self.records.get(frame.session_id)
        if frame.resend and record is not None and record.away and record.resumable:
            self.park(frame.session_id, f"{frame.job_id}#{frame.attempt}", push, message.payload[0])
            self._acknowledge(frame, "parked")
            return
        self.link.send(owner, 0, push, *message.payload)

    def _on_finished(self, message: Received) -> None:
        assert isinstance(message.frame, Finished)
        self._finish(message.frame)

    def _finish(self, frame: Finished | JobDone) -> None:
        job = FinishedJob(frame.node_id, frame.job_id, frame.attempt)
        self.link.send(frame.node_edge, 0, FinishedAck([job]))

    def _acknowledge(self, frame: JobDone, verdict: str) -> None:
        ack = ResultAck(frame.node_id, frame.job_id, frame.attempt, verdict)
        self.link.send(frame.node_edge, 0, ResultAcks([ack]))

    def _on_query(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, Query)
        missing = (400, {"code": "INVALID_MESSAGE", "message": f"there is no question {frame.kind!r}"})
        status, body = self.answers.get(frame.kind, missing)
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.link.send(frame.edge, 0, QueryAnswer(frame.ref, status), text)

    def _on_cancel(self, message: Received) -> None:
        frame = message.frame
        assert isinstance(frame, Cancel)
        job = self.jobs.pop(frame.job_id, None)
        if job is not None:
            cancel = CancelJob(frame.job_id, frame.attempt, frame.node_id, job[1].trace_id, frame.reason)
            self.link.send(self.nodes_edge(job[1]), 0, cancel)


class Rig:
    """Broker, fake selector and edges."""

    def __init__(self, directory: Path, **edge: Any) -> None:
        self.directory = directory
        self.front = f"ipc://{directory}/front"
        self.back = f"ipc://{directory}/back"
        self.broker = MeshProcess("broker", "b", directory, {}, "--frontend", self.front, "--backend", self.back)
        self.selector = FakeSelector([self.back])
        self.edges: list[Edge] = []
        self._settings = edge
        self._talks: list[Talk] = []

    async def start(self, edges: int = 1) -> None:
        """Start broker, selector and edges. Returns when all are linked."""
        await asyncio.to_thread(self.broker.wait_ready)
        await self.selector.link.start()
        await self.selector.link.ready(int(DEADLINE_S * 1_000))
        for number in range(edges):
            self.edges.append(await self.start_edge(f"e{number}"))

    async def start_edge(self, name: str, **settings: Any) -> Edge:
        """One more edge."""
        edge = Edge(self.config(**settings), new_peer_identity("edge", name), EdgeMetrics(CollectorRegistry()))
        await edge.start()
        return edge

    def config(self, **settings: Any) -> Config:
        """Short times and free ports."""
        defaults: dict[str, Any] = {"port": 0, "resend_ms": 100, "reconnect_grace_ms": 400, "drain_ms": 50}
        settings = {**self._settings, **settings}
        sections: dict[str, dict[str, Any]] = {"job": {}, "speech": {}, "session": {}, "rooms": {}}
        rest = {}
        for key, value in settings.items():
            section, _, name = key.partition("_")
            if section in sections and key != "session_message_bytes_max":
                sections[section][name] = value
            else:
                rest[key] = value
        presence_ms = rest.pop("presence_ms", SelectorConfig().presence_ms)
        return Config(
            link=LinkConfig(frontends=[self.front], backends=[self.back], beat_ms=100, dead_ms=1_000),
            edge=msgspec.convert({**defaults, **rest}, EdgeConfig),
            job=msgspec.convert(sections["job"], JobConfig),
            speech=msgspec.convert(sections["speech"], SpeechConfig),
            session=msgspec.convert(sections["session"], SessionConfig),
            rooms=msgspec.convert(sections["rooms"], RoomsConfig),
            selector=SelectorConfig(presence_ms=presence_ms),
        )

    async def stop(self) -> None:
        """Everything down, in order; no socket is left behind."""
        for talk in self._talks:
            await talk.close()
        for edge in self.edges:
            await edge.stop()
        await self.selector.link.close()
        await asyncio.to_thread(self.broker.stop)

    def url(self, path: str, edge: int = 0) -> str:
        """A WebSocket address of an edge's own port."""
        return f"ws://127.0.0.1:{self.edges[edge].server.own_port}{path}"

    async def talk(self, path: str, edge: int = 0, **options: Any) -> Talk:
        """A socket to an edge's own port."""
        talk = Talk(await connect(self.url(path, edge), max_size=None, proxy=None, **options))
        self._talks.append(talk)
        return talk

    def forget_talks(self) -> None:
        """Hold on to no socket that is closed."""
        self._talks = [talk for talk in self._talks if talk.socket.state.name != "CLOSED"]

    async def session(self, edge: int = 0, **fields: Any) -> Talk:
        """A client with an open session."""
        talk = await self.talk("/ws/session", edge)
        await talk.send({**INIT, **fields})
        talk.id = (await talk.receive("session_init_ack"))["session_id"]
        return talk

    async def node(self, edge: int = 0, **fields: Any) -> Talk:
        """A registered node."""
        talk = await self.talk("/ws/node", edge)
        await talk.send({**REGISTER, **fields})
        talk.id = (await talk.receive("node_register_ack"))["node_id"]
        return talk


class Talk:
    """One raw WebSocket that speaks JSON text."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.id = ""
        self.received: list[dict[str, Any]] = []

    async def send(self, message: dict[str, Any] | str | bytes) -> None:
        """Send a message, as JSON if it is none yet."""
        await self.socket.send(json.dumps(message) if isinstance(message, dict) else message)

    async def receive(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next message of that type with these fields; others are kept in `received`."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                message: dict[str, Any] = json.loads(await self.socket.recv())
                self.received.append(message)
                if message["type"] == kind and all(message.get(name) == value for name, value in fields.items()):
                    return message

    async def receive_any(self, *kinds: str) -> dict[str, Any]:
        """The next message of one of these types."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                message: dict[str, Any] = json.loads(await self.socket.recv())
                self.received.append(message)
                if message["type"] in kinds:
                    return message

    async def utter(self, index: int, sound: bytes = AUDIO, **fields: Any) -> None:
        """Send one utterance."""
        await self.send(
            {
                "type": "utterance",
                "session_id": self.id,
                "utterance_index": index,
                "manual_cut": True,
                "src_lang": "zh",
                "tgt_lang": "en",
                "audio": base64.b64encode(sound).decode(),
                "audio_format": "pcm16",
                "sample_rate": 16_000,
                **fields,
            }
        )

    async def chunk(self, seq: int, sound: bytes = b"", *, is_final: bool = False, **fields: Any) -> None:
        """Send a piece of streamed audio."""
        message = {"type": "audio_chunk", "session_id": self.id, "seq": seq, "is_final": is_final, **fields}
        await self.send({**message, "payload": base64.b64encode(sound).decode()})

    async def answer(self, job: dict[str, Any], **fields: Any) -> None:
        """The result of a job, as the original's node sends it."""
        await self.send(result_of(job, self.id, **fields))

    async def close(self) -> None:
        """Close the socket."""
        await self.socket.close()


def result_of(job: dict[str, Any], node_id: str, **fields: Any) -> dict[str, Any]:
    """A job_result for a job_assign."""
    return {
        "type": "job_result",
        "job_id": job["job_id"],
        "attempt_id": job["attempt_id"],
        "node_id": node_id,
        "session_id": job["session_id"],
        "utterance_index": job["utterance_index"],
        "success": True,
        "text_asr": "你好",
        "text_translated": f"hello {job['utterance_index']}",
        "tts_audio": "UklGRg==",
        "tts_format": "opus",
        "processing_time_ms": 42,
        "trace_id": job["trace_id"],
        **fields,
    }


async def get(port: int, path: str) -> str:
    """The whole answer to a plain GET."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


@asynccontextmanager
async def running(directory: Path, edges: int = 1, **settings: Any) -> AsyncIterator[Rig]:
    """A rig that is up, and down again afterwards."""
    rig = Rig(directory, **settings)
    try:
        await rig.start(edges)
        yield rig
    finally:
        await rig.stop()
