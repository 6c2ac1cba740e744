"""Sessions at two edges, with clients that come and go, nodes that are late or fail, and rooms that change.

The cores of sessions, requests and relays are the real ones. Selectors, nodes, Redis and sockets are a model: its store
changes at once, its messages take time and may be lost. All randomness comes from the seed, which a failure names.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from edge.audio.core.reorder import Chunk
from edge.requests.core import request
from edge.requests.core.tracker import RequestTracker
from edge.rooms.core import relay_sender
from edge.rooms.core.events import MOVED, RelayCompleted, RelayReceived, RoomCall, RoomReplied
from edge.rooms.core.relay_sender import RelaySender
from edge.sessions.core import effects, events
from edge.sessions.core.events import Attached, FoundMail, MailedResult
from edge.sessions.core.state import Phase, SessionState
from mesh.config.sessions import SessionConfig
from mesh.frames import Dispatch, Failed, Placed, Post, Push, RoomMember, RoomState
from mesh.messages.base import Message, error_of
from mesh.messages.client import FROM_SERVER, RoomJoin, RoomLeave, Utterance
from mesh.messages.node import JobError, JobResult
from tests.unit.edge.sessions.harness import PIECE, TRACKER, WALL_MS, limits, result, session_of

FAULTS_UNTIL_MS = 20_000
END_MS = 200_000
EDGES = ("edge:a", "edge:b")
CODE = "123456"
LANGS = ("en", "fr", "es")
RETRY_MS = 400
#: A result that no request wants any more is dropped in the end.
TRIES_MAX = 50
BOUNDS = limits(
    speech={"idle_ms": 5_000, "pause_ms": 800},
    session={"resume_ms": 3_000, "gap_ms": 6_000, "pending_max": 12, "unacked_max": 6, "close_ms": 5_000},
    inbound_max=12,
    pending_max=4,
    audio_per_session_bytes_max=60_000,
)
CONFIG = SessionConfig(resume_ms=3_000, mail_max=50)


@dataclass
class Record:
    """What the mesh knows of a session."""

    owner: str
    epoch: int
    is_away: bool = False
    room: str = ""
    mail: list[tuple[str, Any]] = field(default_factory=list)


@dataclass
class Job:
    """A result at the edge of its node, retried until it is acknowledged."""

    push: Push
    result: JobResult
    tries: int = 0


class Client:
    """A client that resumes: keeps its audio until it has the result, and takes each index once, in order."""

    def __init__(self, world: World, session_id: str, *, resumable: bool) -> None:
        self.world = world
        self.session_id = session_id
        self.resumable = resumable
        self.connection = 0
        self.is_connected = False
        self.is_over = False
        #: Chunks said so far, those of them that end an utterance, and the one to send next.
        self.said = 0
        self.finals: set[int] = set()
        self.next_seq = 0
        self.last_index = -1
        self.last_seq = -1
        #: Indices that ended after one that did not, and their last chunks.
        self.ended: dict[int, int | None] = {}
        #: Of other members: what came, and the latest of it since the session is where it is.
        self.heard: dict[str, set[int]] = {}
        self.latest: dict[str, int] = {}
        self.due_ms = 0

    def receive(self, message: Message, connection: int) -> None:
        if connection != self.connection or not self.is_connected:
            return
        kind = type(message).__name__
        if kind in ("TranslationResult", "MissingResult") and message.session_id != self.session_id:  # type: ignore[attr-defined]
            self.hear(message.session_id, message.utterance_index)  # type: ignore[attr-defined]
        elif kind in ("TranslationResult", "MissingResult", "UtteranceEnded"):
            self.take(message)
        elif kind == "ErrorMessage" and message.code == "SLOW_DOWN":  # type: ignore[attr-defined]
            self.next_seq = min(self.next_seq, message.details.get("seq", self.next_seq))  # type: ignore[attr-defined]
        elif kind == "SessionInitAck" and message.resumed:  # type: ignore[attr-defined]
            self.next_seq = message.resend_from_seq  # type: ignore[attr-defined]
            assert self.next_seq <= self.said and message.next_utterance_index >= self.last_index + 1  # type: ignore[attr-defined]
        elif kind == "SessionCloseAck":
            self.is_over = True

    def take(self, message: Any) -> None:
        """An index has ended. Results come in order; that listeners have an utterance may be told out of it."""
        index = message.utterance_index
        if index <= self.last_index or index in self.ended:
            assert self.resumable, "an index ended twice"
        elif self.session_id not in self.world.roomed:
            assert index == self.last_index + 1, "an index was left out"
        self.ended[index] = message.last_seq
        while self.last_index + 1 in self.ended or (not self.resumable and self.ended):
            self.last_index = self.last_index + 1 if self.resumable else max(self.ended)
            self.last_seq = max(self.last_seq, self.ended.pop(self.last_index) or -1)
        if self.resumable and self.world.random.random() < 0.8:
            self.acknowledge(self.session_id, self.last_index)

    def hear(self, speaker: str, index: int) -> None:
        """Another member's result. An edge that the listener came to lately cannot know what others sent it before."""
        heard = self.heard.setdefault(speaker, set())
        latest = self.latest.get(speaker, -1)
        if index in heard:
            assert self.resumable, f"{speaker}'s {index} came twice"
        else:
            assert index > latest, f"{speaker}'s {index} came after {latest}"
        heard.add(index)
        self.latest[speaker] = max(index, latest)
        if self.resumable:
            self.acknowledge(speaker, self.latest[speaker])

    def acknowledge(self, session_id: str, index: int) -> None:
        connection = self.connection
        self.world.later(5, lambda: self.to_edge(events.ClientAcked(session_id, index), connection))

    def to_edge(self, event: events.Event, connection: int | None = None) -> None:
        """Give an event to the session, if this connection still has one."""
        if not self.is_connected or connection not in (None, self.connection):
            return
        edge = self.world.edges[self.world.place[self.session_id]]
        state = edge.sessions.get(self.session_id)
        if state is not None and (state.phase is Phase.ATTACHED or type(event) is events.ClientAcked):
            edge.handle(state, event)

    def send(self) -> None:
        """Send a few chunks, new ones or again."""
        for _ in range(self.world.random.randrange(1, 4)):
            if self.next_seq == self.said and self.world.faulty:
                if self.world.random.random() < 0.4:
                    self.finals.add(self.said)
                self.said += 1
            if self.next_seq < self.said:
                seq = self.next_seq
                self.next_seq += 1
                self.to_edge(Chunk(seq, PIECE, seq in self.finals, None))


class Edge:
    """One edge: runs effects as its actors, request runner and relay do."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.tracker = RequestTracker(TRACKER)
        self.relay = RelaySender(CONFIG, self.is_attached)
        self.sessions: dict[str, SessionState] = {}

    def is_attached(self, session_id: str) -> bool:
        state = self.sessions.get(session_id)
        return state is not None and state.is_attached

    def handle(self, state: SessionState, event: events.Event) -> None:
        now_ms = self.world.now_ms
        for effect in state.handle(event, now_ms, (WALL_MS + now_ms) * 1_000):
            self.run(state, effect)
        state.check()
        self.world.arm(self, state)

    def notify(self, session_id: str, event: events.Event) -> bool:
        state = self.sessions.get(session_id)
        if state is not None:
            self.handle(state, event)
        return state is not None

    def tick(self) -> None:
        now_ms = self.world.now_ms
        self.run_tracker(self.tracker.tick(now_ms))
        self.run_relay(self.relay.tick(now_ms))
        for state in list(self.sessions.values()):
            if state.due_ms(now_ms) <= now_ms:
                self.handle(state, events.Ticked())

    def run(self, state: SessionState, effect: effects.Effect) -> None:
        world, own, now_ms = self.world, state.session.session_id, self.world.now_ms
        if isinstance(effect, effects.SendToClient):
            for message in effect.messages:
                world.to_client(self, own, message)
        elif isinstance(effect, effects.SendEncoded):
            world.to_client(self, own, FROM_SERVER.decode(effect.body) if b'"members"' not in effect.body else None)
        elif isinstance(effect, effects.SendError):
            world.to_client(self, own, error_of(effect.error))
        elif isinstance(effect, effects.Submit):
            self.run_tracker(
                self.tracker.submit(effect.dispatch, effect.work, effect.audio, effect.deadline_ms, effect.created_ms)
            )
        elif isinstance(effect, effects.CancelRequest):
            self.run_tracker(self.tracker.cancel(effect.request_id, effect.reason, now_ms))
        elif isinstance(effect, effects.TakeResult):
            self.run_tracker(self.tracker.on_push(effect.push, effect.result, now_ms))
        elif isinstance(effect, request.AckResult):
            world.on_ack(effect.push, effect.verdict, state)
        elif isinstance(effect, effects.CallRoom):
            world.call_room(self, state, effect.call)
        elif isinstance(effect, effects.ExpectRelay):
            self.relay.expect(own, effect.listener, effect.key)
        elif isinstance(effect, effects.SendRelay):
            self.run_relay(self.relay.send(effect.queue, effect.message))
        elif isinstance(effect, effects.ReplyRelay):
            self.reply(effect.post, effect.queue, effect.verdict)
        elif isinstance(effect, effects.ForgetRelays):
            self.run_relay(self.relay.forget(own))
        else:
            self.run_record(state, effect)

    def run_record(self, state: SessionState, effect: effects.Effect) -> None:
        own, now_ms = state.session.session_id, self.world.now_ms
        record = self.world.records.get(own)
        is_owner = record is not None and record.owner == self.name
        if isinstance(effect, effects.RenewRecord) and record is not None and is_owner:
            record.is_away, record.room = effect.is_detached, effect.room
        elif isinstance(effect, effects.TrimMail) and record is not None and is_owner:
            record.mail = [one for one in record.mail if int(one[0]) > int(effect.last)]
        elif isinstance(effect, effects.EndSession):
            self.run_tracker(self.tracker.close_session(own, now_ms))
            del self.sessions[own]
            if is_owner:
                del self.world.records[own]
                self.world.ended.add(own)
        elif isinstance(effect, effects.MoveSession):
            self.run_tracker(self.tracker.leave_session(own, now_ms))
            del self.sessions[own]
        else:
            assert not isinstance(effect, effects.ReportBug), effect

    def run_tracker(self, wanted: list[request.Effect]) -> None:
        for effect in wanted:
            if isinstance(effect, request.SendDispatch):
                effect.attempt.broker = "broker"
                frame = effect.request.frame(effect.attempt)
                self.world.carry(lambda frame=frame: self.world.on_dispatch(self, frame))
            elif isinstance(effect, request.Deliver):
                self.notify(
                    effect.request.session_id, request.ResultArrived(effect.request, effect.push, effect.result)
                )
            elif isinstance(effect, request.Fail):
                failed = request.RequestFailed(effect.request, effect.code, effect.message, effect.details)
                self.notify(effect.request.session_id, failed)
            elif isinstance(effect, request.Reject):
                rejected = request.ResultRejected(effect.push, effect.verdict)
                if not self.notify(effect.push.session_id, rejected):
                    self.world.on_ack(effect.push, effect.verdict, None)
            elif isinstance(effect, request.AckResult):
                self.world.on_ack(effect.push, effect.verdict, None)

    def run_relay(self, wanted: list[relay_sender.Effect]) -> None:
        for effect in wanted:
            message = effect.message
            if isinstance(effect, relay_sender.Complete):
                if message.sender:
                    self.notify(message.sender, RelayCompleted(message, effect.verdict))
                continue
            local = isinstance(effect, relay_sender.DeliverHere)
            post = Post("" if local else "1", self.name, message.listener, message.kind, message.key, message.park)
            if local:
                self.world.later(1, lambda e=effect, post=post: self.deliver_here(e.queue, e.message, post))
            else:
                self.world.call_listener(self, effect.queue, message, post)

    def deliver_here(self, queue: str, message: Any, post: Post) -> None:
        self.relay.delivering(queue, message, self.world.now_ms)
        if not self.notify(message.listener, RelayReceived(post, message.body, queue)):
            self.reply(post, queue, MOVED)

    def reply(self, post: Post, queue: str, verdict: str) -> None:
        if queue:
            self.run_relay(self.relay.on_reply(queue, post.session_id, post.key, verdict))
        elif post.edge:
            self.world.posted(post, verdict)


class World:
    """The simulation."""

    def __init__(self, seed: int, *, rooms: bool, resumable: bool) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = 0
        self.edges = {name: Edge(self, name) for name in EDGES}
        self.records: dict[str, Record] = {}
        self.place: dict[str, str] = {}
        self.ended: set[str] = set()
        self.jobs: dict[str, Job | None] = {}
        self.calls: dict[tuple[str, str, str], tuple[Edge, str]] = {}
        self.members: dict[str, str] = {}
        self.version = 0
        self.rooms = rooms
        self.roomed: set[str] = set()
        self.outcomes = 0
        self.clients = [Client(self, f"s-{number}", resumable=resumable) for number in range(3)]
        for client in self.clients:
            self.connect(client, self.random.choice(EDGES))
            if rooms:
                client.to_edge(events.MessageReceived(RoomJoin(room_code=CODE, preferred_lang=self.any_lang()), 100))
            for _ in range(30):
                self.at(self.random.randrange(0, FAULTS_UNTIL_MS), lambda client=client: self.upset(client))
        self.at(RETRY_MS, self.retry)
        self.at(50, self.speak)

    # --- time -----------------------------------------------------------------------------------

    @property
    def faulty(self) -> bool:
        return self.now_ms < FAULTS_UNTIL_MS

    def at(self, due_ms: int, action: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self.queue, (due_ms, self.serial, action))

    def later(self, ms: int, action: Callable[[], None]) -> None:
        self.at(self.now_ms + ms, action)

    def carry(self, action: Callable[[], None]) -> None:
        """A message of the mesh: lost, doubled or late while there are faults."""
        copies = self.random.choices((0, 1, 2), (0.15, 0.75, 0.1))[0] if self.faulty else 1
        for _ in range(copies):
            self.later(self.random.randrange(1, 300 if self.faulty else 5), action)

    def arm(self, edge: Edge, state: SessionState) -> None:
        if not state.is_ended:
            self.at(max(self.now_ms, state.due_ms(self.now_ms)), edge.tick)

    def run(self) -> None:
        while self.queue and self.now_ms < END_MS:
            due_ms, _, action = heapq.heappop(self.queue)
            self.now_ms = max(self.now_ms, due_ms)
            action()
            self.check()
            if not self.faulty and self.is_done():
                return
        left = [job for job, result in self.jobs.items() if result]
        pending = [list(edge.tracker.requests) for edge in self.edges.values()]
        raise AssertionError(f"not done: {left} {pending} {[len(edge.relay) for edge in self.edges.values()]}")

    def check(self) -> None:
        """Sessions and trackers agree. A session that handled something was checked then."""
        for edge in self.edges.values():
            edge.relay.check()
            for session_id, state in edge.sessions.items():
                assert len(state.outcomes.requests) == edge.tracker.pending(session_id) <= BOUNDS.pending_max * 3
                assert state.outcomes.audio_bytes == edge.tracker.table.bytes_of.get(session_id, 0)

    def is_done(self) -> bool:
        """All that was said has ended, everywhere."""
        if any(self.jobs.values()) or any(len(edge.relay) or edge.tracker.requests for edge in self.edges.values()):
            return False
        return all(self.is_quiet(client) for client in self.clients)

    def is_quiet(self, client: Client) -> bool:
        state = self.state_of(client.session_id)
        if state is None or not client.is_connected:
            return True
        segments = state.intake.segments
        if client.next_seq < client.said or not state.admission.is_clear or len(state.outcomes.delivery.unacked):
            return False
        return segments is None or segments.next_due_ms is None

    def state_of(self, session_id: str) -> SessionState | None:
        return self.edges[self.place[session_id]].sessions.get(session_id)

    # --- clients ----------------------------------------------------------------------------------

    def speak(self) -> None:
        for client in self.clients:
            if client.is_connected:
                client.send()
                if client.resumable and not self.faulty:
                    client.acknowledge(client.session_id, client.last_index)
        for edge in self.edges.values():
            edge.tick()
        self.later(self.random.randrange(50, 400), self.speak)

    def to_client(self, edge: Edge, session_id: str, message: Message | None) -> None:
        client = next(one for one in self.clients if one.session_id == session_id)
        if message is None or not client.is_connected or self.place[session_id] != edge.name:
            return  # the connection to that edge is closed
        connection = client.connection
        client.due_ms = max(client.due_ms, self.now_ms + self.random.randrange(1, 20))  # in order
        self.at(client.due_ms, lambda: client.receive(message, connection))

    def upset(self, client: Client) -> None:
        """Something happens to a client."""
        what = self.random.choices(["lose", "move", "room", "whole", "evict"], [3, 3, 3, 2, 1])[0]
        state = self.state_of(client.session_id)
        if what == "lose" and client.is_connected and (client.resumable or self.random.random() < 0.02):
            self.disconnect(client)
            if client.resumable and self.random.random() < 0.98:
                self.later(self.random.randrange(1, 2_500), lambda: self.connect(client, self.random.choice(EDGES)))
        elif what == "move" and client.resumable and client.is_connected:
            self.connect(client, self.random.choice(EDGES))
        elif what == "room" and self.rooms and state is not None and state.phase is Phase.ATTACHED:
            leaves = state.membership.code and self.random.random() < 0.4
            message = RoomLeave(room_code=CODE) if leaves else RoomJoin(room_code=CODE, preferred_lang=self.any_lang())
            client.to_edge(events.MessageReceived(message, 100))
        elif what == "whole" and not client.resumable and state is not None and state.admission.is_clear:
            self.utter(client, state)  # nothing waits that would get the same index
        elif what == "evict" and state is not None and state.phase is Phase.DETACHED:
            self.edges[self.place[client.session_id]].handle(state, events.Evicted())

    def any_lang(self) -> str:
        return self.random.choice(LANGS)

    def utter(self, client: Client, state: SessionState) -> None:
        message = Utterance(
            session_id=client.session_id,
            utterance_index=state.intake.next_index,
            manual_cut=True,
            src_lang="zh",
            tgt_lang="en",
            audio="AAAA",
            audio_format="pcm16",
            sample_rate=16_000,
            trace_id="t",
        )
        client.to_edge(events.MessageReceived(message, 200))

    def disconnect(self, client: Client) -> None:
        client.is_connected = False
        state = self.state_of(client.session_id)
        if state is not None and state.is_attached:
            self.edges[self.place[client.session_id]].handle(state, events.Detached())

    def connect(self, client: Client, name: str) -> None:
        """Open the session, or resume it there."""
        own, edge, record = client.session_id, self.edges[name], self.records.get(client.session_id)
        client.connection += 1
        client.is_connected, client.due_ms = True, self.now_ms
        if record is None:
            if own in self.ended:
                client.is_connected, client.next_seq = False, client.said
                return  # too late
            self.records[own], self.place[own] = Record(name, 1), name
            self.open(edge, client, Attached("token"), {"next_seq": 0 if client.resumable else None})
            return
        stale = edge.sessions.get(own)
        if stale is not None and stale.session.epoch < record.epoch:
            # A selector's report comes before its reply to a later claim.
            edge.handle(stale, events.OwnerReported(record.owner, record.epoch))
        before, self.place[own] = self.edges[record.owner], name
        record.owner, record.epoch, record.is_away = name, record.epoch + 1, False
        if before is not edge and own in before.sessions:
            taken = events.OwnerReported(name, record.epoch)
            self.later(self.random.randrange(1, 50), lambda: before.notify(own, taken))
        mail = self.read_mail(record)
        attached = Attached("token", True, False, client.last_index, mail)
        state = edge.sessions.get(own)
        if state is not None:
            state.session.epoch = record.epoch
            edge.handle(state, events.ResumeStarted())
            edge.handle(state, attached)
        else:
            where = {"next_index": client.last_index + 1, "next_seq": client.last_seq + 1, "room": record.room}
            self.open(edge, client, attached, where)

    def open(self, edge: Edge, client: Client, event: Attached, where: dict[str, Any]) -> None:
        client.latest.clear()
        session = session_of(client.session_id, resumable=client.resumable)
        session.epoch = self.records[client.session_id].epoch
        state = SessionState(session, "digest", edge.name, BOUNDS, edge.tracker.table, self.now_ms, **where)
        edge.sessions[client.session_id] = state
        edge.tracker.open_session(client.session_id, resumed=bool(event.resumed))
        edge.handle(state, event)

    def read_mail(self, record: Record) -> FoundMail:
        results = tuple(one for _, one in record.mail if isinstance(one, MailedResult))
        posts = tuple(one for _, one in record.mail if not isinstance(one, MailedResult))
        return FoundMail(record.mail[-1][0] if record.mail else "", results, posts)

    def park(self, record: Record, entry: Any) -> None:
        self.serial += 1
        record.mail.append((str(self.serial), entry))

    # --- nodes --------------------------------------------------------------------------------------

    def on_dispatch(self, edge: Edge, frame: Dispatch) -> None:
        """A node gets it, once for each attempt; its result is there after a while, or never."""
        job_id = f"job-00-{frame.request_id}-{frame.attempt}"
        placed = Placed(frame.request_id, frame.attempt, job_id, "n-1", frame.session_id, frame.utterance_index)
        self.carry(lambda: edge.run_tracker(edge.tracker.on_placed(placed, self.now_ms)))
        if job_id in self.jobs:
            return
        self.jobs[job_id] = None
        fate = self.random.random() if self.faulty else 1.0
        if fate < 0.05:
            return  # it is lost
        push = Push(job_id, frame.attempt, "n-1", "edge:n", frame.request_id, frame.session_id, frame.utterance_index)
        fields: dict[str, Any] = {}
        if fate < 0.15:
            fields = {"success": False, "error": JobError(code="NMT_TIMEOUT", message="")}
        elif fate < 0.2:
            fields = {"success": False, "error": JobError(code="NODE_OVERLOADED", message="")}
        elif fate < 0.3:
            fields = {"text_asr": "", "text_translated": ""}
        wait_ms = self.random.randrange(1, 2_000 if self.faulty else 50)
        self.later(wait_ms, lambda: self.jobs.update({job_id: Job(push, result(push, **fields))}))

    def retry(self) -> None:
        for job in [one for one in self.jobs.values() if one is not None]:
            record = self.records.get(job.push.session_id)
            job.tries += 1
            if record is None or job.tries > TRIES_MAX:
                self.jobs[job.push.job_id] = None
            elif record.is_away:
                self.park(record, MailedResult(job.push, job.result))
                self.jobs[job.push.job_id] = None
            else:
                edge = self.edges[record.owner]
                self.carry(
                    lambda edge=edge, job=job: edge.run_tracker(edge.tracker.on_push(job.push, job.result, self.now_ms))
                )
        self.later(RETRY_MS, self.retry)

    def on_ack(self, push: Push, verdict: str, state: SessionState | None) -> None:
        """A result is acknowledged upstream: its client has it, or nobody will."""
        if verdict == "no_session":
            return  # it is retried
        client = next(one for one in self.clients if one.session_id == push.session_id)
        is_over = state is None or state.is_ended
        if verdict == "delivered" and client.resumable and client.session_id not in self.roomed and not is_over:
            self.outcomes += 1
            assert push.utterance_index <= client.last_index, "acknowledged before the client has it"
        self.jobs[push.job_id] = None

    # --- rooms ----------------------------------------------------------------------------------------

    def call_room(self, edge: Edge, state: SessionState, call: RoomCall) -> None:
        if self.faulty and self.random.random() < 0.1:
            self.later(1_000, lambda: edge.handle(state, RoomReplied(call, None)))
            return
        self.later(self.random.randrange(1, 50), lambda: self.on_room_call(edge, state, call))

    def on_room_call(self, edge: Edge, state: SessionState, call: RoomCall) -> None:
        member = call.member or state.session.session_id
        if call.action == "join":
            self.members[member] = call.preferred_lang
            self.roomed.add(member)
        elif member not in self.members:
            edge.handle(state, RoomReplied(call, Failed("", "NOT_IN_ROOM", "")))
            return
        elif call.action == "leave":
            del self.members[member]
        self.version += call.action in ("join", "leave")
        members = [RoomMember(one, "", lang, 0) for one, lang in self.members.items()]
        edge.handle(state, RoomReplied(call, RoomState("", CODE, "room-1", members, self.version)))

    def call_listener(self, edge: Edge, queue: str, message: Any, post: Post) -> None:
        """Retried until it is answered or its time is up."""
        key = (edge.name, message.listener, message.key)
        self.calls[key] = (edge, queue)
        end_ms = self.now_ms + 3_000

        def attempt() -> None:
            if self.calls.get(key) != (edge, queue):
                return
            record = self.records.get(message.listener)
            if self.now_ms >= end_ms:
                self.posted(post, "no_answer")
            elif record is None:
                self.posted(post, "no_session")
            elif record.is_away:
                if message.park:
                    self.park(record, (post, message.body))
                self.posted(post, "parked" if message.park else "away")
            else:
                self.edges[record.owner].notify(message.listener, RelayReceived(post, message.body))
                self.later(300, attempt)

        self.later(self.random.randrange(1, 20), attempt)

    def posted(self, post: Post, verdict: str) -> None:
        call = self.calls.pop((post.edge, post.session_id, post.key), None)
        if call is not None:
            edge, queue = call
            edge.run_relay(edge.relay.on_reply(queue, post.session_id, post.key, verdict))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("resumable", [True, False], ids=["resumable", "plain"])
def test_every_utterance_ends_once_and_in_order(seed: int, resumable: bool) -> None:
    world = World(seed, rooms=False, resumable=resumable)
    world.run()
    assert sum(client.last_index + 1 for client in world.clients) > 5, "something was said"
    assert not resumable or world.outcomes > 3


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("resumable", [True, False], ids=["resumable", "plain"])
def test_members_of_a_room_get_every_utterance_once_and_in_order(seed: int, resumable: bool) -> None:
    world = World(1_000 + seed, rooms=True, resumable=resumable)
    world.run()
    assert world.version > 0 and any(client.heard for client in world.clients)
