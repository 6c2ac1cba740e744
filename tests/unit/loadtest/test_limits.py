"""The verdict on each limit."""

from __future__ import annotations

from loadtest.delivery import Metric
from loadtest.limits import Limits, Row, judge

GOOD = [
    Row("utterance", Metric.RESULT, 10, 0, 80),
    Row("room", Metric.RESULT, 5, 0, 90),
    Row("room", Metric.ROOM, 10, 0, 95),
    Row("resume", Metric.RESUMED_RESULT, 5, 0, 900),
    Row("node", Metric.NODE, 2, 0, 5),
]


def missed(rows: list[Row], limits: Limits | None = None, user_errors: int = 0, broken: str = "") -> list[str]:
    verdicts = judge(rows, limits or Limits(100), user_errors=user_errors, broken_invariants=broken)
    return [verdict.name for verdict in verdicts if not verdict.held]


def test_a_good_run_holds_every_limit() -> None:
    assert missed(GOOD) == []


def test_the_slowest_kind_is_judged_and_a_resumed_result_is_not() -> None:
    assert missed(GOOD, Limits(90)) == ["p95 of utterance -> result, room"]


def test_a_missing_result_a_duplicate_and_a_violation_are_limits_of_their_own() -> None:
    assert missed([*GOOD, Row("room", Metric.ROOM, 1, 1, 0)]) == ["missing results", "failures"]
    for metric, name in (
        (Metric.ORDER, "order violations"),
        (Metric.DUPLICATE, "duplicate results"),
        (Metric.CONTENT, "results of other audio"),
    ):
        assert missed([*GOOD, Row("room", metric, 1, 1, 0)], Limits(100, failures_max=1)) == [name]


def test_failures_of_users_and_of_the_mesh_are_judged() -> None:
    assert missed(GOOD, user_errors=1) == ["failures"]
    assert missed(GOOD, broken="oversold") == ["invariants of the mesh"]


def test_a_run_without_results_is_missed() -> None:
    assert missed([]) == ["results"]
    assert missed(GOOD, Limits(100, results_min=31)) == ["results"]


def test_a_verdict_is_one_line() -> None:
    verdict = judge(GOOD, Limits(50), user_errors=0, broken_invariants="")[6]
    assert str(verdict) == "MISSED  p95 of utterance -> result, room: 90 ms (limit below 50 ms)"
