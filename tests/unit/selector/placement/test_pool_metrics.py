from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from selector.core.pools import PoolOrder
from selector.metrics import SelectorMetrics
from selector.placement.pool_metrics import ATTEMPTS_MAX, PoolMetrics
from tests.support.builders.selector import facts, table_of

ORDER = PoolOrder("cap.1", ("cap.1", "cap.2", "cap.3", "cap.4"), ("cap.1", "cap.2", "cap.3", "cap.4"))


@pytest.fixture
def metrics() -> SelectorMetrics:
    return SelectorMetrics(CollectorRegistry())


@pytest.fixture
def pools(metrics: SelectorMetrics) -> PoolMetrics:
    """The first pool has a ready node, the second a draining one, the others none."""
    table = table_of(("a", facts(in_pools="cap.1")), ("b", facts(in_pools="cap.2", status="draining")))
    return PoolMetrics(metrics, table)


def test_first_pool_of_the_order_is_no_fallback(metrics: SelectorMetrics, pools: PoolMetrics) -> None:
    pools.found(ORDER, "cap.1")
    assert metrics.pool_selected_total.totals() == {("cap.1", "hit", "false"): 1}
    assert metrics.pool_attempt_total.totals() == {("cap.1", "success", "ok"): 1}


def test_pools_before_the_one_found_failed_each_for_its_reason(metrics: SelectorMetrics, pools: PoolMetrics) -> None:
    pools.found(ORDER, "cap.4")
    assert metrics.pool_selected_total.totals() == {("cap.4", "hit", "true"): 1}
    assert {(pool, reason) for pool, _, reason in metrics.pool_attempt_total.totals()} == {
        ("cap.1", "no_candidate"),
        ("cap.2", "status_not_ready"),
        ("cap.3", "no_nodes"),
        ("cap.4", "ok"),
    }


def test_node_outside_the_order_fails_no_pool(metrics: SelectorMetrics, pools: PoolMetrics) -> None:
    pools.found(ORDER, "cap.9")
    assert metrics.pool_attempt_total.totals() == {("cap.9", "success", "ok"): 1}
    assert metrics.pool_selected_total.totals() == {("cap.9", "hit", "true"): 1}


@pytest.mark.parametrize(("length", "fallback"), [(1, "false"), (4, "true")])
def test_miss_is_counted_for_the_preferred_pool(
    metrics: SelectorMetrics, pools: PoolMetrics, length: int, fallback: str
) -> None:
    pools.missed(ORDER._replace(order=ORDER.order[:length]))
    assert metrics.pool_selected_total.totals() == {("cap.1", "miss", fallback): 1}
    assert sum(metrics.pool_attempt_total.totals().values()) == length


def test_counted_attempts_of_one_job_are_bounded(metrics: SelectorMetrics, pools: PoolMetrics) -> None:
    ring = tuple(f"hash.{number}" for number in range(ATTEMPTS_MAX + 5))
    pools.missed(PoolOrder("hash.0", ring, ring))
    assert len(metrics.pool_attempt_total.totals()) == ATTEMPTS_MAX
