"""RequestTracker: the session's edge retries each accepted utterance until it has one outcome.

Owns the rules from `submit` to the end of a request: delivered, failed, refused, or cancelled because its session
closed. Knows no sockets: received frames go in, effects come out, and time is an argument (docs/adr/0006).

An attempt is in one of three stages:

    SENDING   a Dispatch is sent and has no reply: retry it, with backoff, through another broker if there is one
    DELAYED   a reply asked for a delay (Waiting, Busy, Refused with retry_after_ms, repeated Undone)
    PLACED    a node has the job: poll now and then, because the notice of its failure may have been lost

Usually a request has one attempt at a time. Beside one that is late there may be a hedge; the first result of the two
counts, and when one of them fails the other is the current attempt.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from edge.core.backoff import backoff_ms, retry_wait_ms
from edge.core.failover import is_failover
from edge.core.timers import Wake, no_wake
from edge.requests.core.completion import Completion
from edge.requests.core.hedge_budget import HedgeBudget
from edge.requests.core.request import (
    AckResult,
    Attempt,
    CountHedge,
    Deliver,
    Effect,
    Failure,
    NotifyBackpressure,
    NotifyPlaced,
    Reject,
    Request,
    SendCancel,
    SendReason,
    Stage,
)
from edge.requests.core.retry import RetryLimits, RetryTimer
from edge.requests.core.table import RequestTable
from mesh.errors import ErrorCode
from mesh.frames import Cancel, Dispatch, Placed, Push, Refused, Undone, Waiting
from mesh.messages.node import JobResult
from mesh.words import (
    BLAMELESS_REASONS,
    CERTAIN_REASONS,
    CancelReason,
    EdgeCount,
    FilterName,
    HedgeOutcome,
    ResultVerdict,
)

#: Attempts of one request that may fail for BLAMELESS_REASONS without being counted.
BLAMELESS_MAX: Final = 16
# A member of an enum costs as much as a call; these are read for every message.
_DELIVERED: Final = EdgeCount.DELIVERED
_PLACED: Final = Stage.PLACED


class RequestTracker:
    """The rules for all requests of this edge."""

    def __init__(self, limits: RetryLimits, wake: Wake = no_wake) -> None:
        self.limits = limits
        self.table = RequestTable(limits.ended_kept_max, limits.ended_kept_ms, wake)
        #: The pending requests, by id.
        self.requests = self.table.requests
        self.retry_timer = RetryTimer(limits, self.table)
        self.hedge_budget = HedgeBudget(limits.hedge_percent)
        self.completion = Completion(self.table, self.hedge_budget)

    # --- sessions -----------------------------------------------------------------------------

    def open_session(self, session_id: str, *, resumed: bool = False) -> None:
        """Accept results for this session from now on. `resumed`: another edge may have had requests of it."""
        self.table.open_session(session_id, resumed=resumed)

    def close_session(self, session_id: str, now_ms: int) -> list[Effect]:
        """The session is over: cancel its requests."""
        effects: list[Effect] = []
        for request in self.table.of_session(session_id):
            effects += self.completion.end(request, EdgeCount.CANCELLED, CancelReason.SESSION_CLOSED, now_ms)
        self.table.close_session(session_id)
        return effects

    def leave_session(self, session_id: str, now_ms: int) -> list[Effect]:
        """Another edge owns the session and submits its pending requests anew: nothing is cancelled.

        Nor are they recorded as ended: an unacked result of them is retried until the other edge has it.
        """
        left = [request.request_id for request in self.table.of_session(session_id)]
        effects = self.close_session(session_id, now_ms)
        self.table.forget(left)
        return [effect for effect in effects if not isinstance(effect, SendCancel)]

    def cancel(self, request_id: str, reason: str, now_ms: int) -> list[Effect]:
        """Cancel one request; the others of its session stay pending."""
        request = self.requests.get(request_id)
        return [] if request is None else self.completion.end(request, EdgeCount.FAILED, reason, now_ms)

    def pending(self, session_id: str) -> int:
        """The number of pending requests of a session."""
        return self.table.pending(session_id)

    # --- requests -----------------------------------------------------------------------------

    def submit(self, dispatch: Dispatch, work: bytes, audio: bytes, deadline_ms: int, now_ms: int) -> list[Effect]:
        """Accept an utterance; deduplicated by its request id."""
        assert dispatch.session_id in self.table.sessions, "the session is opened first"
        if self.table.is_known(dispatch.request_id, dispatch.session_id, now_ms):
            return []
        if self.table.is_resumed(dispatch.session_id):
            dispatch = replace(dispatch, resend=1)  # another edge may have sent it
        request = Request(dispatch, work, audio, now_ms, deadline_ms, Attempt(1, now_ms))
        self.table.add(request)
        return [self.retry_timer.send(request, request.current, now_ms)]

    def on_placed(self, placed: Placed, now_ms: int) -> list[Effect]:
        """A node has the job."""
        found = self.table.live(placed.request_id, placed.attempt)
        if found is None:
            return self._cancel_late(placed, now_ms)
        request, attempt = found
        if attempt.stage is not Stage.PLACED:
            attempt.placed_ms = now_ms
            attempt.late_ms = now_ms + placed.late_after_ms if placed.late_after_ms > 0 else 0
        attempt.stage, attempt.job_id, attempt.node_id = Stage.PLACED, placed.job_id, placed.node_id
        attempt.sends = attempt.busy = 0
        attempt.wake_ms = now_ms + self.limits.resend_ms_max
        self.retry_timer.arm(request, attempt)
        request.refusal, request.obstacle = None, ""
        first = request.placed_ms == 0
        request.placed_ms = request.placed_ms or now_ms
        return [NotifyPlaced(request)] if first else []

    def on_waiting(self, waiting: Waiting, now_ms: int) -> list[Effect]:
        """It is in a selector's wait queue: poll after the given delay. A hedge is not queued."""
        found = self._unplaced(waiting.request_id, waiting.attempt)
        if found is None:
            return []
        request, attempt = found
        if attempt is request.hedge:
            return self._drop_hedge(request, HedgeOutcome.REFUSED)
        request.obstacle = waiting.reason
        attempt.is_queued = True
        attempt.sends = attempt.busy = 0
        self.retry_timer.delay(request, attempt, now_ms + max(1, waiting.ask_again_ms))
        return []

    def on_refused(self, refused: Refused, now_ms: int) -> list[Effect]:
        """No node can take it now: retry after the given delay, or end it as refused."""
        # A placed job has a node; that no other was found now means nothing.
        found = self._unplaced(refused.request_id, refused.attempt)
        if found is None:
            return []
        request, attempt = found
        if attempt is request.hedge:
            return self._drop_hedge(request, HedgeOutcome.REFUSED)
        request.refusal, request.obstacle = refused, refused.reason
        only_excluded = bool(refused.removed.get(FilterName.EXCLUDED)) and not refused.removed.get(FilterName.SLOT)
        waited_ms = max(refused.waited_ms, now_ms - attempt.began_ms)
        if refused.retry_after_ms <= 0 or waited_ms >= self.limits.pending_ms or (only_excluded and request.failure):
            return self.completion.refuse(request, now_ms, None if attempt.is_queued else attempt)
        if only_excluded:
            # No other node qualifies: one that failed once is better than none.
            request.excluded.clear()
        self.retry_timer.delay(request, attempt, now_ms + refused.retry_after_ms)
        return []

    def on_undone(self, undone: Undone, now_ms: int) -> list[Effect]:
        """The attempt failed: begin the next one, at another node."""
        found = self.table.live(undone.request_id, undone.attempt)
        if found is None:
            return []
        request, attempt = found
        sure = undone.reason in CERTAIN_REASONS
        if undone.exclude_node or sure:
            request.exclude(undone.node_id)
        if attempt is request.hedge:
            return self._drop_hedge(request, HedgeOutcome.FAILED)
        if undone.reason in BLAMELESS_REASONS and request.blameless < BLAMELESS_MAX:
            request.blameless += 1
        # Twice in a row: wait for a newer snapshot of the fleet.
        wait_ms = 0 if sure or request.attempts == 1 else self.limits.resend_ms
        if self._has_next(request):
            return self._next(request, wait_ms, now_ms)
        details: dict[str, object] = {"reason": undone.reason, "attempts": request.attempts}
        return self.completion.fail(
            request, ErrorCode.NODE_UNAVAILABLE, "no node kept the utterance", details, now_ms, attempt
        )

    def on_busy(self, dispatch: Dispatch, retry_after_ms: int, now_ms: int) -> list[Effect]:
        """No selector had capacity for that Dispatch."""
        found = self.table.live(dispatch.request_id, dispatch.attempt)
        if found is None or found[1].stage is not Stage.SENDING:
            return []
        request, attempt = found
        if attempt is request.hedge:
            return self._drop_hedge(request, HedgeOutcome.REFUSED)
        wait_ms = backoff_ms(max(1, retry_after_ms), attempt.busy, self.limits.resend_ms_max)
        attempt.busy += 1
        self.retry_timer.delay(request, attempt, now_ms + wait_ms)
        return [NotifyBackpressure(request.session_id, wait_ms)]

    def on_bounce(self, dispatch: Dispatch, now_ms: int) -> list[Effect]:
        """A broker could not route that Dispatch: retry it before the backoff has passed."""
        found = self.table.live(dispatch.request_id, dispatch.attempt)
        if found is not None and found[1].stage is Stage.SENDING:
            limits, (request, attempt) = self.limits, found
            first_ms = limits.resend_ms // 4 or 1
            wait_ms = retry_wait_ms(first_ms, attempt.sends, limits.resend_early_ms_max, limits.resend_ms_max)
            self.retry_timer.delay(request, attempt, now_ms + wait_ms)
        return []

    def on_push(self, push: Push, result: JobResult | None, now_ms: int) -> list[Effect]:
        """A result is delivered once, and rejected otherwise. None: it cannot be decoded, which ends it too."""
        request = self.table.request_of(push)
        attempt = None if request is None else request.attempt(push.attempt)
        if request is None or attempt is None:
            verdict = ResultVerdict.FENCED if request is not None else self.table.verdict_on(push, now_ms)
            return [Reject(push, verdict)]
        if result is not None and not result.success and is_failover(result):
            # The tracker consumes this one: no client gets it.
            failed_over = self._fail_over(request, attempt, Failure(push, result), now_ms)
            return [AckResult(push, ResultVerdict.DELIVERED), *failed_over]
        outcome = _DELIVERED if result is not None and result.success else EdgeCount.FAILED
        delivered = Deliver(request, push, result)
        if request.hedge is not None:
            return [delivered, *self.completion.end(request, outcome, CancelReason.SUPERSEDED, now_ms, attempt)]
        self.table.end(request, outcome, now_ms, attempt)  # no other attempt is live
        return [delivered]

    # --- time ---------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Effect]:
        """Resends, retries, hedges, time-outs and deadlines that are due."""
        effects: list[Effect] = []
        for request_id, number in self.table.timers.pop_due(now_ms):
            found = self.table.live(request_id, number)
            if found is None:
                continue  # it ended in this tick
            request, attempt = found
            if now_ms >= request.deadline_ms or now_ms >= attempt.limit_ms:
                effects += self._time_out(request, attempt, now_ms)
                continue
            if attempt.late_ms and now_ms >= attempt.late_ms:
                attempt.late_ms = 0
                effects += self._hedge(request, attempt, now_ms)
            if now_ms >= attempt.wake_ms:
                effects.append(self.retry_timer.send(request, attempt, now_ms))
            else:
                self.retry_timer.arm(request, attempt)
        return effects

    # --- attempts -----------------------------------------------------------------------------

    def _unplaced(self, request_id: str, number: int) -> tuple[Request, Attempt] | None:
        found = self.table.live(request_id, number)
        return found if found is not None and found[1].stage is not _PLACED else None

    def _has_next(self, request: Request) -> bool:
        return request.hedge is not None or request.counted_attempts < self.limits.attempts_max

    def _next(self, request: Request, wait_ms: int, now_ms: int) -> list[Effect]:
        """The current attempt failed: the hedge replaces it, or the next one begins."""
        self.table.timers.drop((request.request_id, request.current.number))
        if request.hedge is not None:
            request.current, request.hedge = request.hedge, None
            return [self.completion.count_hedge(HedgeOutcome.PROMOTED)]
        request.attempts += 1
        request.current = Attempt(request.attempts, now_ms, SendReason.NEXT_ATTEMPT)
        if not wait_ms:
            return [self.retry_timer.send(request, request.current, now_ms)]
        self.retry_timer.delay(request, request.current, now_ms + wait_ms)
        return []

    def _fail_over(self, request: Request, attempt: Attempt, failure: Failure, now_ms: int) -> list[Effect]:
        request.exclude(failure.push.node_id)
        if attempt is request.hedge:
            return self._drop_hedge(request, HedgeOutcome.FAILED)
        request.failure = failure
        if self._has_next(request):
            return self._next(request, 0, now_ms)
        return self.completion.deliver_failure(request, failure, now_ms, attempt)

    def _time_out(self, request: Request, attempt: Attempt, now_ms: int) -> list[Effect]:
        """The attempt, or the whole request, timed out."""
        if now_ms < request.deadline_ms:
            if attempt is request.hedge:
                # Without a job id the cancel would reach the first attempt, which goes on.
                cancels = [request.cancel(attempt, CancelReason.JOB_TIMEOUT)] if attempt.job_id else []
                return [*cancels, *self._drop_hedge(request, HedgeOutcome.FAILED)]
            if attempt.stage is Stage.PLACED and self._has_next(request):
                request.exclude(attempt.node_id)
                return [request.cancel(attempt, CancelReason.JOB_TIMEOUT), *self._next(request, 0, now_ms)]
        if attempt.stage is not Stage.PLACED and request.obstacle:
            return self.completion.refuse(request, now_ms)
        details: dict[str, object] = {"attempts": request.attempts}
        return self.completion.fail(request, ErrorCode.JOB_TIMEOUT, "the result did not come in time", details, now_ms)

    # --- hedges -------------------------------------------------------------------------------

    def _hedge(self, request: Request, late: Attempt, now_ms: int) -> list[Effect]:
        """The node is late: begin a second attempt beside it, within the budget."""
        if late is not request.current or request.hedge is not None or not self._has_next(request):
            return []
        if not self.hedge_budget.percent:
            return []
        if not self.hedge_budget.take(self.table.accepted):
            return [CountHedge(HedgeOutcome.OVER_BUDGET)]
        request.attempts += 1
        request.hedge = Attempt(request.attempts, now_ms, SendReason.HEDGE)
        return [self.retry_timer.send(request, request.hedge, now_ms)]

    def _drop_hedge(self, request: Request, outcome: HedgeOutcome) -> list[Effect]:
        """The hedge failed: the first attempt goes on as if there had been none."""
        assert request.hedge is not None
        self.table.timers.drop((request.request_id, request.hedge.number))
        request.hedge = None
        return [self.completion.count_hedge(outcome)]

    def _cancel_late(self, placed: Placed, now_ms: int) -> list[Effect]:
        """Cancel an attempt that is no longer live: a hedge from a wait queue, or a Dispatch that arrived after the
        Cancel of its request.
        """
        request_id, attempt = placed.request_id, placed.attempt
        if request_id not in self.requests and not self.table.ended_without(request_id, attempt, now_ms):
            return []
        return [
            SendCancel(
                Cancel(
                    request_id=request_id,
                    job_id=placed.job_id,
                    attempt=attempt,
                    node_id=placed.node_id,
                    session_id=placed.session_id,
                    reason=CancelReason.SUPERSEDED,
                )
            )
        ]

    def check(self) -> None:
        """Assert the invariants; tests call it after each step."""
        self.table.check()
        self.hedge_budget.check(self.table.accepted)
        hedges = [request.hedge for request in self.requests.values() if request.hedge is not None]
        assert len(hedges) == self.hedge_budget.live
        assert all(request.counted_attempts <= self.limits.attempts_max for request in self.requests.values())
        assert all(0 <= request.blameless <= BLAMELESS_MAX for request in self.requests.values())
