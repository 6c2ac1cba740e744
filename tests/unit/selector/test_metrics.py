"""Metrics of a selector: labels that follow from enums, and bounded ones."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from mesh.metrics import LABEL_VALUES_MAX, OTHER
from mesh.words import FilterName, QueryKind, RefusalReason, RoomAction, SelectorStage
from selector.metrics import SIGNAL_ACTION, UNKNOWN_ACTION, SelectorMetrics


@pytest.fixture
def metrics() -> SelectorMetrics:
    return SelectorMetrics(CollectorRegistry())


@pytest.mark.parametrize("reason", [*FilterName, *RefusalReason])
def test_every_reason_of_a_refusal_has_its_label(metrics: SelectorMetrics, reason: str) -> None:
    metrics.no_available_node_total.labels(SelectorStage.TYPES, reason).inc()
    assert metrics.no_available_node_total.totals() == {(SelectorStage.TYPES, reason): 1}


@pytest.mark.parametrize("kind", QueryKind)
def test_every_query_has_its_label(metrics: SelectorMetrics, kind: QueryKind) -> None:
    metrics.queries_total.labels(kind, "200").inc()
    assert metrics.queries_total.totals() == {(kind, "200"): 1}


@pytest.mark.parametrize("action", [*RoomAction, SIGNAL_ACTION, UNKNOWN_ACTION])
def test_every_room_action_has_its_label(metrics: SelectorMetrics, action: str) -> None:
    metrics.room_requests_total.labels(action, "ok").inc()
    assert metrics.room_requests_total.totals() == {(action, "ok"): 1}


def test_peer_cannot_create_series_without_bound(metrics: SelectorMetrics) -> None:
    for number in range(LABEL_VALUES_MAX + 3):
        metrics.model_na_marked_by_node_total.labels(f"node-{number}").inc()
    totals = metrics.model_na_marked_by_node_total.totals()
    assert (len(totals), totals[OTHER,]) == (LABEL_VALUES_MAX + 1, 3)
