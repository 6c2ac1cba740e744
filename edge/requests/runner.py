"""Requests: the rim of custody. Takes the mesh's answers, carries out what the custody core decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, get_args

from edge.core.convert import is_silence
from edge.core.recent_keys import RecentKeys
from edge.link.link import EdgeLink, early_ms_max
from edge.metrics import EdgeMetrics
from edge.requests.core import request as effects
from edge.requests.core.request import Request
from edge.requests.core.tracker import RequestTracker, RetryLimits
from edge.sessions.actor import Actor
from edge.sessions.core import client_messages
from mesh.clock import now_ms
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Dispatch, Frame, Notice, Placed, Push, Refused, ResultAck, Undone, Waiting
from mesh.link.link import Received
from mesh.log import get_logger
from mesh.messages.base import Message
from mesh.messages.client import Backpressure
from mesh.messages.node import JobResult, NodeAsrPartial, decode_from_node, decode_job_result
from mesh.words import BackpressureAction, NoticeEvent, ResultOutcome, ResultVerdict

_OUTCOMES: Final = {
    ErrorCode.JOB_TIMEOUT: ResultOutcome.TIMEOUT,
    ErrorCode.NO_AVAILABLE_NODE: ResultOutcome.NO_NODE,
}

log = get_logger()


class Listener(Protocol):
    """Hears how requests end."""

    def came(self, actor: Actor, request: Request, push: Push, result: JobResult | None) -> None:
        """With a result, or a node's failure; None: it could not be read."""

    def failed(self, actor: Actor, request: Request, code: ErrorCode, message: str, details: dict[str, object]) -> None:
        """Without one."""


class RequestRunner:
    """All requests of this edge that wait for a result. `actor_of` finds a session that is here."""

    #: Set before the first request is made.
    listener: Listener

    def __init__(
        self, config: Config, link: EdgeLink, metrics: EdgeMetrics, actor_of: Callable[[str], Actor | None]
    ) -> None:
        self.custody = RequestTracker(_limits_of(config))
        #: Sessions that moved on lately, and to whom.
        self._moved = RecentKeys(config.edge.ended_kept_max, config.edge.ended_kept_ms)
        self._link = link
        self._metrics = metrics
        self._actor_of = actor_of
        self._run_effect: dict[type, Callable[[Any], None]] = {
            effects.SendDispatch: self._send_dispatch,
            effects.SendCancel: self._send_cancel,
            effects.TellPlaced: self._tell_placed,
            effects.Deliver: self._deliver,
            effects.Fail: self._fail,
            effects.AckResult: self._ack_result,
            effects.CountHedge: self._count_hedge,
            effects.TellBackpressure: self._tell_backpressure,
        }
        assert set(self._run_effect) == set(get_args(effects.Effect)), "every effect is carried out"
        handlers: dict[type[Frame], Callable[[Received], None]] = {
            Placed: self._on_placed,
            Refused: self._on_refused,
            Waiting: self._on_waiting,
            Undone: self._on_undone,
            Push: self._on_push,
            Notice: self._on_notice,
        }
        link.handle(handlers, {Dispatch: self._on_dispatch_back})

    def counts(self) -> dict[str, int]:
        """What became of the utterances accepted here; `accepted` is the sum of the others."""
        return self.custody.retained.counts()

    def tick(self, now: int) -> None:
        """Do what is due."""
        self.run(self.custody.tick(now))
        self._moved.forget(now)

    def leave(self, session_id: str, owner: str) -> None:
        """The session is another edge's now (""= nobody's); what still comes for it here is passed on."""
        now = now_ms()
        self.run(self.custody.leave_session(session_id, now))
        if owner:
            self._moved.add(session_id, now, owner)

    def returned(self, session_id: str) -> None:
        """The session is ours again: nothing of it is passed on any more, also when it has ended."""
        self._moved.drop(session_id)

    # --- frames -------------------------------------------------------------------------------

    def _on_placed(self, message: Received) -> None:
        assert isinstance(message.frame, Placed)
        self.run(self.custody.on_placed(message.frame, now_ms()))

    def _on_refused(self, message: Received) -> None:
        assert isinstance(message.frame, Refused)
        self.run(self.custody.on_refused(message.frame, now_ms()))

    def _on_waiting(self, message: Received) -> None:
        assert isinstance(message.frame, Waiting)
        self.run(self.custody.on_waiting(message.frame, now_ms()))

    def _on_undone(self, message: Received) -> None:
        assert isinstance(message.frame, Undone)
        self.run(self.custody.on_undone(message.frame, now_ms()))

    def _on_push(self, message: Received) -> None:
        assert isinstance(message.frame, Push)
        owner = self._moved.how(message.frame.session_id)
        if owner is not None and message.frame.session_id not in self.custody.retained:
            self._link.to_peer(owner, message.frame, *message.payload)
            return
        actor = self._actor_of(message.frame.session_id)
        if actor is not None and actor.acks.holds(message.frame):
            return  # its keeper asks again, and hears when the client has it
        self.take(message.frame, read_result(message.frame, message.payload[0]))

    def take(self, push: Push, result: JobResult | None) -> None:
        """A result came, by the mesh or in the mail; None: it cannot be read."""
        self.run(self.custody.on_push(push, result, now_ms()))

    def _on_notice(self, message: Received) -> None:
        notice = message.frame
        assert isinstance(notice, Notice)
        request = self.custody.requests.get(notice.request_id)
        # Of two attempts at once the client sees one.
        if request is None or request.current.number != notice.attempt:
            return
        now = now_ms()
        if notice.event == NoticeEvent.ACCEPTED:
            self._tell(request, [client_messages.ui_event(request, "NODE_ACCEPTED", now, notice.job_id)])
        elif notice.event == NoticeEvent.ASR_PARTIAL:
            partial = decode_from_node(message.payload[0])
            assert isinstance(partial, NodeAsrPartial)
            self._tell(request, client_messages.for_partial(request, partial, now))

    def _on_dispatch_back(self, frame: Frame, retry_after_ms: int) -> None:
        assert isinstance(frame, Dispatch)
        if retry_after_ms:
            self.run(self.custody.on_busy(frame, retry_after_ms, now_ms()))
        else:
            self.run(self.custody.on_bounce(frame, now_ms()))

    # --- effects ------------------------------------------------------------------------------

    def run(self, wanted: Iterable[effects.Effect]) -> None:
        """Carry out what the custody core decided."""
        for effect in wanted:
            try:
                self._run_effect[type(effect)](effect)
            except Exception:
                # Whatever went wrong with one request, the others go on.
                log.exception("effect_failed", effect=type(effect).__name__)

    def _send_dispatch(self, effect: effects.SendDispatch) -> None:
        request, attempt = effect.request, effect.attempt
        if effect.why is effects.Why.REPEAT:
            self._metrics.resends_total.labels(Dispatch.__name__).inc()
        elif effect.why is effects.Why.NEXT:
            self._metrics.attempts_total.inc()
        broker = self._link.to_session_cell(
            request.session_id,
            request.frame(attempt),
            request.work,
            request.audio,
            deadline_ms=request.dispatch.deadline_ms,
            avoid=effect.avoid,
        )
        self.custody.sent(request.request_id, attempt.number, broker)

    def _send_cancel(self, effect: effects.SendCancel) -> None:
        cancel = effect.cancel
        self._metrics.cancels_total.labels(cancel.reason).inc()
        if cancel.job_id:
            self._link.to_job_cell(cancel.job_id, cancel)
        else:
            # The job, if there is one, is known by its request only: that binding lives in the session's cell.
            self._link.to_session_cell(cancel.session_id, cancel)

    def _tell_placed(self, effect: effects.TellPlaced) -> None:
        self._tell(effect.request, [client_messages.ui_event(effect.request, "DISPATCHED", now_ms())])

    def _deliver(self, effect: effects.Deliver) -> None:
        request, result = effect.request, effect.result
        self._metrics.results_total.labels(_outcome_of(result)).inc()
        if result is not None:
            self._metrics.result_seconds.observe((now_ms() - request.created_ms) / 1_000)
        actor = self._actor_of(request.session_id)
        if actor is not None:
            self.listener.came(actor, request, effect.push, result)

    def _fail(self, effect: effects.Fail) -> None:
        request = effect.request
        outcome = _OUTCOMES.get(effect.code, ResultOutcome.FAILED)
        self._metrics.results_total.labels(outcome).inc()
        log.info(
            "utterance_failed",
            session_id=request.session_id,
            request_id=request.request_id,
            job_id=request.job_id,
            trace_id=request.dispatch.trace_id,
            code=effect.code.name,
            attempts=request.attempts,
            reason=request.obstacle,
        )
        actor = self._actor_of(request.session_id)
        if actor is not None:
            self.listener.failed(actor, request, effect.code, effect.message, dict(effect.details or {}))

    def _ack_result(self, effect: effects.AckResult) -> None:
        push = effect.push
        actor = self._actor_of(push.session_id)
        if actor is not None and actor.acks.holds(push):
            return  # its keeper hears when the client has it
        if effect.verdict != ResultVerdict.DELIVERED:
            is_duplicate = effect.verdict == ResultVerdict.DUPLICATE
            outcome = ResultOutcome.DUPLICATE if is_duplicate else ResultOutcome.LATE
            self._metrics.results_total.labels(outcome).inc()
        self.acknowledge(push, effect.verdict)

    def acknowledge(self, push: Push, verdict: ResultVerdict = ResultVerdict.DELIVERED) -> None:
        """Tell the keeper of a result what became of it."""
        if push.node_edge:
            ack = ResultAck(job_id=push.job_id, attempt=push.attempt, node_id=push.node_id, verdict=verdict)
            self._link.to_peer(push.node_edge, ack)

    def _count_hedge(self, effect: effects.CountHedge) -> None:
        self._metrics.hedges_total.labels(effect.outcome).inc()

    def _tell_backpressure(self, effect: effects.TellBackpressure) -> None:
        actor = self._actor_of(effect.session_id)
        if actor is not None and actor.session.may_slow_down(now_ms()):
            self._metrics.backpressure_total.labels(BackpressureAction.SLOW_DOWN).inc()
            actor.tell(Backpressure(action=BackpressureAction.SLOW_DOWN, resume_after_ms=effect.resume_after_ms))

    def _tell(self, request: Request, messages: Iterable[Message]) -> None:
        """Progress of a request. Of several for one utterance the speaker sees that of the first."""
        actor = self._actor_of(request.session_id)
        about = None if actor is None else actor.under_way.get(request.request_id)
        if actor is not None and about is not None and about.is_first:
            for message in messages:
                actor.tell(message)


def read_result(push: Push, text: bytes) -> JobResult | None:
    """The node's result; None if it cannot be read."""
    try:
        return decode_job_result(text)
    except PeerError as error:
        # Its edge read it before it kept it, so this is a mesh of mixed versions; the client must still hear.
        log.error("result_unreadable", job_id=push.job_id, error=error.message)
        return None


def _outcome_of(result: JobResult | None) -> str:
    if result is None or not result.success:
        return ResultOutcome.FAILED
    return ResultOutcome.SILENCE if is_silence(result) else ResultOutcome.RESULT


def _limits_of(config: Config) -> RetryLimits:
    edge, job = config.edge, config.job
    return RetryLimits(
        resend_ms=edge.resend_ms,
        resend_ms_max=edge.resend_ms_max,
        resend_early_ms_max=early_ms_max(config),
        attempts_max=job.attempts_max,
        audio_bytes_max=edge.audio_kept_bytes_max,
        audio_per_session_bytes_max=edge.audio_kept_per_session_bytes_max,
        ended_kept_max=edge.ended_kept_max,
        ended_kept_ms=edge.ended_kept_ms,
        pending_ms=job.pending_timeout_ms,
        dispatched_ms=job.dispatched_timeout_ms,
        hedge_percent=job.hedge_budget_percent if job.hedging else 0.0,
    )
