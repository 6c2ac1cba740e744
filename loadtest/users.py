"""The users of a load test. Users are greenlets; their sessions and nodes run in one asyncio thread per process."""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import ClassVar, Final

import gevent
from locust import User, constant, task
from locust.env import Environment
from locust.exception import StopUser

from loadtest import mesh_state
from loadtest.delivery import Metric, Sample
from loadtest.fleet import LoadNode
from loadtest.limits import Verdict
from loadtest.loop_thread import LoopThread
from loadtest.options import LoadOptions, UserKind
from loadtest.room import LoadRoom
from loadtest.session import BYTES_PER_S, LoadSession, Speech

NODES_READY_S: Final = 30.0
#: One in so many sessions of the churn kind ends without session_close.
ABANDONED: Final = 4
CHURN_UTTERANCES_MAX: Final = 3


class Run:
    """State of this process that all its users share."""

    options: ClassVar[LoadOptions]
    loop: ClassVar[LoopThread]
    nodes: ClassVar[list[LoadNode]] = []
    started: ClassVar[Counter[str]] = Counter()
    #: Of a master: the workers whose users have ended.
    workers_ended: ClassVar[set[str]] = set()
    broken_invariants: ClassVar[str] = ""
    verdicts: ClassVar[list[Verdict]] = []


class MeshUser(User):
    """Reports samples to locust, and has a random generator of its own: the same seed gives the same user."""

    abstract = True
    kind: ClassVar[str] = ""
    wait_time = constant(0)

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.number = Run.started[self.kind]
        Run.started[self.kind] += 1
        worker = getattr(environment.runner, "worker_index", 0)
        self.random = random.Random(f"{Run.options.seed} {worker} {self.kind} {self.number}")

    def report(self, samples: deque[Sample]) -> None:
        """Pass all samples on to locust's statistics."""
        while samples:
            sample = samples.popleft()
            self.environment.events.request.fire(
                request_type=self.kind,
                name=sample.metric.value,
                response_time=sample.ms,
                response_length=sample.size_bytes,
                exception=AssertionError(sample.failure) if sample.failure else None,
                context={},
            )


class NodeUser(MeshUser):
    """One node. Every second one leaves and returns, if --node-churn is set. It ends after the last session."""

    kind = "node"
    fixed_count = 1  # set from --nodes
    node: LoadNode | None = None

    def on_start(self) -> None:
        options = Run.options
        worker = getattr(self.environment.runner, "worker_index", 0)
        node_id = f"node-load-{worker}-{self.number}"
        self.node = LoadNode(
            options.edges, node_id, options.languages, options.slots, options.service_time, self.random
        )
        Run.nodes.append(self.node)
        Run.loop.call(self.node.join())
        self.report(self.node.samples)

    @task
    def serve(self) -> None:
        """Stay, or leave for a second."""
        assert self.node is not None
        if not Run.options.node_churn_s or self.number % 2 == 0:
            gevent.sleep(1)
            return
        gevent.sleep(self.random.expovariate(1 / Run.options.node_churn_s))
        Run.loop.call(self.node.leave())
        gevent.sleep(1)
        Run.loop.call(self.node.join())
        self.report(self.node.samples)


class SessionUser(MeshUser):
    """One session, opened when the mesh has nodes and closed at the end."""

    abstract = True
    binary: ClassVar[bool] = False
    resumable: ClassVar[bool] = True

    def wait_time(self) -> float:
        """A pause between utterances."""
        return self.random.expovariate(1 / Run.options.think_s) if Run.options.think_s else 0.0

    def on_start(self) -> None:
        self.await_nodes()
        self.session = self.new_session()
        Run.loop.call(self.session.open())

    def on_stop(self) -> None:
        if hasattr(self, "session"):
            Run.loop.call(self.session.close())
            self.report(self.session.samples)

    def await_nodes(self) -> None:
        """Wait until a node has registered, of this process or another; none is awaited with `--nodes 0`."""
        expected = min(Run.options.nodes, 1)
        if not mesh_state.wait_for(Run.options.edges, lambda state: state.nodes >= expected, NODES_READY_S):
            raise StopUser(f"no node registered within {NODES_READY_S:g} s")

    def new_session(self) -> LoadSession:
        """A session of this user's kind, in two of the languages."""
        options = Run.options
        src, tgt = self.random.sample(options.languages[:2], 2)
        speech = Speech(src, tgt, resumable=self.resumable, binary=self.binary, timeout_s=options.timeout_s)
        return LoadSession(options.edges, speech, self.random)

    def audio(self) -> bytes:
        """A whole utterance: random bytes, so that a result of other audio is detected."""
        return self.random.randbytes(Run.options.utterance_bytes)

    def pieces(self) -> list[bytes]:
        """The chunks of a streamed utterance."""
        chunk_bytes = BYTES_PER_S * Run.options.chunk_ms // 2_000 * 2
        return [self.random.randbytes(chunk_bytes) for _ in range(Run.options.chunks)]


class UtteranceUser(SessionUser):
    """Whole utterances, by a client that cannot resume."""

    kind = UserKind.UTTERANCE
    resumable = False

    @task
    def speak(self) -> None:
        """One utterance."""
        Run.loop.call(self.session.say(self.audio()))
        self.report(self.session.samples)


class StreamJsonUser(SessionUser):
    """Chunks in real time, in JSON."""

    kind = UserKind.STREAM_JSON

    @task
    def speak(self) -> None:
        """One streamed utterance."""
        Run.loop.call(self.session.stream(self.pieces(), Run.options.chunk_ms / 1_000))
        self.report(self.session.samples)


class StreamBinaryUser(StreamJsonUser):
    """Chunks in real time, in binary frames."""

    kind = UserKind.STREAM_BINARY
    binary = True


class ResumeUser(SessionUser):
    """Loses its connection in each utterance, whole or streamed by turns, and resumes at the next edge."""

    kind = UserKind.RESUME
    binary = True
    turn = 0

    @task
    def speak(self) -> None:
        """One utterance with a lost connection."""
        self.turn += 1
        self.session.result_metric = Metric.RESUMED_RESULT
        if self.turn % 2:
            Run.loop.call(self.session.say(self.audio(), drops=True))
        else:
            pieces = self.pieces()
            drop_after = self.random.randrange(len(pieces))
            Run.loop.call(self.session.stream(pieces, Run.options.chunk_ms / 1_000, drop_after=drop_after))
        self.report(self.session.samples)


class ChurnUser(SessionUser):
    """Sessions that come and go."""

    kind = UserKind.CHURN

    def on_start(self) -> None:
        self.await_nodes()

    @task
    def visit(self) -> None:
        """One session of a few utterances."""
        session = self.new_session()
        Run.loop.call(session.open())
        for _ in range(self.random.randint(1, CHURN_UTTERANCES_MAX)):
            Run.loop.call(session.say(self.audio()))
        if self.random.randrange(ABANDONED):
            Run.loop.call(session.close())
        else:
            Run.loop.run_soon(session.drop)
        self.report(session.samples)


class RoomUser(SessionUser):
    """A room whose members speak in turn."""

    kind = UserKind.ROOM

    def on_start(self) -> None:
        self.await_nodes()
        options = Run.options
        self.room = LoadRoom(options.edges, options.languages, options.timeout_s, self.random)
        Run.loop.call(self.room.open())
        self._report()

    @task
    def speak(self) -> None:
        """One utterance for all other members."""
        Run.loop.call(self.room.say(self.audio()))
        self._report()

    def on_stop(self) -> None:
        if hasattr(self, "room"):
            Run.loop.call(self.room.close())
            self._report()

    def _report(self) -> None:
        for member in self.room.members:
            self.report(member.samples)
