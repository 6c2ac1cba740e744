"""One session without sockets: the real core beside the real request tracker, a clock that stands still, no mesh."""

from __future__ import annotations

import base64
from typing import Any, TypeVar

import msgspec

from edge.audio.core import segment
from edge.audio.core.reorder import Chunk
from edge.requests.core.request import (
    AckResult,
    Deliver,
    Fail,
    Reject,
    RequestFailed,
    ResultArrived,
    ResultRejected,
    SendDispatch,
)
from edge.requests.core.request import Effect as TrackerEffect
from edge.requests.core.retry import RetryLimits
from edge.requests.core.tracker import RequestTracker
from edge.rooms.core.events import RelayCompleted, RelayReceived, RoomCall, RoomReplied, numbered_key
from edge.rooms.core.relay_queue import RelayMessage
from edge.sessions.core import effects, events, lifetime
from edge.sessions.core.limits import SessionLimits
from edge.sessions.core.results import result_order
from edge.sessions.core.session import Session
from edge.sessions.core.state import Phase, SessionState
from edge.sessions.core.utterances import groups
from mesh.config.sessions import SessionConfig, SpeechConfig
from mesh.frames import Dispatch, Failed, Post, Push, RoomMember, RoomState
from mesh.messages.base import Message, error_of
from mesh.messages.client import FROM_SERVER, RoomJoin, SessionInit, Utterance
from mesh.messages.node import JobResult

ID = "s-1"
EDGE = "edge:a"
#: 100 ms of PCM16 at 16 kHz.
PIECE = bytes(3_200)
#: The wall clock is so far from the monotonic one.
WALL_MS = 1_700_000_000_000

M = TypeVar("M")

INIT = SessionInit(client_version="1", platform="web", src_lang="zh", tgt_lang="en", audio_formats=["pcm16"])
TRACKER = RetryLimits(
    resend_ms=1_000,
    resend_ms_max=5_000,
    resend_early_ms_max=2_000,
    attempts_max=3,
    ended_kept_max=1_000,
    ended_kept_ms=60_000,
    pending_ms=10_000,
    dispatched_ms=60_000,
)


def limits(**changed: Any) -> SessionLimits:
    """Bounds as by default, with some changed; `speech` and `session` are sections of the configuration."""
    speech = SpeechConfig(**changed.pop("speech", {}))
    session = SessionConfig(**changed.pop("session", {}))
    made = SessionLimits(
        order=result_order.ResultOrderLimits.of(session),
        groups=groups.GroupLimits.of(speech),
        segments=segment.SegmentLimits.of(speech),
        lifetime=lifetime.LifetimeLimits.of(speech, session),
        inbound_max=speech.events_max,
        inbound_bytes_max=speech.events_bytes_max,
        pending_max=16,
        audio_per_session_bytes_max=1 << 20,
        audio_bytes_max=1 << 22,
        unacked_max=session.unacked_max,
        unacked_bytes_max=session.unacked_bytes_max,
        signals_max=4,
        signal_bytes_max=1_000,
        close_ms=session.close_ms,
        deadline_ms=30_000,
    )
    return made._replace(**changed)


def session_of(session_id: str = ID, *, resumable: bool = False, **init: Any) -> Session:
    """A session of a client that streams PCM16."""
    return Session(session_id, msgspec.structs.replace(INIT, resumable=resumable, **init), "trace", 1_000)


def member(session_id: str, lang: str = "en") -> RoomMember:
    return RoomMember(session_id, "", lang, 0, {})


def room_state(*members: RoomMember, version: int = 1, code: str = "123456") -> RoomState:
    return RoomState(ref="", room_code=code, room_id="room-1", members=list(members), version=version)


class Case:
    """A session and what became of it."""

    def __init__(
        self,
        *,
        resumable: bool = False,
        init: dict[str, Any] | None = None,
        bounds: SessionLimits | None = None,
        tracker: RequestTracker | None = None,
        attached: bool = True,
        session_id: str = ID,
        edge: str = EDGE,
        now_ms: int = 1_000,
        **place: Any,
    ) -> None:
        self.now_ms = now_ms
        self.tracker = tracker or RequestTracker(TRACKER)
        self.tracker.open_session(session_id, resumed=bool(place))
        session = session_of(session_id, resumable=resumable, **(init or {}))
        if resumable:
            place.setdefault("next_seq", 0)
        self.state = SessionState(session, "digest", edge, bounds or limits(), self.tracker.table, now_ms, **place)
        #: Everything that was decided, and parts of it.
        self.done: list[effects.Effect] = []
        self.sent: list[Message] = []
        self.submitted: list[Dispatch] = []
        self.acks: list[tuple[str, str]] = []
        self.calls: list[RoomCall] = []
        self.relays: list[RelayMessage] = []
        if attached:
            self.handle(events.Attached("token"))

    # --- events -----------------------------------------------------------------------------------

    def handle(self, event: events.Event) -> list[effects.Effect]:
        """What follows from an event, with all that its effects give rise to."""
        wanted = list(self.state.handle(event, self.now_ms, (WALL_MS + self.now_ms) * 1_000))
        self.state.check()
        for effect in wanted:
            self.done.append(effect)
            self._run(effect)
        self.state.check()
        return wanted

    def chunk(self, seq: int, audio: bytes = PIECE, *, final: bool = False, client_ms: int | None = None) -> None:
        self.handle(Chunk(seq, audio, final, client_ms))

    def utter(self, index: int, sound: bytes = PIECE, **fields: Any) -> None:
        text = base64.b64encode(sound).decode()
        message = Utterance(
            **{
                "session_id": self.id,
                "utterance_index": index,
                "manual_cut": True,
                "src_lang": "zh",
                "tgt_lang": "en",
                "audio": text,
                "audio_format": "pcm16",
                "sample_rate": 16_000,
                "trace_id": f"t-{index}",
                **fields,
            }
        )
        self.say(message, len(text))

    def say(self, message: Message, size: int = 100) -> None:
        self.handle(events.MessageReceived(message, size))

    def ack(self, index: int, speaker: str = "") -> None:
        self.handle(events.ClientAcked(speaker or self.id, index))

    def answer(self, index: int, *, lang: str = "en", attempt: int = 1, **fields: Any) -> Push:
        """A node's result for the latest request of that index; the mesh pushes it."""
        request = next(one for one in reversed(self.submitted) if (one.utterance_index, one.tgt_lang) == (index, lang))
        push = self.push_for(request, attempt)
        self.push(push, **fields)
        return push

    def push_for(self, request: Dispatch, attempt: int = 1, **fields: Any) -> Push:
        job = f"job-00-{request.utterance_index}-{request.tgt_lang}"
        index = request.utterance_index
        return Push(job, attempt, "n-1", "edge:b", request.request_id, request.session_id, index, **fields)

    def push(self, push: Push, **fields: Any) -> None:
        self._run_tracker(self.tracker.on_push(push, result(push, **fields), self.now_ms))

    def room_reply(self, reply: RoomState | Failed | None) -> None:
        """The oldest call gets its reply."""
        self.handle(RoomReplied(self.calls.pop(0), reply))

    def enter(self, *others: RoomMember, code: str = "123456") -> None:
        """Be in a room with these."""
        self.say(RoomJoin(room_code=code))
        self.room_reply(room_state(member(self.id, ""), *others, code=code))
        self.relays.clear()  # lists of members

    def relayed(self, verdict: str = "told") -> None:
        """The oldest message to another session has its outcome."""
        self.handle(RelayCompleted(self.relays.pop(0), verdict))

    def hear(self, speaker: str, index: int, *, edge: str = "edge:c", queue: str = "", ref: str = "1") -> None:
        """A result of another member."""
        post = Post(ref, edge, self.id, "result", numbered_key(speaker, index), True, "123456")
        self.handle(RelayReceived(post, b'{"type": "x"}', queue))

    def detach(self) -> None:
        self.handle(events.Detached())

    def attach(self, last_index: int = -1, **fields: Any) -> None:
        self.handle(events.Attached("token", True, False, last_index, **fields))

    def wait(self, ms: int) -> None:
        """Time passes; every due time is kept."""
        end_ms = self.now_ms + ms
        while not self.state.is_ended:
            due_ms = self.state.due_ms(self.now_ms)
            if due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.handle(events.Ticked())
        self.now_ms = max(self.now_ms, end_ms)

    # --- what can be seen -------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.state.session.session_id

    @property
    def phase(self) -> Phase:
        return self.state.phase

    def of(self, kind: type[M]) -> list[M]:
        """The effects of one kind."""
        return [one for one in self.done if isinstance(one, kind)]

    def received(self, kind: type[M]) -> list[M]:
        """The messages of one kind that the client got."""
        return [one for one in self.sent if isinstance(one, kind)]

    @property
    def codes(self) -> list[str]:
        """The codes of all errors that the client got."""
        return [one.code for one in self.sent if type(one).__name__ in ("ErrorMessage", "RoomErrorMessage")]  # type: ignore[attr-defined]

    @property
    def indices(self) -> list[int]:
        """Of all results, missing ones included, in the order in which the client got them."""
        kinds = ("TranslationResult", "MissingResult")
        return [one.utterance_index for one in self.sent if type(one).__name__ in kinds]  # type: ignore[attr-defined]

    # --- effects ----------------------------------------------------------------------------------

    def _run(self, effect: effects.Effect) -> None:
        if isinstance(effect, effects.SendToClient):
            self.sent += effect.messages
        elif isinstance(effect, effects.SendError):
            self.sent.append(error_of(effect.error))
        elif isinstance(effect, effects.SendEncoded) and effect.body != b'{"type": "x"}':
            self.sent.append(FROM_SERVER.decode(effect.body))
        elif isinstance(effect, AckResult):
            self.acks.append((effect.push.job_id, effect.verdict))
        elif isinstance(effect, effects.Submit):
            self.submitted.append(effect.dispatch)
            self._run_tracker(
                self.tracker.submit(effect.dispatch, effect.work, effect.audio, effect.deadline_ms, effect.created_ms)
            )
        elif isinstance(effect, effects.CancelRequest):
            self._run_tracker(self.tracker.cancel(effect.request_id, effect.reason, self.now_ms))
        elif isinstance(effect, effects.TakeResult):
            self._run_tracker(self.tracker.on_push(effect.push, effect.result, self.now_ms))
        elif isinstance(effect, effects.CallRoom):
            self.calls.append(effect.call)
        elif isinstance(effect, effects.SendRelay):
            self.relays.append(effect.message)
        elif isinstance(effect, effects.EndSession):
            self._run_tracker(self.tracker.close_session(self.id, self.now_ms))
        elif isinstance(effect, effects.MoveSession):
            self._run_tracker(self.tracker.leave_session(self.id, self.now_ms))

    def _run_tracker(self, wanted: list[TrackerEffect]) -> None:
        for effect in wanted:
            if isinstance(effect, Deliver):
                self.handle(ResultArrived(effect.request, effect.push, effect.result))
            elif isinstance(effect, Fail):
                self.handle(RequestFailed(effect.request, effect.code, effect.message, effect.details))
            elif isinstance(effect, Reject) and not self.state.is_ended:
                self.handle(ResultRejected(effect.push, effect.verdict))
            elif isinstance(effect, AckResult | Reject):
                self.acks.append((effect.push.job_id, effect.verdict))
            elif isinstance(effect, SendDispatch):
                effect.attempt.broker = "broker"


def result(push: Push, **fields: Any) -> JobResult:
    """A node's good result, with some fields changed."""
    given: dict[str, Any] = {
        "job_id": push.job_id,
        "attempt_id": push.attempt,
        "node_id": push.node_id,
        "session_id": push.session_id,
        "utterance_index": push.utterance_index,
        "success": True,
        "trace_id": "t",
        "text_asr": "ni hao",
        "text_translated": "hello",
        **fields,
    }
    return JobResult(**{name: given[name] for name in JobResult.__struct_fields__ if name in given})
