"""The request tracker by single steps: the effects of each reply of the mesh."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.core.failover import FAILOVER_CODES
from edge.requests.core.request import (
    AckResult,
    CountHedge,
    Deliver,
    Effect,
    Fail,
    NotifyBackpressure,
    NotifyPlaced,
    Reject,
    SendCancel,
    SendDispatch,
    SendReason,
    Stage,
)
from edge.requests.core.retry import RetryLimits
from edge.requests.core.tracker import BLAMELESS_MAX, RequestTracker
from mesh.errors import ErrorCode
from mesh.frames import Dispatch, Placed, Push, Refused, Undone, Waiting
from mesh.messages.node import JobError, JobResult

LIMITS = RetryLimits(400, 5_000, 1_500, 3, 8, 30_000, pending_ms=10_000, dispatched_ms=15_000)
RESULT = JobResult(
    job_id="job-00-1", attempt_id=1, node_id="n", session_id="s", utterance_index=0, success=True, trace_id="t"
)


def failed(code: str | None = "PROCESSING_ERROR") -> JobResult:
    error = None if code is None else JobError(code=code, message="it broke", details={"service_id": "x"})
    return msgspec.structs.replace(RESULT, success=False, error=error)


def dispatch(request_id: str = "r", **fields: Any) -> Dispatch:
    base: dict[str, Any] = {
        "request_id": request_id, "attempt": 1, "session_id": "s", "utterance_index": 0, "edge": "a", "tenant_id": "",
        "src_lang": "en", "tgt_lang": "es", "lang_a": "", "lang_b": "", "services": ["asr"], "public": True,
        "audio_ms": 1_000, "deadline_ms": 0, "trace_id": "t",
    }  # fmt: skip
    return Dispatch(**{**base, **fields})


def placed(
    attempt: int = 1, job_id: str = "job-00-1", request_id: str = "r", node_id: str = "n", late_after_ms: int = 0
) -> Placed:
    return Placed(request_id, attempt, job_id, node_id, "s", 0, late_after_ms)


def push(attempt: int = 1, **fields: Any) -> Push:
    base: dict[str, Any] = {
        "job_id": "job-00-1", "attempt": attempt, "node_id": "n", "node_edge": "b", "request_id": "r",
        "session_id": "s", "utterance_index": 0,
    }  # fmt: skip
    return Push(**{**base, **fields})


def undone(attempt: int = 1, exclude: bool = True, reason: str = "node_absent") -> Undone:
    return Undone("r", attempt, "job-00-1", f"n{attempt}", reason, exclude)


def refused(retry_after_ms: int, attempt: int = 1) -> Refused:
    return Refused("r", attempt, "NO_AVAILABLE_NODE", "language", {"language": 4}, retry_after_ms, "n7", "no slot free")


class Case:
    """A tracker with one request, checked after every step."""

    def __init__(self, deadline_ms: int = 60_000, **limits: Any) -> None:
        self.core = RequestTracker(LIMITS._replace(**limits))
        self.core.open_session("s")
        self.first = self.core.submit(dispatch(), b"work", b"audio", deadline_ms, 0)
        self.core.check()

    def do(self, effects: list[Effect]) -> list[Effect]:
        self.core.check()
        return effects

    @property
    def request(self) -> Any:
        return self.core.requests["r"]


def test_accepted_utterance_is_sent_at_once_and_again_with_back_off_by_another_broker() -> None:
    case = Case()
    assert isinstance(case.first[0], SendDispatch) and case.first[0].avoid == ""
    case.first[0].attempt.broker = "broker-1"
    times = []
    for sent in range(1, 8):
        due = case.core.table.timers.next_due_ms()
        assert due is not None
        times.append(due)
        (again,) = case.do(case.core.tick(due))
        assert isinstance(again, SendDispatch) and again.avoid == "broker-1"
        assert again.request.frame(again.attempt) == msgspec.structs.replace(dispatch(), resend=sent)
    assert times == [400, 1_200, 2_700, 4_200, 5_700, 7_200, 12_200]


def test_dispatch_that_another_edge_may_have_sent_names_an_earlier_send() -> None:
    case = Case()
    case.core.open_session("s-2", resumed=True)
    first = msgspec.structs.replace(dispatch(), request_id="r-2", session_id="s-2")
    [sent] = case.core.submit(first, b"work", b"audio", 60_000, 0)
    assert isinstance(sent, SendDispatch)
    assert (sent.request.frame(sent.attempt).resend, case.request.dispatch.resend) == (1, 0)


def test_placed_is_told_once_and_asked_after_now_and_then() -> None:
    case = Case()
    assert [type(effect) for effect in case.do(case.core.on_placed(placed(), 50))] == [NotifyPlaced]
    assert case.do(case.core.on_placed(placed(), 60)) == []
    assert case.request.current.stage is Stage.PLACED and case.core.table.timers.next_due_ms() == 5_060
    assert [type(effect) for effect in case.do(case.core.tick(5_060))] == [SendDispatch]
    assert case.request.current.stage is Stage.PLACED and case.core.table.timers.next_due_ms() == 10_060


def test_result_is_delivered_once_and_every_repeat_is_answered() -> None:
    case = Case()
    case.core.on_placed(placed(), 10)
    effects = case.do(case.core.on_push(push(), RESULT, 20))
    assert [type(effect) for effect in effects] == [Deliver], "the session acknowledges it"
    (again,) = case.do(case.core.on_push(push(), RESULT, 30))
    assert isinstance(again, Reject) and again.verdict == "duplicate"
    assert case.core.table.ended == {"delivered": 1} and case.core.table.timers.next_due_ms() is None
    assert case.core.submit(dispatch(), b"", b"", 99, 40) == [], "the same request again makes no second job"


def test_result_before_placed_is_delivered_and_a_late_placed_cancels_nothing() -> None:
    case = Case()
    (delivered,) = case.do(case.core.on_push(push(), RESULT, 20))
    assert isinstance(delivered, Deliver)
    assert case.core.table.timers.next_due_ms() is None, "its Dispatch is not retried"
    for now_ms in (25, 400):
        assert case.do(case.core.on_placed(placed(), now_ms)) == [], "the job is done, at the node that gave the result"
    (again,) = case.do(case.core.on_push(push(), RESULT, 500))
    assert isinstance(again, Reject) and again.verdict == "duplicate"
    assert case.core.table.ended == {"delivered": 1}


def test_result_of_an_attempt_that_waits_or_is_retried_is_delivered() -> None:
    for before in (Waiting("r", 1, "full", 100), refused(100), None):
        case = Case()
        if isinstance(before, Waiting):
            case.do(case.core.on_waiting(before, 5))
        elif isinstance(before, Refused):
            case.do(case.core.on_refused(before, 5))
        else:
            case.do(case.core.tick(400))
        (delivered,) = case.do(case.core.on_push(push(), RESULT, 500))
        assert isinstance(delivered, Deliver), "a reply about an earlier copy of its Dispatch was late"


def test_failure_before_placed_begins_the_next_attempt_and_a_late_placed_of_the_first_is_cancelled() -> None:
    case = Case()
    effects = case.do(case.core.on_push(push(), failed(next(iter(FAILOVER_CODES))), 20))
    assert [type(effect) for effect in effects] == [AckResult, SendDispatch]
    assert "n" in case.request.excluded
    (cancel,) = case.do(case.core.on_placed(placed(), 25))
    assert isinstance(cancel, SendCancel) and cancel.cancel.attempt == 1
    assert case.request.current.number == 2 and case.request.current.stage is Stage.SENDING


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        (push(attempt=2), "fenced"),
        (push(attempt=0), "fenced"),
        (push(request_id="other"), "duplicate"),
        (push(session_id="elsewhere"), "no_session"),
        (push(request_id="other", session_id="elsewhere"), "no_session"),
        (push(request_id="", job_id="job-00-2"), "no_session"),
        (push(request_id="", node_id="forger"), "no_session"),
        (push(request_id="", session_id="elsewhere"), "no_session"),
    ],
)
def test_results_that_are_not_wanted(message: Push, verdict: str) -> None:
    case = Case()
    case.core.on_placed(placed(), 10)
    (ack,) = case.do(case.core.on_push(message, RESULT, 20))
    assert isinstance(ack, Reject) and ack.verdict == verdict
    assert "r" in case.core.requests


def test_result_whose_edge_forgot_the_request_is_known_by_its_job() -> None:
    case = Case()
    case.core.on_placed(placed(), 10)
    effects = case.do(case.core.on_push(push(request_id=""), RESULT, 20))
    assert isinstance(effects[0], Deliver) and effects[0].request.request_id == "r"


def test_undone_moves_on_at_once_then_slower_then_gives_up() -> None:
    case = Case()
    case.core.on_placed(placed(), 10)
    (second,) = case.do(case.core.on_undone(undone(1, reason="node_stuck"), 20))
    assert isinstance(second, SendDispatch)
    frame = second.request.frame(second.attempt)
    assert (frame.attempt, frame.excluded, frame.beside) == (2, ["n1"], False)
    repeated = case.do(case.core.on_undone(undone(1, reason="node_stuck"), 25))
    assert repeated == [], "a repeat of the old word changes nothing"
    assert case.do(case.core.on_undone(undone(2, reason="node_stuck"), 30)) == []
    assert case.core.table.timers.next_due_ms() == 430
    (third,) = case.do(case.core.tick(430))
    assert isinstance(third, SendDispatch) and third.request.frame(third.attempt).excluded == ["n1", "n2"]
    (fail,) = case.do(case.core.on_undone(undone(3, reason="node_stuck"), 500))
    assert isinstance(fail, Fail) and fail.code is ErrorCode.NODE_UNAVAILABLE


def test_attempts_that_nobody_is_to_blame_for_do_not_count_but_are_bounded() -> None:
    case = Case()
    now = 0
    for number in range(1, BLAMELESS_MAX + 3):
        now += 1_000
        case.do(case.core.on_undone(undone(number, reason="unroutable", exclude=False), now))
        case.do(case.core.tick(now + 500))
        assert "failed" not in case.core.table.ended, f"after {number}"
    effects = case.do(case.core.on_undone(undone(BLAMELESS_MAX + 3, reason="unroutable"), now + 900))
    assert isinstance(effects[0], Fail) and effects[0].code is ErrorCode.NODE_UNAVAILABLE


def test_refused_rests_as_told_and_reports_the_last_reason_at_the_deadline() -> None:
    case = Case(deadline_ms=1_000)
    assert case.do(case.core.on_refused(refused(100), 10)) == []
    assert case.core.table.timers.next_due_ms() == 110
    assert [type(effect) for effect in case.do(case.core.tick(110))] == [SendDispatch]
    assert case.do(case.core.on_refused(refused(5_000), 120)) == []
    fail, cancel = case.do(case.core.tick(1_000))
    assert isinstance(fail, Fail) and fail.code is ErrorCode.NO_AVAILABLE_NODE
    assert fail.details == {
        "reason": "language", "removed": {"language": 4}, "nearest_node": "n7", "nearest": "no slot free",
        "waited_ms": 1_000, "retry_after_ms": 5_000,
    }  # fmt: skip
    assert isinstance(cancel, SendCancel) and cancel.cancel.reason == "no_available_node"
    assert case.core.table.counts()["refused"] == 1


@pytest.mark.parametrize(
    ("removed", "excluded"),
    [
        ({"excluded": 1}, []),
        ({"excluded": 1, "lang_pair_unsupported": 7, "offline": 2}, []),
        ({"excluded": 1, "capacity_exceeded": 2}, ["n1"]),
        ({"lang_pair_unsupported": 7}, ["n1"]),
    ],
)
def test_excluded_nodes_may_be_tried_again_if_there_are_no_others(removed: dict[str, int], excluded: list[str]) -> None:
    case = Case()
    case.core.on_undone(undone(1), 20)
    case.do(case.core.on_refused(Refused("r", 2, "NO_AVAILABLE_NODE", "x", removed, 100), 30))
    (again,) = case.do(case.core.tick(130))
    assert isinstance(again, SendDispatch) and again.request.frame(again.attempt).excluded == excluded
    assert again.request.frame(again.attempt).attempt == 2


def test_refused_for_good_fails_at_once_unless_a_node_has_it() -> None:
    case = Case()
    (fail,) = case.do(case.core.on_refused(refused(0), 10))
    assert isinstance(fail, Fail)
    case = Case()
    case.core.on_placed(placed(), 5)
    assert case.do(case.core.on_refused(refused(0), 10)) == []


def test_deadline_of_a_placed_job_cancels_it() -> None:
    case = Case(deadline_ms=3_000)
    case.core.on_placed(placed(), 10)
    fail, cancel = case.do(case.core.tick(3_000))
    assert isinstance(fail, Fail) and fail.code is ErrorCode.JOB_TIMEOUT
    assert isinstance(cancel, SendCancel) and cancel.cancel.job_id == "job-00-1"
    (ack,) = case.do(case.core.on_push(push(), RESULT, 3_100))
    assert isinstance(ack, Reject) and ack.verdict == "duplicate"


def test_busy_tells_the_client_and_waits_longer_each_time() -> None:
    case = Case()
    waits = []
    for _ in range(3):
        (slow,) = case.do(case.core.on_busy(dispatch(), 50, 0))
        assert isinstance(slow, NotifyBackpressure)
        waits.append(slow.resume_after_ms)
        case.do(case.core.tick(slow.resume_after_ms))
    assert waits == [50, 100, 200]
    case.core.on_placed(placed(), 300)
    assert case.do(case.core.on_busy(dispatch(), 50, 310)) == [], "the node has it"


def test_bounce_tries_again_sooner_than_silence() -> None:
    case = Case()
    assert case.do(case.core.on_bounce(dispatch(), 10)) == []
    due = case.core.table.timers.next_due_ms()
    assert due is not None and 10 < due < 400
    assert [type(effect) for effect in case.do(case.core.tick(due))] == [SendDispatch]


def test_closing_the_session_abandons_and_cancels_what_waits() -> None:
    case = Case()
    (cancel,) = case.do(case.core.close_session("s", 10))
    assert isinstance(cancel, SendCancel) and case.core.table.ended == {"cancelled": 1}
    (ack,) = case.do(case.core.on_push(push(), RESULT, 20))
    assert isinstance(ack, Reject) and ack.verdict == "duplicate", "its keeper need not go on"
    assert case.do(case.core.close_session("s", 30)) == []


def test_audio_is_counted_and_given_back() -> None:
    case = Case()
    assert (case.core.table.audio_bytes, case.core.table.bytes_of) == (5, {"s": 5})
    case.core.on_push(push(), RESULT, 1)
    assert (case.core.table.audio_bytes, case.core.table.bytes_of) == (0, {})


# --- waiting, time-outs -----------------------------------------------------------------------------


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


def test_waiting_rests_as_told_and_is_no_resend() -> None:
    case = Case()
    for now in (100, 1_100, 2_100):
        assert case.do(case.core.on_waiting(Waiting("r", 1, "capacity_exceeded", 1_000), now)) == []
        assert case.core.table.timers.next_due_ms() == now + 1_000
        (again,) = case.do(case.core.tick(now + 1_000))
        assert isinstance(again, SendDispatch) and again.reason is SendReason.POLL
    assert case.do(case.core.on_placed(placed(), 3_200)) and case.request.current.stage is Stage.PLACED
    assert case.do(case.core.on_waiting(Waiting("r", 1, "capacity_exceeded", 1_000), 3_300)) == []
    assert case.request.current.stage is Stage.PLACED, "an old word"


def test_refused_after_waiting_in_line_is_the_end_and_tells_the_nearest() -> None:
    case = Case()
    case.core.on_waiting(Waiting("r", 1, "capacity_exceeded", 1_000), 10)
    word = Refused(
        "r", 1, "NO_AVAILABLE_NODE", "capacity_exceeded", {"capacity_exceeded": 2}, 100, "n2", "full", 10_000
    )
    fail, cancel = case.do(case.core.on_refused(word, 10_020))
    assert isinstance(fail, Fail) and fail.details is not None
    assert (fail.details["nearest_node"], fail.details["nearest"]) == ("n2", "full")
    assert fail.message == "no node can take the utterance: capacity_exceeded; n2 came closest: full"
    assert (fail.details["waited_ms"], fail.details["retry_after_ms"]) == (10_020, 100)
    assert isinstance(cancel, SendCancel), "it may still stand in line elsewhere"


@pytest.mark.parametrize(("in_line", "code"), [(True, "NO_AVAILABLE_NODE"), (False, "JOB_TIMEOUT")])
def test_attempt_that_no_selector_decides_on_ends_by_itself(in_line: bool, code: str) -> None:
    case = Case()
    if in_line:
        case.core.on_waiting(Waiting("r", 1, "capacity_exceeded", 60_000), 10)
    effects: list[Effect] = []
    while not any(isinstance(effect, Fail) for effect in effects):
        due = case.core.table.timers.next_due_ms()
        assert due is not None and due <= 15_000
        effects = case.do(case.core.tick(due))
    fail, cancel = effects
    assert isinstance(fail, Fail) and fail.code.name == code and due == 15_000
    assert isinstance(cancel, SendCancel)


def test_node_that_keeps_a_job_too_long_loses_it_to_another_until_attempts_run_out() -> None:
    case = Case(deadline_ms=200_000)
    now = 0
    for number in (1, 2, 3):
        case.core.on_placed(placed(number, f"job-00-{number}", node_id=f"n{number}"), now)
        limit = now + 15_000 + 2 * 1_000
        while (due := case.core.table.timers.next_due_ms()) is not None and due < limit:
            assert kinds(case.do(case.core.tick(due))) == [SendDispatch]
        effects = case.do(case.core.tick(limit))
        now = limit
        if number < 3:
            cancel, following = effects
            assert isinstance(following, SendDispatch) and following.reason is SendReason.NEXT_ATTEMPT
            assert following.request.frame(following.attempt).excluded == [f"n{gone}" for gone in range(1, number + 1)]
        else:
            fail, cancel = effects
            assert isinstance(fail, Fail) and fail.code is ErrorCode.JOB_TIMEOUT
        assert isinstance(cancel, SendCancel) and cancel.cancel.reason == "job_timeout"
        assert (cancel.cancel.job_id, cancel.cancel.attempt) == (f"job-00-{number}", number)
        (late,) = case.do(case.core.on_push(push(number, job_id=f"job-00-{number}"), RESULT, now))
        assert isinstance(late, Reject) and late.verdict == ("fenced" if number < 3 else "duplicate")


@pytest.mark.parametrize("reason", ["node_error", "drained"])
def test_sure_word_of_a_node_moves_the_job_at_once_every_time(reason: str) -> None:
    case = Case()
    for number in (1, 2):
        (following,) = case.do(case.core.on_undone(undone(number, False, reason), 10))
        assert isinstance(following, SendDispatch)
    assert case.request.excluded == ["n1", "n2"]


# --- failures of nodes ------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [*sorted(FAILOVER_CODES), " model_not_available", None])
def test_failure_that_another_node_may_not_have_moves_the_job_at_once(code: str | None) -> None:
    case = Case()
    case.core.on_placed(placed(), 10)
    ack, following = case.do(case.core.on_push(push(), failed(code), 20))
    assert isinstance(ack, AckResult) and ack.verdict == "delivered", "its keeper may stop"
    assert isinstance(following, SendDispatch) and following.reason is SendReason.NEXT_ATTEMPT
    assert following.request.frame(following.attempt).excluded == ["n"]
    delivered, *_ = case.do(case.core.on_push(push(2, node_id="n2"), RESULT, 30))
    assert isinstance(delivered, Deliver) and delivered.result is RESULT
    assert case.core.table.counts()["delivered"] == 1


def test_other_failures_are_the_answer() -> None:
    case = Case()
    (delivered,) = case.do(case.core.on_push(push(), failed("NMT_TIMEOUT"), 20))
    assert isinstance(delivered, Deliver)
    assert case.core.table.ended == {"failed": 1}


def test_last_failure_is_told_when_attempts_run_out() -> None:
    case = Case()
    words = [failed("NODE_OVERLOADED"), failed("MODEL_NOT_AVAILABLE"), failed("INTERNAL_ERROR")]
    for number, word in enumerate(words[:2], 1):
        assert kinds(case.do(case.core.on_push(push(number), word, number))) == [AckResult, SendDispatch]
    ack, told = case.do(case.core.on_push(push(3), words[2], 3))
    assert isinstance(told, Deliver) and told.result is words[2] and isinstance(ack, AckResult)
    assert case.core.table.ended == {"failed": 1}


@pytest.mark.parametrize(
    ("removed", "retry_after_ms", "ends"),
    [
        ({"excluded": 1}, 100, True),
        ({"excluded": 1, "lang_pair_unsupported": 3}, 0, True),
        ({"excluded": 1, "capacity_exceeded": 1}, 100, False),
    ],
)
def test_failure_is_told_when_no_other_node_can_be_had(
    removed: dict[str, int], retry_after_ms: int, ends: bool
) -> None:
    case = Case()
    word = failed("MODEL_NOT_AVAILABLE")
    case.core.on_push(push(), word, 10)
    effects = case.do(case.core.on_refused(Refused("r", 2, "NO_AVAILABLE_NODE", "x", removed, retry_after_ms), 20))
    assert kinds(effects) == ([Deliver] if ends else [])
    if ends:
        assert isinstance(effects[0], Deliver) and effects[0].result is word


# --- hedges -----------------------------------------------------------------------------------------


def hedged(**limits: Any) -> Case:
    """A request whose first node is late, with a hedge on its way."""
    case = Case(hedge_percent=100.0, **limits)
    case.core.on_placed(placed(late_after_ms=800), 10)
    (hedge,) = case.do(case.core.tick(810))
    assert isinstance(hedge, SendDispatch) and hedge.reason is SendReason.HEDGE
    frame = hedge.request.frame(hedge.attempt)
    assert (frame.attempt, frame.beside, frame.excluded) == (2, True, ["n"])
    return case


def outcomes(effects: list[Effect]) -> list[str]:
    return [effect.outcome for effect in effects if isinstance(effect, CountHedge)]


def test_hedging_is_off_by_default_and_needs_a_late_node() -> None:
    case = Case()
    case.core.on_placed(placed(late_after_ms=800), 10)
    assert case.do(case.core.tick(810)) == []
    case = Case(hedge_percent=100.0)
    case.core.on_placed(placed(), 10)
    assert kinds(case.do(case.core.tick(5_010))) == [SendDispatch] and case.request.hedge is None


@pytest.mark.parametrize("winner", [1, 2])
@pytest.mark.parametrize("known", [True, False])
def test_first_result_counts_and_the_other_attempt_is_cancelled(winner: int, known: bool) -> None:
    case = hedged()
    if known:
        case.core.on_placed(placed(2, "job-00-2", node_id="n2"), 820)
    came = push(winner, job_id=f"job-00-{winner}", node_id="n" if winner == 1 else "n2")
    delivered, cancel, count = case.do(case.core.on_push(came, RESULT, 900))
    assert isinstance(delivered, Deliver)
    assert isinstance(cancel, SendCancel) and cancel.cancel.attempt == 3 - winner
    assert cancel.cancel.job_id == ("job-00-1" if winner == 2 else "job-00-2" if known else "")
    assert outcomes([count]) == ["won" if winner == 2 else "lost"]
    (late,) = case.do(case.core.on_push(push(3 - winner), RESULT, 910))
    assert isinstance(late, Reject) and late.verdict == "duplicate"
    assert case.core.table.timers.next_due_ms() is None


@pytest.mark.parametrize(
    ("word", "outcome"),
    [
        (lambda core: core.on_refused(refused(0, 2), 820), "refused"),
        (lambda core: core.on_waiting(Waiting("r", 2, "capacity_exceeded", 1_000), 820), "refused"),
        (lambda core: core.on_busy(dispatch(attempt=2), 50, 820), "refused"),
        (lambda core: core.on_undone(undone(2), 820), "failed"),
        (lambda core: core.on_push(push(2), failed(), 820), "failed"),
    ],
)
def test_hedge_that_comes_to_nothing_leaves_the_first_alone(word: Any, outcome: str) -> None:
    case = hedged()
    effects = case.do(word(case.core))
    assert outcomes(effects) == [outcome] and not any(isinstance(one, SendCancel | Fail) for one in effects)
    assert case.request.current.number == 1 and case.request.hedge is None
    if outcome == "refused":
        (cancel,) = case.do(case.core.on_placed(placed(2, "job-00-2", node_id="n2"), 830))
        assert isinstance(cancel, SendCancel) and cancel.cancel.job_id == "job-00-2", "it got through in spite of that"
    assert kinds(case.do(case.core.on_push(push(), RESULT, 900))) == [Deliver]


@pytest.mark.parametrize(
    "word",
    [
        lambda core: core.on_undone(undone(1), 820),
        lambda core: core.on_push(push(1), failed("NODE_OVERLOADED"), 820),
    ],
)
def test_hedge_takes_the_place_of_a_first_attempt_that_comes_to_nothing(word: Any) -> None:
    case = hedged()
    effects = case.do(word(case.core))
    assert outcomes(effects) == ["promoted"] and not any(isinstance(one, SendDispatch) for one in effects)
    assert case.request.current.number == 2 and not case.request.frame(case.request.current).beside
    (third,) = case.do(case.core.on_push(push(2, node_id="n2"), failed(), 830))[1:]
    assert isinstance(third, SendDispatch) and third.attempt.number == 3
    assert kinds(case.do(case.core.on_push(push(3), RESULT, 900))) == [Deliver]


def test_dispatched_time_out_with_a_hedge_cancels_only_the_first() -> None:
    case = hedged(dispatched_ms=1_000)
    case.core.on_placed(placed(2, "job-00-2", node_id="n2"), 820)
    cancel, count = case.do(case.core.tick(10 + 1_000 + 2_000))
    assert isinstance(cancel, SendCancel) and cancel.cancel.job_id == "job-00-1" and outcomes([count]) == ["promoted"]


def test_hedge_that_nobody_answers_or_that_is_late_too_is_given_up() -> None:
    case = hedged(pending_ms=1_000)
    effects: list[Effect] = []
    while not outcomes(effects):
        due = case.core.table.timers.next_due_ms()
        assert due is not None
        effects = case.do(case.core.tick(due))
    assert outcomes(effects) == ["failed"] and not any(isinstance(one, SendCancel) for one in effects)
    assert case.request.current.number == 1


def test_closing_the_session_cancels_both_attempts() -> None:
    case = hedged()
    effects = case.do(case.core.close_session("s", 900))
    assert [one.cancel.attempt for one in effects if isinstance(one, SendCancel)] == [1, 2]
    assert outcomes(effects) == ["cancelled"] and case.core.table.ended == {"cancelled": 1}


def test_node_that_gets_an_attempt_after_the_end_is_stopped() -> None:
    case = hedged()
    assert case.core.on_push(push(), RESULT, 900)
    assert case.do(case.core.on_placed(placed(), 910)) == [], "that is the one which brought the result"
    (stop,) = case.do(case.core.on_placed(placed(2, "job-00-2", node_id="n2"), 920))
    assert isinstance(stop, SendCancel)
    assert (stop.cancel.job_id, stop.cancel.attempt, stop.cancel.node_id) == ("job-00-2", 2, "n2")
    assert stop.cancel.session_id == "s"
    case = Case()
    case.core.close_session("s", 10)
    (stop,) = case.do(case.core.on_placed(placed(), 20))
    assert isinstance(stop, SendCancel) and stop.cancel.job_id == "job-00-1", "the Dispatch had overtaken its Cancel"
    assert case.core.on_placed(placed(request_id="never heard of"), 30) == []


@pytest.mark.parametrize(("percent", "accepted", "hedges"), [(3.0, 100, 3), (3.0, 99, 2), (3.0, 33, 0), (100.0, 5, 5)])
def test_hedges_stay_within_their_part_of_all_utterances(percent: float, accepted: int, hedges: int) -> None:
    core = RequestTracker(LIMITS._replace(hedge_percent=percent))
    core.open_session("s")
    for number in range(accepted):
        core.submit(dispatch(f"r{number}"), b"", b"", 60_000, 0)
        core.on_placed(placed(job_id=f"job-00-{number}", request_id=f"r{number}", late_after_ms=100), 0)
        core.check()
    effects = core.tick(100)
    core.check()
    assert len([one for one in effects if isinstance(one, SendDispatch)]) == hedges
    assert outcomes(effects) == ["over_budget"] * (accepted - hedges)


# --- all together -----------------------------------------------------------------------------------

RESULTS = st.sampled_from([RESULT, None, failed(), failed("NMT_TIMEOUT")])
EVENTS = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 5)),
    st.tuples(st.just("placed"), st.integers(0, 5), st.integers(1, 4)),
    st.tuples(st.just("refused"), st.integers(0, 5), st.integers(1, 4), st.sampled_from([0, 50])),
    st.tuples(st.just("undone"), st.integers(0, 5), st.integers(1, 4), st.sampled_from(["x", "node_error"])),
    st.tuples(st.just("waiting"), st.integers(0, 5), st.integers(1, 4)),
    st.tuples(st.just("busy"), st.integers(0, 5), st.integers(1, 4)),
    st.tuples(st.just("bounce"), st.integers(0, 5), st.integers(1, 4)),
    st.tuples(st.just("push"), st.integers(0, 5), st.integers(0, 4), st.booleans(), RESULTS),
    st.tuples(st.just("wait"), st.integers(0, 3_000)),
    st.tuples(st.just("close"), st.integers(0, 1)),
)


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=60))
def test_any_sequence_of_answers_ends_each_request_at_most_once(events: list[Any]) -> None:
    limits = LIMITS._replace(hedge_percent=100.0, pending_ms=1_500, dispatched_ms=500)
    core, now, ends = RequestTracker(limits), 0, []
    for number in (0, 1):
        core.open_session(f"s{number}")
    for kind, *rest in events:
        name = f"r{rest[0]}"
        frame = dispatch(name, session_id=f"s{rest[0] % 2}", attempt=rest[1] if len(rest) > 1 else 1)
        effects: list[Effect] = []
        if kind == "submit":
            core.open_session(frame.session_id)
            effects = core.submit(frame, b"", b"audio", now + 4_000, now)
        elif kind == "placed":
            effects = core.on_placed(placed(rest[1], f"job-00-{rest[0]}", name, f"n{rest[1]}", 100), now)
        elif kind == "refused":
            effects = core.on_refused(Refused(name, rest[1], "NO_AVAILABLE_NODE", "x", {}, rest[2]), now)
        elif kind == "undone":
            effects = core.on_undone(Undone(name, rest[1], "j", "n", rest[2], True), now)
        elif kind == "waiting":
            effects = core.on_waiting(Waiting(name, rest[1], "capacity_exceeded", 300), now)
        elif kind == "busy":
            effects = core.on_busy(frame, 50, now)
        elif kind == "bounce":
            effects = core.on_bounce(frame, now)
        elif kind == "push":
            named = name if rest[2] else ""
            came = push(rest[1], request_id=named, session_id=frame.session_id, job_id=f"job-00-{rest[0]}")
            effects = core.on_push(came, rest[3], now)
        elif kind == "wait":
            now += rest[0]
            effects = core.tick(now)
        else:
            effects = core.close_session(f"s{rest[0]}", now)
        ends += [effect.request for effect in effects if isinstance(effect, Deliver | Fail)]
        core.check()
    assert len(ends) == len({id(request) for request in ends}), "one request, two ends"
    counts = core.table.counts()
    assert len(ends) == counts["delivered"] + counts["failed"] + counts["refused"]
    assert counts["accepted"] == sum(counts.values()) - counts["accepted"]
