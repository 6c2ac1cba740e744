"""Pacing: when an attempt is sent, sent again, late, or has taken too long. Owns the waits, not what follows."""

from __future__ import annotations

from typing import NamedTuple

from edge.core.backoff import retry_wait_ms
from edge.requests.core.request import Attempt, Request, SendDispatch, Stage, Why
from edge.requests.core.table import RequestTable


class RetryLimits(NamedTuple):
    """The bounds that custody obeys, from the configuration."""

    resend_ms: int
    resend_ms_max: int
    #: Between the first few repeats: half of the time in which the mesh notices a peer that hangs.
    resend_early_ms_max: int
    attempts_max: int
    ended_kept_max: int
    ended_kept_ms: int
    #: So long an attempt may be without a node, and a node with a job (and twice its audio on top).
    pending_ms: int
    dispatched_ms: int
    #: Hedges that may be sent, as a part of all utterances; 0 = none.
    hedge_percent: float = 0.0


class RetryTimer:
    """One timer per live attempt, set to whatever is due first."""

    def __init__(self, limits: RetryLimits, retained: RequestTable) -> None:
        self._limits = limits
        self._retained = retained

    def send(self, request: Request, attempt: Attempt, now_ms: int) -> SendDispatch:
        """Send the attempt's Dispatch now, and again unless something is heard."""
        why = attempt.why
        if attempt.asked:
            why = Why.REPEAT if attempt.sends else Why.AGAIN
        wait_ms = self._limits.resend_ms_max  # a placed job is only asked after: normally its result comes long before
        if attempt.stage is not Stage.PLACED:
            attempt.stage = Stage.SENDING
            wait_ms = self.wait_ms(self._limits.resend_ms, attempt.sends)
        attempt.asked = True
        attempt.sends += 1
        self.wake(request, attempt, now_ms + wait_ms)
        return SendDispatch(request, attempt, attempt.broker if attempt.sends > 1 else "", why)

    def rest(self, request: Request, attempt: Attempt, due_ms: int) -> None:
        """Do not send it before then."""
        attempt.stage = Stage.RESTING
        self.wake(request, attempt, due_ms)

    def wake(self, request: Request, attempt: Attempt, due_ms: int) -> None:
        """Send it then."""
        attempt.wake_ms = due_ms
        self.arm(request, attempt)

    def arm(self, request: Request, attempt: Attempt) -> None:
        """Set the attempt's timer to what is due first."""
        due_ms = min(attempt.wake_ms, self.limit_ms(request, attempt))
        self._retained.arm(request, attempt, min(due_ms, attempt.late_ms) if attempt.late_ms else due_ms)

    def wait_ms(self, first_ms: int, tries: int) -> int:
        """How long to wait after the `tries`-th unanswered send."""
        limits = self._limits
        return retry_wait_ms(first_ms, tries, limits.resend_early_ms_max, limits.resend_ms_max)

    def limit_ms(self, request: Request, attempt: Attempt) -> int:
        """When the attempt has taken too long: to be placed, or to bring its result once placed."""
        if attempt.stage is Stage.PLACED:
            return attempt.placed_ms + self._limits.dispatched_ms + 2 * request.dispatch.audio_ms
        # A selector refuses after pending_ms. This is for the case that none does, so it comes a little later.
        return attempt.began_ms + self._limits.pending_ms + self._limits.resend_ms_max
