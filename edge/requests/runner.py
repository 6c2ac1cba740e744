"""RequestRunner: passes frames of the mesh to the request tracker and runs its effects. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, get_args

from edge.core.convert import is_silence
from edge.core.recent_keys import RecentKeys
from edge.core.timers import Schedule
from edge.link.link import EdgeLink, early_ms_max
from edge.metrics import EdgeMetrics
from edge.requests.core import request as effects
from edge.requests.core.retry import RetryLimits
from edge.requests.core.tracker import RequestTracker
from mesh.clock import now_ms
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Dispatch, Notice, Placed, Push, Refused, ResultAck, Undone, Waiting
from mesh.log import get_logger
from mesh.messages.binary import JOB_RESULT, decode_parts
from mesh.messages.node import JobResult, NodeAsrPartial, decode_from_node, decode_job_result
from mesh.words import NoticeEvent, ResultOutcome, ResultVerdict

_OUTCOMES: Final = {
    ErrorCode.JOB_TIMEOUT: ResultOutcome.TIMEOUT,
    ErrorCode.NO_AVAILABLE_NODE: ResultOutcome.NO_NODE,
}

# A member of an enum costs as much as a call; these are read for every message.
_DELIVERED: Final = ResultVerdict.DELIVERED
_FAILED: Final = ResultOutcome.FAILED
_RESULT: Final = ResultOutcome.RESULT
_SILENCE: Final = ResultOutcome.SILENCE
_RETRY: Final = effects.SendReason.RETRY
_NEXT_ATTEMPT: Final = effects.SendReason.NEXT_ATTEMPT

log = get_logger()


#: What a session is notified of.
SessionEvent = (
    effects.ResultArrived
    | effects.ResultRejected
    | effects.RequestFailed
    | effects.RequestProgressed
    | effects.MeshThrottled
)


class Requester(Protocol):
    """A session at this edge."""

    @property
    def epoch(self) -> int:
        """With which this edge claimed it."""

    def handle(self, event: SessionEvent, now: int) -> None:
        """Handle an event."""


class RequestRunner:
    """All pending requests of this edge. `session_of` finds a session of this edge."""

    def __init__(
        self,
        config: Config,
        link: EdgeLink,
        metrics: EdgeMetrics,
        schedule: Schedule,
        session_of: Callable[[str], Requester | None],
    ) -> None:
        self.tracker = RequestTracker(_limits_of(config), schedule.waker(self.tick))
        #: Sessions that moved to another edge recently, and its identity.
        self._moved = RecentKeys(config.edge.ended_kept_max, config.edge.ended_kept_ms)
        self._link = link
        self._metrics = metrics
        self._session_of = session_of
        self._results = {outcome: metrics.results_total.labels(outcome) for outcome in ResultOutcome}
        self._run_effect: dict[type, Callable[[Any, int], None]] = {
            effects.SendDispatch: self._send_dispatch,
            effects.SendCancel: self._send_cancel,
            effects.NotifyPlaced: self._notify_placed,
            effects.Deliver: self._deliver,
            effects.Fail: self._fail,
            effects.AckResult: self._acknowledge,
            effects.Reject: self._reject,
            effects.CountHedge: self._count_hedge,
            effects.NotifyBackpressure: self._notify_backpressure,
        }
        assert set(self._run_effect) == set(get_args(effects.Effect)), "every effect has a runner"

    def counts(self) -> dict[str, int]:
        """Utterances accepted here, by state or outcome; `accepted` is the sum of the others."""
        return self.tracker.table.counts()

    def tick(self, now: int) -> None:
        """Do what is due."""
        self.run(self.tracker.tick(now), now)

    # --- sessions -----------------------------------------------------------------------------

    def cancel(self, request_id: str, reason: str) -> None:
        """Cancel one request; the others of its session stay pending."""
        now = now_ms()
        self.run(self.tracker.cancel(request_id, reason, now), now)

    def close_session(self, session_id: str) -> None:
        """Cancel all requests of a session that is over."""
        now = now_ms()
        self.run(self.tracker.close_session(session_id, now), now)

    def leave(self, session_id: str, owner: str) -> None:
        """Another edge owns the session ("" = none does yet): results that still arrive here are forwarded to it."""
        now = now_ms()
        self.run(self.tracker.leave_session(session_id, now), now)
        if owner:
            self._moved.add(session_id, now, owner)

    def returned(self, session_id: str) -> None:
        """This edge owns the session again: its results are no longer forwarded, also after its end."""
        self._moved.drop(session_id)

    # --- frames -------------------------------------------------------------------------------

    def on_placed(self, placed: Placed, payload: list[bytes], now: int) -> None:
        """A node has the job."""
        self.run(self.tracker.on_placed(placed, now), now)

    def on_refused(self, refused: Refused, payload: list[bytes], now: int) -> None:
        """No node can take it now."""
        self.run(self.tracker.on_refused(refused, now), now)

    def on_waiting(self, waiting: Waiting, payload: list[bytes], now: int) -> None:
        """It is in a selector's wait queue."""
        self.run(self.tracker.on_waiting(waiting, now), now)

    def on_undone(self, undone: Undone, payload: list[bytes], now: int) -> None:
        """The attempt failed."""
        self.run(self.tracker.on_undone(undone, now), now)

    def on_push(self, push: Push, payload: list[bytes], now: int) -> None:
        """A result arrived. One for a session that moved is forwarded to its owner."""
        session = self._session_of(push.session_id)
        if session is None:
            owner = self._moved.how(push.session_id, now)
            if owner is not None:
                self._link.to_peer(owner, push, *payload)
                return
        elif push.session_epoch > session.epoch:
            # Another edge claimed the session since: a selector must look the owner up.
            self.acknowledge(effects.AckResult(push, ResultVerdict.NO_SESSION))
            return
        self.run(self.tracker.on_push(push, read_result(push, payload), now), now)

    def take(self, push: Push, result: JobResult | None) -> None:
        """A result was in the mail; None: it cannot be decoded."""
        now = now_ms()
        self.run(self.tracker.on_push(push, result, now), now)

    def on_notice(self, notice: Notice, payload: list[bytes], now: int) -> None:
        """Progress of a job."""
        request = self.tracker.requests.get(notice.request_id)
        # With a hedge there are two attempts: the client sees the progress of the current one.
        if request is None or request.current.number != notice.attempt:
            return
        if notice.event == NoticeEvent.ACCEPTED:
            progress = effects.RequestProgressed(request, "NODE_ACCEPTED", notice.job_id)
        elif notice.event == NoticeEvent.ASR_PARTIAL:
            partial = decode_from_node(payload[0])
            assert isinstance(partial, NodeAsrPartial)
            progress = effects.RequestProgressed(request, "ASR_PARTIAL", partial=partial)
        else:
            return
        self._notify(request.session_id, progress, now)

    def on_dispatch_back(self, dispatch: Dispatch, retry_after_ms: int, now: int) -> None:
        """A broker returned a Dispatch."""
        if retry_after_ms:
            self.run(self.tracker.on_busy(dispatch, retry_after_ms, now), now)
        else:
            self.run(self.tracker.on_bounce(dispatch, now), now)

    # --- effects ------------------------------------------------------------------------------

    def run(self, wanted: Iterable[effects.Effect], now: int) -> None:
        """Run effects of the tracker, in order. `now`: when they were decided."""
        for effect in wanted:
            try:
                self._run_effect[type(effect)](effect, now)
            except Exception:
                # A failure costs one request, and no other request anything.
                log.exception("effect_failed", effect=type(effect).__name__)

    def _send_dispatch(self, effect: effects.SendDispatch, now: int) -> None:
        request, attempt = effect.request, effect.attempt
        if effect.reason is _RETRY:
            self._metrics.resends_total.labels(Dispatch.__name__).inc()
        elif effect.reason is _NEXT_ATTEMPT:
            self._metrics.attempts_total.inc()
        attempt.broker = self._link.to_session_cell(
            request.session_id,
            request.frame(attempt),
            request.work,
            request.audio,
            deadline_ms=request.dispatch.deadline_ms,
            avoid=effect.avoid,
        )

    def _send_cancel(self, effect: effects.SendCancel, now: int) -> None:
        cancel = effect.cancel
        self._metrics.cancels_total.labels(cancel.reason).inc()
        if cancel.job_id:
            self._link.to_job_cell(cancel.job_id, cancel)
        else:
            # The job, if there is one, is known by its request only: that binding lives in the session's cell.
            self._link.to_session_cell(cancel.session_id, cancel)

    def _notify_placed(self, effect: effects.NotifyPlaced, now: int) -> None:
        self._notify(effect.request.session_id, effects.RequestProgressed(effect.request, "DISPATCHED"), now)

    def _deliver(self, effect: effects.Deliver, now: int) -> None:
        request, result = effect.request, effect.result
        outcome = _FAILED
        if result is not None:
            self._metrics.result_seconds.observe((request.ended_ms - request.created_ms) / 1_000)
            if result.success:
                outcome = _SILENCE if is_silence(result) else _RESULT
        self._results[outcome].value += 1
        if not self._notify(request.session_id, effects.ResultArrived(request, effect.push, result), now):
            self.acknowledge(effects.AckResult(effect.push, ResultVerdict.DELIVERED))

    def _fail(self, effect: effects.Fail, now: int) -> None:
        request = effect.request
        outcome = _OUTCOMES.get(effect.code, ResultOutcome.FAILED)
        self._results[outcome].inc()
        log.info(
            "utterance_failed",
            session_id=request.session_id,
            request_id=request.request_id,
            job_id=request.current.job_id,
            trace_id=request.dispatch.trace_id,
            code=effect.code.name,
            attempts=request.attempts,
            reason=request.obstacle,
        )
        failed = effects.RequestFailed(request, effect.code, effect.message, effect.details)
        self._notify(request.session_id, failed, now)

    def _reject(self, effect: effects.Reject, now: int) -> None:
        """The session decides, if this edge has it: a duplicate of an unacked result is not acknowledged yet."""
        if not self._notify(effect.push.session_id, effects.ResultRejected(effect.push, effect.verdict), now):
            self.acknowledge(effects.AckResult(effect.push, effect.verdict))

    def acknowledge(self, effect: effects.AckResult) -> None:
        """Acknowledge a result upstream: the edge of its node stops retrying it."""
        push, verdict = effect.push, effect.verdict
        if verdict != _DELIVERED:
            is_duplicate = verdict == ResultVerdict.DUPLICATE
            self._results[ResultOutcome.DUPLICATE if is_duplicate else ResultOutcome.LATE].inc()
        if push.node_edge:
            self._link.acknowledge(push.node_edge, ResultAck(push.node_id, push.job_id, push.attempt, verdict))

    def _acknowledge(self, effect: effects.AckResult, now: int) -> None:
        self.acknowledge(effect)

    def _count_hedge(self, effect: effects.CountHedge, now: int) -> None:
        self._metrics.hedges_total.labels(effect.outcome).inc()

    def _notify_backpressure(self, effect: effects.NotifyBackpressure, now: int) -> None:
        self._notify(effect.session_id, effects.MeshThrottled(effect.resume_after_ms), now)

    def _notify(self, session_id: str, event: SessionEvent, now: int) -> bool:
        """Pass an event to its session; False if this edge does not have it."""
        session = self._session_of(session_id)
        if session is not None:
            session.handle(event, now)
        return session is not None


def read_result(push: Push, parts: Sequence[bytes]) -> JobResult | None:
    """The node's result: JSON, or a head and raw audio; None if it cannot be decoded."""
    try:
        if len(parts) == 1:
            return decode_job_result(parts[0])
        head, audio = parts
        result: JobResult = decode_parts(JOB_RESULT, head, audio)
        return result
    except PeerError as error:
        # The node's edge has decoded it before, so versions are mixed; the client must still get a failure.
        log.error("result_unreadable", job_id=push.job_id, error=error.message)
        return None


def _limits_of(config: Config) -> RetryLimits:
    edge, job = config.edge, config.job
    return RetryLimits(
        resend_ms=edge.resend_ms,
        resend_ms_max=edge.resend_ms_max,
        resend_early_ms_max=early_ms_max(config),
        attempts_max=job.attempts_max,
        ended_kept_max=edge.ended_kept_max,
        ended_kept_ms=edge.ended_kept_ms,
        pending_ms=job.pending_timeout_ms,
        dispatched_ms=job.dispatched_timeout_ms,
        hedge_percent=job.hedge_budget_percent if job.hedging else 0.0,
    )
