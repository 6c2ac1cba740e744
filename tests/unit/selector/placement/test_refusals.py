"""Refusals with a real table and kernel, without Redis; with it: tests/loopback/selector/test_placement.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from mesh import clock
from mesh.config import Config
from mesh.frames import Refused
from mesh.words import DispatchOutcome, RefusalReason, SelectorStage
from selector.core.filters import Filter
from selector.metrics import SelectorMetrics
from selector.placement import refusals
from selector.placement.core.forecast import UNKNOWN_FORECAST
from selector.placement.placement import Placement
from selector.placement.refusals import FORECASTS_MAX, SURE_MS, Refusals
from tests.support.builders.selector import NO_POOLS, NOW_MS, facts, job, rules_of, table_of

CONFIG = Config()


class RefusalsBench:
    """Refusals of a selector that knows one full node; frames and decisions are recorded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.snapshot_age_ms = 0
        self.sent: list[tuple[str, Refused]] = []
        self.ended: list[DispatchOutcome] = []
        self.now_ms = NOW_MS
        self.metrics = SelectorMetrics(CollectorRegistry())
        context = SimpleNamespace(
            config=CONFIG,
            metrics=self.metrics,
            table=table_of(("n", facts()), used=4),
            snapshot=SimpleNamespace(age_ms=lambda: self.snapshot_age_ms),
            plan=NO_POOLS,
            send=lambda to, cell, frame, **_: self.sent.append((to, frame)),
        )
        weights = SimpleNamespace(rules=rules_of(CONFIG.weights, NOW_MS))
        decisions = SimpleNamespace(end=lambda placement, outcome, **_: self.ended.append(outcome))
        self.refusals = Refusals(cast(Any, context), cast(Any, weights), cast(Any, decisions))
        monkeypatch.setattr(clock, "now_ms", lambda: self.now_ms)
        monkeypatch.setattr(clock, "wall_us", lambda: 0)

    def refuse(self, placement: Placement, reason: str = "") -> Refused:
        self.refusals.refuse(placement, reason=reason)
        return self.sent[-1][1]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> RefusalsBench:
    return RefusalsBench(monkeypatch)


def placement(*obstacles: Filter, needs: str = "", **changes: Any) -> Placement:
    made = Placement(job(**changes), [b"audio"], "broker", "u", NOW_MS, needs=(needs,))
    made.removed = [obstacles.count(one) for one in Filter]
    return made


def test_refusal_has_the_reason_and_the_nearest_miss_and_is_counted(bench: RefusalsBench) -> None:
    frame = bench.refuse(placement(Filter.SLOT))
    assert (frame.reason, frame.removed) == ("capacity_exceeded", {"capacity_exceeded": 1})
    assert frame.nearest_node == "n" and frame.retry_after_ms >= CONFIG.job.retry_after_ms
    assert (bench.sent[0][0], bench.ended) == ("edge:a:1", [DispatchOutcome.REFUSED])
    assert bench.metrics.no_available_node_total.totals() == {(SelectorStage.TYPES, "capacity_exceeded"): 1}
    assert bench.metrics.removed_total.totals() == {("capacity_exceeded",): 1}


def test_conflict_of_commits_is_counted_as_such(bench: RefusalsBench) -> None:
    one = placement(Filter.SLOT)
    one.conflicts = 2
    bench.refuse(one)
    assert bench.metrics.no_available_node_total.totals() == {(SelectorStage.RESERVE, "capacity_exceeded"): 1}


def test_retry_is_not_offered_where_it_cannot_help(bench: RefusalsBench) -> None:
    barred = placement(Filter.SLOT)
    barred.is_barred = True
    assert bench.refuse(barred).retry_after_ms == 0
    assert bench.refuse(placement(Filter.SLOT), RefusalReason.TOO_LATE).retry_after_ms == 0
    assert bench.refuse(placement(Filter.TENANT)).retry_after_ms == 0


def test_no_refusal_is_final_while_the_snapshot_is_old(bench: RefusalsBench) -> None:
    one = placement(Filter.TENANT)
    assert not bench.refusals.is_worth_waiting(one)
    bench.snapshot_age_ms = SURE_MS + 1
    assert bench.refusals.is_worth_waiting(one)
    assert bench.refuse(one).retry_after_ms > 0
    assert not bench.refusals.is_worth_waiting(placement(Filter.TENANT, beside=True)), "a hedge never waits"
    one.is_barred = True
    assert not bench.refusals.is_worth_waiting(one), "its pools follow from the configuration"


def test_refusal_without_any_node_is_logged(bench: RefusalsBench) -> None:
    with capture_logs() as lines:
        bench.refuse(placement())
        bench.refuse(placement(Filter.SLOT))
    assert [(line["event"], line["request_id"]) for line in lines] == [("no_nodes", "r-1")]


def test_scans_are_shared_and_bounded_per_window(bench: RefusalsBench, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[object] = []
    forecast_of = refusals.forecast_of
    monkeypatch.setattr(refusals, "forecast_of", lambda *given: scans.append(given) or forecast_of(*given))
    first = bench.refusals.forecast(placement(Filter.SLOT))
    assert bench.refusals.forecast(placement(Filter.SLOT, audio_ms=1_999)) is first, "about the same length"
    assert len(scans) == 1
    found = [bench.refusals.forecast(placement(Filter.SLOT, needs=str(number))) for number in range(FORECASTS_MAX)]
    assert len(scans) == FORECASTS_MAX
    assert [one is UNKNOWN_FORECAST for one in found] == [False] * (FORECASTS_MAX - 1) + [True]
    bench.now_ms += CONFIG.selector.snapshot_ms + 1
    assert bench.refusals.forecast(placement(Filter.SLOT, needs="last")) is not UNKNOWN_FORECAST


def test_no_scan_begins_after_the_time_of_a_window_is_spent(
    bench: RefusalsBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_us = iter([0, refusals.FORECASTS_US])
    monkeypatch.setattr(clock, "wall_us", lambda: next(times_us))
    assert bench.refusals.forecast(placement(Filter.SLOT, needs="a")) is not UNKNOWN_FORECAST
    assert bench.refusals.forecast(placement(Filter.SLOT, needs="b")) is UNKNOWN_FORECAST
