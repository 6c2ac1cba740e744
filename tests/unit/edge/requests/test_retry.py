"""When an attempt is sent, retried and timed out."""

from __future__ import annotations

import pytest

from edge.requests.core.request import Attempt, Request, SendReason, Stage
from edge.requests.core.retry import RetryTimer
from edge.requests.core.table import RequestTable
from tests.unit.edge.requests.test_tracker import LIMITS, dispatch


class Case:
    """One request with its retry timer."""

    def __init__(self, deadline_ms: int = 600_000) -> None:
        self.table = RequestTable(8, 30_000)
        self.table.open_session("s")
        self.retry = RetryTimer(LIMITS, self.table)
        self.attempt = Attempt(1, 0)
        self.request = Request(dispatch(), b"", b"", 0, deadline_ms, self.attempt)
        self.table.add(self.request)

    def due_ms(self) -> int | None:
        return self.table.timers.next_due_ms()


def test_first_send_has_the_attempts_reason_and_later_ones_are_retries() -> None:
    case = Case()
    reasons = [case.retry.send(case.request, case.attempt, 0).reason for _ in range(3)]
    assert reasons == [SendReason.NEW, SendReason.RETRY, SendReason.RETRY]


def test_send_after_a_delay_is_a_poll() -> None:
    case = Case()
    case.retry.send(case.request, case.attempt, 0)
    case.attempt.sends = 0  # a reply arrived
    case.retry.delay(case.request, case.attempt, 700)
    assert case.attempt.stage is Stage.DELAYED and case.due_ms() == 700
    assert case.retry.send(case.request, case.attempt, 700).reason is SendReason.POLL


def test_retry_avoids_the_broker_of_the_last_send() -> None:
    case = Case()
    assert case.retry.send(case.request, case.attempt, 0).avoid == ""
    case.attempt.broker = "b-1"
    assert case.retry.send(case.request, case.attempt, 400).avoid == "b-1"


def test_backoff_grows_up_to_its_bounds() -> None:
    case, waits = Case(), []
    for now_ms in range(12):
        case.retry.send(case.request, case.attempt, now_ms)
        waits.append(case.attempt.wake_ms - now_ms)
    assert waits[0] == LIMITS.resend_ms and waits == sorted(waits) and waits[-1] == LIMITS.resend_ms_max
    assert waits[1] <= LIMITS.resend_early_ms_max


def test_placed_attempt_is_polled_at_the_longest_interval() -> None:
    case = Case()
    case.attempt.stage = Stage.PLACED
    case.retry.send(case.request, case.attempt, 100)
    assert case.due_ms() == 100 + LIMITS.resend_ms_max and case.attempt.stage is Stage.PLACED


@pytest.mark.parametrize("stage", [Stage.SENDING, Stage.DELAYED])
def test_unplaced_attempt_times_out_after_a_selector_would_have_refused(stage: Stage) -> None:
    case = Case()
    case.attempt.stage = stage
    case.retry.arm(case.request, case.attempt)
    assert case.attempt.limit_ms == LIMITS.pending_ms + LIMITS.resend_ms_max


def test_placed_attempt_times_out_by_the_length_of_its_audio() -> None:
    case = Case()
    case.attempt.stage, case.attempt.placed_ms = Stage.PLACED, 50
    audio_ms = case.request.dispatch.audio_ms
    case.retry.arm(case.request, case.attempt)
    assert case.attempt.limit_ms == 50 + LIMITS.dispatched_ms + 2 * audio_ms


@pytest.mark.parametrize(
    ("wake_ms", "late_ms", "deadline_ms", "due_ms"),
    [(900, 0, 600_000, 900), (900, 300, 600_000, 300), (900, 0, 200, 200), (10**9, 0, 10**9, 15_000)],
)
def test_timer_is_set_to_the_earliest_due_time(wake_ms: int, late_ms: int, deadline_ms: int, due_ms: int) -> None:
    case = Case(deadline_ms)
    case.attempt.late_ms = late_ms
    case.attempt.wake_ms = wake_ms
    case.retry.arm(case.request, case.attempt)
    assert case.due_ms() == due_ms
