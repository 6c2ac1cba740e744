"""The last step of a request: its outcome, the notification of its session, the cancels of other attempts."""

from __future__ import annotations

from edge.requests.core.completion import Completion
from edge.requests.core.hedge_budget import HedgeBudget
from edge.requests.core.request import Attempt, CountHedge, Deliver, Effect, Fail, Failure, Request, SendCancel
from edge.requests.core.table import RequestTable
from mesh.errors import ErrorCode
from mesh.words import EdgeCount, HedgeOutcome
from tests.unit.edge.requests.test_tracker import dispatch, failed, push, refused


class Case:
    """One request, with a hedge if wanted."""

    def __init__(self, *, hedged: bool = False) -> None:
        self.table = RequestTable(8, 30_000)
        self.table.open_session("s")
        self.budget = HedgeBudget(100.0)
        self.completion = Completion(self.table, self.budget)
        self.request = Request(dispatch(), b"", b"", 0, 60_000, Attempt(1, 100))
        self.table.add(self.request)
        self.hedge = Attempt(2, 200)
        if hedged:
            assert self.budget.take(1)
            self.request.hedge, self.request.attempts = self.hedge, 2


def cancelled(effects: list[Effect]) -> list[int]:
    return [one.cancel.attempt for one in effects if isinstance(one, SendCancel)]


def hedges(effects: list[Effect]) -> list[HedgeOutcome]:
    return [one.outcome for one in effects if isinstance(one, CountHedge)]


def test_finished_attempt_is_not_cancelled() -> None:
    case = Case()
    effects = case.completion.end(case.request, EdgeCount.DELIVERED, "superseded", 1, case.request.current)
    assert effects == [] and case.table.ended == {EdgeCount.DELIVERED: 1}


def test_hedge_that_finishes_has_won_and_the_first_attempt_is_cancelled() -> None:
    case = Case(hedged=True)
    effects = case.completion.end(case.request, EdgeCount.DELIVERED, "superseded", 1, case.hedge)
    assert cancelled(effects) == [1] and hedges(effects) == [HedgeOutcome.WON] and case.budget.live == 0


def test_hedge_beside_the_finished_attempt_has_lost() -> None:
    case = Case(hedged=True)
    effects = case.completion.end(case.request, EdgeCount.DELIVERED, "superseded", 1, case.request.current)
    assert cancelled(effects) == [2] and hedges(effects) == [HedgeOutcome.LOST]


def test_cancelled_request_cancels_both_attempts() -> None:
    case = Case(hedged=True)
    effects = case.completion.end(case.request, EdgeCount.CANCELLED, "session_closed", 1)
    assert cancelled(effects) == [1, 2] and hedges(effects) == [HedgeOutcome.CANCELLED]


def test_refusal_names_the_filters_and_the_nearest_node() -> None:
    case = Case()
    case.request.refusal, case.request.obstacle = refused(2_000), "language"
    fail, *_ = case.completion.refuse(case.request, 1_100)
    assert isinstance(fail, Fail) and fail.code is ErrorCode.NO_AVAILABLE_NODE and "n7 came closest" in fail.message
    assert fail.details is not None and fail.details["removed"] == {"language": 4}
    assert fail.details["waited_ms"] == 1_000 and case.table.ended == {EdgeCount.REFUSED: 1}


def test_reported_failure_takes_precedence_over_a_timeout() -> None:
    case = Case()
    result = failed()
    case.request.failure = Failure(push(), result)
    effects = case.completion.fail(case.request, ErrorCode.JOB_TIMEOUT, "too late", {}, 1)
    assert effects[0] == Deliver(case.request, push(), result) and case.table.ended == {EdgeCount.FAILED: 1}
