"""RetryTimer: when an attempt is sent, retried, late, or timed out. Owns the times, not the consequences."""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.core.backoff import retry_wait_ms
from edge.requests.core.request import Attempt, Request, SendDispatch, SendReason, Stage
from edge.requests.core.table import RequestTable

# A member of an enum costs as much as a call; these are read for every message.
_SENDING: Final = Stage.SENDING
_PLACED: Final = Stage.PLACED


class RetryLimits(NamedTuple):
    """The bounds of the request tracker, from the configuration."""

    resend_ms: int
    resend_ms_max: int
    #: Bound of the first few backoffs: half of the time in which the mesh detects a peer that hangs.
    resend_early_ms_max: int
    attempts_max: int
    ended_kept_max: int
    ended_kept_ms: int
    #: Timeout of an attempt that is not placed, and of a placed one (to which twice its audio is added).
    pending_ms: int
    dispatched_ms: int
    #: Bound on hedges, in percent of all utterances; 0 = no hedging.
    hedge_percent: float = 0.0


class RetryTimer:
    """One timer per live attempt, set to its earliest due time."""

    def __init__(self, limits: RetryLimits, table: RequestTable) -> None:
        self._limits = limits
        self._table = table

    def send(self, request: Request, attempt: Attempt, now_ms: int) -> SendDispatch:
        """Send the attempt's Dispatch now, and retry it unless a reply arrives."""
        reason = attempt.reason
        if attempt.sent:
            reason = SendReason.RETRY if attempt.sends else SendReason.POLL
        limits = self._limits
        wait_ms = limits.resend_ms_max  # a placed job is only polled: normally its result arrives long before
        if attempt.stage is not _PLACED:
            attempt.stage = _SENDING
            wait_ms = retry_wait_ms(limits.resend_ms, attempt.sends, limits.resend_early_ms_max, wait_ms)
        attempt.sent += 1
        attempt.sends += 1
        attempt.wake_ms = now_ms + wait_ms
        self.arm(request, attempt)
        return SendDispatch(request, attempt, attempt.broker if attempt.sends > 1 else "", reason)

    def delay(self, request: Request, attempt: Attempt, due_ms: int) -> None:
        """Do not send it before that time."""
        attempt.stage = Stage.DELAYED
        attempt.wake_ms = due_ms
        self.arm(request, attempt)

    def arm(self, request: Request, attempt: Attempt) -> None:
        """Set the attempt's timer to what is due first, after a change of its stage or times."""
        limits = self._limits
        if attempt.stage is _PLACED:
            attempt.limit_ms = attempt.placed_ms + limits.dispatched_ms + 2 * request.dispatch.audio_ms
        else:
            # A selector refuses after pending_ms. This timeout covers the case that none does: a little later.
            attempt.limit_ms = attempt.began_ms + limits.pending_ms + limits.resend_ms_max
        due_ms = min(attempt.wake_ms, attempt.limit_ms, request.deadline_ms)
        if attempt.late_ms and attempt.late_ms < due_ms:
            due_ms = attempt.late_ms
        self._table.timers.set((request.request_id, attempt.number), due_ms)
