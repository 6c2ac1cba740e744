"""Actor: one session at this edge. Gives events and time to its core, and runs the effects. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, get_args

from edge.link.core.rpc import Reply
from edge.metrics import STAGES_AT_EDGE
from edge.requests.core.request import AckResult
from edge.sessions.context import SessionContext
from edge.sessions.core import effects
from edge.sessions.core.events import Attached, Event, RecordClaimed
from edge.sessions.core.state import SessionState
from edge.sessions.ownership import claim_frame
from edge.transport.websocket import Socket
from mesh.clock import now_ms, wall_us
from mesh.errors import ErrorCode, PeerError
from mesh.frames import MailTrim, SessionClaimed, SessionNote
from mesh.log import get_logger
from mesh.messages.client import TranslationResult

log = get_logger()


class ClientSocket(Socket):
    """One connection on /ws/session."""

    #: Its session; also one that has ended: late messages get SESSION_CLOSED.
    actor: Actor | None = None

    def own(self) -> Actor:
        """The session of this connection; PeerError if there is none."""
        if self.actor is None:
            raise PeerError(ErrorCode.INVALID_SESSION, "there is no session on this connection yet")
        return self.actor


class Actor:
    """One session. `socket` is the connection of its client, None while there is none."""

    __slots__ = ("__weakref__", "_context", "armed_ms", "socket", "state")

    def __init__(self, state: SessionState, context: SessionContext) -> None:
        self.state = state
        self.socket: ClientSocket | None = None
        #: When the session is ticked; 0 = it has no timer.
        self.armed_ms = 0
        self._context = context

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.state.session.session_id

    @property
    def epoch(self) -> int:
        """With which this edge claimed the session."""
        return self.state.session.epoch

    @property
    def is_attached(self) -> bool:
        """True while its client is connected."""
        return self.state.is_attached

    def attach(self, socket: ClientSocket, event: Attached) -> None:
        """The session's client is at that connection now."""
        older, self.socket, socket.actor = self.socket, socket, self
        if older is not None and older is not socket:
            self._context.registry.close_superseded(older)
        self.handle(event)

    def handle(self, event: Event, now: int | None = None) -> None:
        """Pass an event to the core, and run its effects. `now`: the time, if the caller has it."""
        if now is None:
            now = now_ms()
        wanted = self.state.handle(event, now, wall_us())
        for effect in wanted:
            try:
                _RUNNERS[type(effect)](self, effect)
            except Exception:
                # A failure costs one effect; the others are run.
                log.exception("effect_failed", session_id=self.session_id, effect=type(effect).__name__)
        self.arm(now)

    def arm(self, now: int) -> None:
        """Set the session's timer. A due time that moved later is found when the old one comes."""
        if self.state.is_ended:
            return
        due_ms = self.state.due_ms(now)
        if not self.armed_ms or due_ms < self.armed_ms:
            self.armed_ms = due_ms
            self._context.registry.arm(self, due_ms)

    # --- the client -----------------------------------------------------------------------------------

    def _send(self, effect: effects.SendToClient) -> None:
        if self.socket is not None:
            self.socket.send_all(effect.messages)

    def _send_encoded(self, effect: effects.SendEncoded) -> None:
        if self.socket is None:
            return
        if effect.audio is None:
            self.socket.send_encoded(effect.message_type, effect.body)
        else:
            self.socket.send_with_audio(TranslationResult, effect.body, effect.audio)

    def _send_error(self, effect: effects.SendError) -> None:
        if self.socket is not None:
            self.socket.send_error(effect.error)

    def _close_superseded(self, effect: effects.CloseSuperseded) -> None:
        if self.socket is not None:
            self._context.registry.close_superseded(self.socket)

    # --- requests -------------------------------------------------------------------------------------

    def _submit(self, effect: effects.Submit) -> None:
        self._context.metrics.utterances_total.value += 1
        requests = self._context.requests
        wanted = requests.tracker.submit(
            effect.dispatch, effect.work, effect.audio, effect.deadline_ms, effect.created_ms
        )
        requests.run(wanted, effect.created_ms)

    def _cancel_request(self, effect: effects.CancelRequest) -> None:
        self._context.requests.cancel(effect.request_id, effect.reason)

    def _take_result(self, effect: effects.TakeResult) -> None:
        self._context.requests.take(effect.push, effect.result)

    def _ack_result(self, effect: AckResult) -> None:
        self._context.requests.acknowledge(effect)

    # --- rooms ----------------------------------------------------------------------------------------

    def _call_room(self, effect: effects.CallRoom) -> None:
        self._context.rooms.call(self, effect.call)

    def _send_signal(self, effect: effects.SendSignal) -> None:
        self._context.rooms.signal(self, effect.code, effect.target, effect.body)

    def _expect_relay(self, effect: effects.ExpectRelay) -> None:
        self._context.relay.sender.expect(self.session_id, effect.listener, effect.key)

    def _send_relay(self, effect: effects.SendRelay) -> None:
        self._context.relay.run(self._context.relay.sender.send(effect.queue, effect.message))

    def _reply_relay(self, effect: effects.ReplyRelay) -> None:
        self._context.relay.reply(effect.post, effect.queue, effect.verdict)

    def _forget_relays(self, effect: effects.ForgetRelays) -> None:
        self._context.relay.run(self._context.relay.sender.forget(self.session_id))

    # --- the session's record -------------------------------------------------------------------------

    def _renew_record(self, effect: effects.RenewRecord) -> None:
        link, session = self._context.link, self.state.session
        note = SessionNote(self.session_id, link.identity, session.epoch, effect.is_detached, effect.room)
        link.to_session_cell(self.session_id, note)

    def _claim_record(self, effect: effects.ClaimRecord) -> None:
        link, state = self._context.link, self.state

        def on_reply(reply: Reply | None) -> None:
            if isinstance(reply, SessionClaimed):
                self.handle(RecordClaimed(reply.epoch))

        link.ask(
            lambda ref: claim_frame(ref, link.identity, state.session, state.token, False), self.session_id, on_reply
        )

    def _trim_mail(self, effect: effects.TrimMail) -> None:
        link, session = self._context.link, self.state.session
        link.to_session_cell(self.session_id, MailTrim(self.session_id, link.identity, session.epoch, effect.last))

    def _end_session(self, effect: effects.EndSession) -> None:
        self._context.registry.end(self, effect.reason, effect.pending)

    def _move_session(self, effect: effects.MoveSession) -> None:
        self._context.registry.move(self, effect.owner)

    # --- observation ----------------------------------------------------------------------------------

    def _count(self, effect: effects.Count) -> None:
        counter = getattr(self._context.metrics, effect.counter.value)
        (counter.labels(effect.label) if effect.label else counter).inc(effect.amount)

    def _observe_stages(self, effect: effects.ObserveStages) -> None:
        self._context.metrics.stages.observe_all(STAGES_AT_EDGE, effect.stages)

    def _log(self, effect: effects.Log) -> None:
        write = log.warning if effect.is_warning else log.info
        write(effect.event, session_id=self.session_id, **effect.fields)

    def _report_bug(self, effect: effects.ReportBug) -> None:
        log.error("event_failed", session_id=self.session_id, type=effect.event, exc_info=effect.error)


_RUNNERS: Final[dict[type, Callable[[Actor, Any], None]]] = {
    effects.SendToClient: Actor._send,
    effects.SendEncoded: Actor._send_encoded,
    effects.SendError: Actor._send_error,
    effects.CloseSuperseded: Actor._close_superseded,
    effects.Submit: Actor._submit,
    effects.CancelRequest: Actor._cancel_request,
    effects.TakeResult: Actor._take_result,
    AckResult: Actor._ack_result,
    effects.CallRoom: Actor._call_room,
    effects.SendSignal: Actor._send_signal,
    effects.ExpectRelay: Actor._expect_relay,
    effects.SendRelay: Actor._send_relay,
    effects.ReplyRelay: Actor._reply_relay,
    effects.ForgetRelays: Actor._forget_relays,
    effects.RenewRecord: Actor._renew_record,
    effects.ClaimRecord: Actor._claim_record,
    effects.TrimMail: Actor._trim_mail,
    effects.EndSession: Actor._end_session,
    effects.MoveSession: Actor._move_session,
    effects.Count: Actor._count,
    effects.ObserveStages: Actor._observe_stages,
    effects.Log: Actor._log,
    effects.ReportBug: Actor._report_bug,
}
assert set(_RUNNERS) == set(get_args(effects.Effect)), "every effect has a runner"
