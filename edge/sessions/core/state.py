"""SessionState: every decision about one session. Events in, effects out; time is an argument.

Rules for this file. All transitions between phases are in TABLE and its handlers. The parts (intake, admission,
submission, outcomes, membership, relay_inbox, resume) know nothing of phases; they are called from here and share one
Turn.
Nothing here waits: an effect that has a reply gets it as a later event.

Theory of operation. A session begins with session_init, once the mesh has a record that this edge owns it. Messages of
its client are handled one at a time and in order (intake). A message that cannot be handled yet waits in a bounded
queue, and the client is advised to send less (admission). Chunks become utterances, an utterance becomes requests
(submission), a request ends in a result (outcomes), and a result is acknowledged upstream when the client has it.

    OPENING     the mesh knows that the session is ours; no client is connected yet
    ATTACHED    the client is connected
    DETACHED    its connection is lost; it may resume for `session.resume_ms`
    CLOSING     it ends when all its results are sent, or after `session.close_ms`
    ENDED       it is over here, or another edge's (`is_moved`); only late replies arrive

An event that TABLE does not list for a phase is an error: it cannot happen there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Final, get_args

from edge.audio.core.segmenter import Segmenter
from edge.requests.core import request
from edge.rooms.core.events import MOVED, RelayCompleted, RelayReceived, RoomReplied, SignalReplied, read_key
from edge.sessions.core import events
from edge.sessions.core.effects import (
    ClaimRecord,
    CloseSuperseded,
    Count,
    CounterName,
    Effect,
    EndSession,
    ForgetRelays,
    MoveSession,
)
from edge.sessions.core.lifetime import Lifetime
from edge.sessions.core.limits import SessionLimits
from edge.sessions.core.membership import Membership
from edge.sessions.core.relay_inbox import RelayInbox
from edge.sessions.core.results.delivery import Delivery
from edge.sessions.core.results.outcomes import Outcomes
from edge.sessions.core.resume import Resumption
from edge.sessions.core.session import Session
from edge.sessions.core.turn import Turn
from edge.sessions.core.utterances.admission import Admission, Backlog
from edge.sessions.core.utterances.intake import Intake
from edge.sessions.core.utterances.submission import Submission
from mesh.errors import ErrorCode, PeerError
from mesh.frames import RoomState
from mesh.messages.client import Backpressure, SessionCloseAck, SessionIdle
from mesh.words import BackpressureAction, PostVerdict, RoomAction

#: Retry interval of an utterance that waits at a gate.
BLOCKED_LOOK_MS: Final = 100
_IDLE: Final = "Nothing was said for a while. The session stays open: speak, and it goes on."
_NONE: Final[Sequence[Effect]] = ()


class Phase(Enum):
    """The phase of a session."""

    OPENING = auto()
    ATTACHED = auto()
    DETACHED = auto()
    CLOSING = auto()
    ENDED = auto()


#: Read for every message; a member of an enum costs as much as a call.
_CLOSING: Final = Phase.CLOSING


class SessionState:
    """One session at this edge. `token`: the digest of its resume token; `edge`: the identity of this edge.

    `next_index`, `next_seq`: where the client of a session from another edge continues; None: anywhere.
    """

    __slots__ = (
        "_edge",
        "_is_flushed",
        "_limits",
        "_row",
        "_turn",
        "admission",
        "inbox",
        "intake",
        "is_ended",
        "is_moved",
        "lifetime",
        "mail",
        "membership",
        "outcomes",
        "phase",
        "session",
        "submission",
        "token",
    )

    def __init__(
        self,
        session: Session,
        token: str,
        edge: str,
        limits: SessionLimits,
        backlog: Backlog,
        now_ms: int,
        *,
        next_index: int | None = None,
        next_seq: int | None = None,
        room: str = "",
    ) -> None:
        self.session = session
        self.token = token
        self._edge = edge
        self._limits = limits
        turn = self._turn = Turn()
        self.lifetime = Lifetime(limits.lifetime, now_ms)
        self.membership = Membership(turn, session, limits, self.lifetime, room)
        self.outcomes = Outcomes(turn, session, limits, Delivery(turn, session, self.membership), next_index)
        self.admission = Admission(session, limits, self.outcomes, backlog)
        self.submission = Submission(turn, session, limits, self.outcomes, edge)
        parts = (self.admission, self.submission, self.outcomes, self.membership)
        self.intake = Intake(turn, session, limits, *parts, next_index, next_seq)
        self.inbox = RelayInbox(turn, self.membership, self.outcomes.delivery.is_resumable, limits.unacked_max)
        self.mail = Resumption(turn, session, self.intake, self.submission, self.outcomes, self.inbox, self.membership)
        #: It is closing, and its buffered audio was finalized.
        self._is_flushed = False
        #: It has ended here and continues at another edge.
        self.is_moved = False
        self._enter(Phase.OPENING)

    # --- for the actor ------------------------------------------------------------------------------

    def handle(self, event: events.Event, now_ms: int, wall_us: int) -> Sequence[Effect]:
        """Handle an event; run the effects, in order, before the next one."""
        turn = self._turn
        # The time of an event that was decided on earlier in the same batch may be a little older.
        if now_ms > turn.now_ms:
            turn.now_ms = now_ms
        turn.wall_us, turn.wall_ms = wall_us, wall_us // 1_000
        handler = self._row.get(type(event))
        assert handler is not None, f"{type(event).__name__} cannot happen to a session that is {self.phase.name}"
        handler(self, event)
        if not turn.effects:
            return _NONE
        effects = turn.effects.copy()
        turn.effects.clear()
        return effects

    def check_open(self, session_id: str | None, *, may_close: bool = False) -> None:
        """PeerError unless a message is about this session, and the session takes messages (or is being closed)."""
        own = self.session.session_id
        if session_id is not None and session_id != own:
            raise PeerError(ErrorCode.ID_MISMATCH, f"this connection belongs to session {own}")
        if self.is_ended:
            raise PeerError(ErrorCode.SESSION_CLOSED, f"session {own} is closed")
        if self.phase is _CLOSING and not may_close:
            raise PeerError(ErrorCode.SESSION_CLOSED, f"session {own} is being closed")

    def may_resume(self, token: str) -> bool:
        """True if a client with that token gets this session; one that is closing is not resumed."""
        return token == self.token and self.phase is not Phase.CLOSING

    @property
    def is_attached(self) -> bool:
        """True while the client is connected."""
        return self._turn.is_attached

    def due_ms(self, now_ms: int) -> int:
        """When to tick."""
        due_ms = self.lifetime.due_ms(self._turn.is_attached)
        segments = None if self.intake.segments is None else self._listening()
        if segments is not None and (segments_ms := segments.next_due_ms) is not None and segments_ms < due_ms:
            due_ms = segments_ms
        outcomes = self.outcomes
        order_ms = outcomes.next_due_ms if outcomes.language_orders else outcomes.order.next_due_ms
        if order_ms is not None and order_ms < due_ms:
            due_ms = order_ms
        if self.admission.unsent and not self.admission.is_calling:
            due_ms = min(due_ms, now_ms + BLOCKED_LOOK_MS)
        return due_ms

    def _listening(self) -> Segmenter | None:
        """The segmenter while silence is a pause: the client is attached, and no message of it waits."""
        segments = self.intake.segments
        if segments is None or not self._turn.is_attached or self.admission.waiting or self.phase is Phase.CLOSING:
            return None
        return segments

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        #: It is over here.
        self.is_ended = phase is Phase.ENDED
        self._row = _ROWS[phase]

    # --- the client -----------------------------------------------------------------------------------

    def _on_chunk(self, chunk: events.ChunkReceived) -> None:
        self.lifetime.heard_ms = self._turn.now_ms
        self.intake.receive(chunk, len(chunk.audio))

    def _on_message(self, event: events.MessageReceived) -> None:
        self.lifetime.heard_ms = self._turn.now_ms
        self.intake.receive(event.message, event.size)

    def _on_acked(self, event: events.ClientAcked) -> None:
        if event.session_id == self.session.session_id:
            self.outcomes.delivery.acknowledge(event.index)
            self._pump()
        else:
            self.inbox.acknowledge(event.session_id, event.index)
        if self.mail.last and not self.is_ended:
            self.mail.trim()

    def _on_close_requested(self, event: events.CloseRequested) -> None:
        self._close()

    def _close(self) -> None:
        """Finalize the buffered audio, handle waiting messages, and end after the last result or `close_ms`."""
        self._enter(Phase.CLOSING)
        self.lifetime.closing(self._limits.close_ms, self._turn.now_ms)
        self._pump()

    def _pump(self) -> None:
        """Handle waiting messages until a gate blocks them; end a session that is over."""
        outcomes, admission = self.outcomes, self.admission
        if admission.unsent or admission.waiting:
            self.intake.pump()
        if outcomes.delivery.is_resumable and outcomes.delivery.unacked.bytes > 2 * self._limits.unacked_bytes_max:
            reason = "the client does not acknowledge its results"
            self._turn.send_error(PeerError(ErrorCode.SESSION_CLOSED, reason))
            self._end(reason)
        elif self.phase is _CLOSING:
            if not admission.waiting and not self._is_flushed:
                self._is_flushed = True
                self.intake.flush()
            if (
                self._is_flushed
                and self.intake.is_empty
                and not (outcomes.requests or outcomes.delivery.open_languages)
            ):
                self._finish()

    def _finish(self) -> None:
        self._turn.send(SessionCloseAck(session_id=self.session.session_id))
        self._end("closed")

    # --- its connection -------------------------------------------------------------------------------

    def _on_opened(self, event: events.Attached) -> None:
        """The first connection, of a new session or of one that was at another edge."""
        self._attach()
        self.mail.open(event)
        self._pump()

    def _on_reattached(self, event: events.Attached) -> None:
        """Another connection of the client, which has every result up to `last_index`."""
        self.outcomes.delivery.acknowledge(event.last_index)
        self._attach()
        self.mail.reopen(event)
        self._pump()

    def _attach(self) -> None:
        now_ms = self._turn.now_ms
        self._turn.is_attached = True
        if self.phase is not Phase.CLOSING:
            self._enter(Phase.ATTACHED)
        self.admission.reattached()
        self.lifetime.attached(now_ms)
        if self.intake.segments is not None:
            self.intake.segments.on_resumed(now_ms)

    def _on_detached(self, event: events.Detached) -> None:
        self._turn.is_attached = False
        if self.outcomes.delivery.is_resumable:
            self._enter(Phase.DETACHED)
            self._wait_for_client()
        elif self.membership.code:
            self._close()  # listeners must get its last utterance
        else:
            self._end("connection lost")

    def _wait_for_client(self) -> None:
        self.lifetime.detached(self._turn.now_ms)
        self.membership.renew()

    def _on_detached_closing(self, event: events.Detached) -> None:
        self._turn.is_attached = False

    def _on_resume_started(self, event: events.ResumeStarted) -> None:
        self.lifetime.attached(self._turn.now_ms)  # no resume timeout while its mail is read

    def _on_resume_failed(self, event: events.ResumeFailed) -> None:
        self._wait_for_client()

    # --- ownership and end ----------------------------------------------------------------------------

    def _on_owner(self, event: events.OwnerReported) -> None:
        session = self.session
        if not event.edge:
            self._turn.do(ClaimRecord())
        elif event.edge == self._edge:
            session.epoch = max(session.epoch, event.epoch)
        elif event.epoch > session.epoch:
            self._turn.do(CloseSuperseded())
            self._move(event.edge)

    def _on_claimed(self, event: events.RecordClaimed) -> None:
        self.session.epoch = max(self.session.epoch, event.epoch)
        self.membership.renew()

    def _on_evicted(self, event: events.Evicted) -> None:
        self._move("")

    def _on_replaced(self, event: events.Replaced) -> None:
        self._end(event.reason)

    def _end(self, reason: str) -> None:
        """The session is over: its results are acknowledged, its requests cancelled."""
        self.outcomes.delivery.end()
        self._leave(PostVerdict.NO_SESSION)
        self.membership.depart()
        self._turn.do(EndSession(reason, len(self.outcomes.requests)))

    def _move(self, owner: str) -> None:
        """The session continues at another edge: its next owner gets the unacked results."""
        self.is_moved = True
        self._leave(MOVED)
        self._turn.do(MoveSession(owner))

    def _leave(self, verdict: str) -> None:
        self.inbox.close(verdict)
        self._turn.do(ForgetRelays())
        self._turn.is_attached = False
        self.session.closed = True
        self._enter(Phase.ENDED)

    # --- requests -------------------------------------------------------------------------------------

    def _on_result(self, event: request.ResultArrived) -> None:
        self.outcomes.on_result(event)
        self._pump()

    def _on_rejected(self, event: request.ResultRejected) -> None:
        self.outcomes.delivery.on_rejected(event)

    def _on_failed(self, event: request.RequestFailed) -> None:
        self.outcomes.on_failed(event)
        self._pump()

    def _on_progress(self, event: request.RequestProgressed) -> None:
        self.outcomes.on_progress(event)

    def _on_throttled(self, event: request.MeshThrottled) -> None:
        if self.session.may_slow_down(self._turn.now_ms):
            self._turn.do(Count(CounterName.BACKPRESSURE, BackpressureAction.SLOW_DOWN))
            self._turn.send(Backpressure(action=BackpressureAction.SLOW_DOWN, resume_after_ms=event.resume_after_ms))

    # --- rooms ----------------------------------------------------------------------------------------

    def _on_room_reply(self, event: RoomReplied) -> None:
        call, reply = event.call, event.reply
        if call.member:
            if isinstance(reply, RoomState):
                self.membership.announce(reply)
        elif call.action == RoomAction.LOOK:
            self.membership.on_looked(call, reply)
        elif self.intake.on_room_reply(event):
            self._pump()

    def _on_late_room_reply(self, event: RoomReplied) -> None:
        self.membership.on_late_reply(event.call, event.reply, is_moved=self.is_moved)

    def _on_signal_reply(self, event: SignalReplied) -> None:
        self.membership.on_signal_reply(event)

    def _on_relay(self, event: RelayReceived) -> None:
        self.inbox.receive(event)

    def _on_relayed(self, event: RelayCompleted) -> None:
        if event.verdict == PostVerdict.NO_SESSION:
            self.membership.remove(event.message.listener)
        self.outcomes.delivery.on_relayed(event, read_key(event.message.key)[1])
        self._pump()

    # --- time -----------------------------------------------------------------------------------------

    def _on_tick(self, event: events.Ticked) -> None:
        now_ms, lifetime = self._turn.now_ms, self.lifetime
        if lifetime.detached_until_ms and now_ms >= lifetime.detached_until_ms:
            self._end("the client did not come back")
            return
        if lifetime.closing_until_ms and now_ms >= lifetime.closing_until_ms:
            self._finish()
            return
        segments = self._listening()
        if segments is not None:
            self.intake.take(segments.tick(now_ms))
        self.outcomes.tick()
        if now_ms >= lifetime.renew_ms:
            self.membership.renew()
        idle_ms = lifetime.idle_for_ms(now_ms) if self._turn.is_attached else 0
        if idle_ms:
            self.outcomes.groups.close()
            self._turn.send(SessionIdle(session_id=self.session.session_id, idle_ms=idle_ms, message=_IDLE))
        self._pump()

    def _ignore(self, event: events.Event) -> None:
        pass

    def check(self) -> None:
        """Assert the invariants; tests call it after each event."""
        assert not self._turn.effects
        self.admission.check()
        self.outcomes.check()
        self.inbox.check()
        assert self.is_attached == (self.phase is Phase.ATTACHED) or self.phase is Phase.CLOSING
        assert (self.lifetime.closing_until_ms > 0) == (self.phase is Phase.CLOSING) or self.is_ended
        assert self.session.closed == self.is_ended


_Handler = Callable[[SessionState, Any], None]
_S, _P = SessionState, Phase


def _live(handler: _Handler) -> dict[Phase, _Handler]:
    """The same in every phase between OPENING and ENDED."""
    return dict.fromkeys((_P.ATTACHED, _P.DETACHED, _P.CLOSING), handler)


#: Event -> phase -> handler.
TABLE: Final[dict[type, dict[Phase, _Handler]]] = {
    # The client. A message for a session that is closing or over is refused before (check_open); an acknowledgement
    # is not, because it may cross the end.
    events.ChunkReceived: {_P.ATTACHED: _S._on_chunk},
    events.MessageReceived: {_P.ATTACHED: _S._on_message},
    events.ClientAcked: {_P.ATTACHED: _S._on_acked, _P.CLOSING: _S._on_acked, _P.ENDED: _S._ignore},
    events.CloseRequested: {_P.ATTACHED: _S._on_close_requested},
    # Its connection.
    events.Attached: {_P.OPENING: _S._on_opened, **_live(_S._on_reattached)},
    events.Detached: {_P.ATTACHED: _S._on_detached, _P.CLOSING: _S._on_detached_closing},
    events.ResumeStarted: _live(_S._on_resume_started),
    events.ResumeFailed: {**_live(_S._ignore), _P.DETACHED: _S._on_resume_failed, _P.ENDED: _S._ignore},
    # Ownership.
    events.OwnerReported: _live(_S._on_owner),
    events.RecordClaimed: {**_live(_S._on_claimed), _P.ENDED: _S._ignore},
    events.Evicted: {_P.DETACHED: _S._on_evicted},
    events.Replaced: _live(_S._on_replaced),
    # Requests.
    request.ResultArrived: _live(_S._on_result),
    request.ResultRejected: _live(_S._on_rejected),
    request.RequestFailed: _live(_S._on_failed),
    request.RequestProgressed: _live(_S._on_progress),
    request.MeshThrottled: _live(_S._on_throttled),
    # Rooms. Replies may come after the end.
    RoomReplied: {**_live(_S._on_room_reply), _P.ENDED: _S._on_late_room_reply},
    SignalReplied: {**_live(_S._on_signal_reply), _P.ENDED: _S._ignore},
    RelayReceived: _live(_S._on_relay),
    RelayCompleted: _live(_S._on_relayed),
    # Time.
    events.Ticked: _live(_S._on_tick),
}
assert set(TABLE) == set(get_args(events.Event)), "every event has its row"

#: The same by phase: a session keeps the row of its own.
_ROWS: Final = {phase: {kind: row[phase] for kind, row in TABLE.items() if phase in row} for phase in Phase}
