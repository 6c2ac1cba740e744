"""Counts in which pools jobs found a node, under the names that the original system's dashboards know."""

from __future__ import annotations

from typing import Final

from mesh.words import FilterName, RefusalReason
from selector.core.interner import UNKNOWN
from selector.core.kernel import READY_STATUS
from selector.core.node_table import NodeTable
from selector.core.pools import PoolOrder
from selector.metrics import SelectorMetrics

#: Pools of one job that are counted as attempts; a ring of a thousand empty ones adds no information.
ATTEMPTS_MAX: Final = 16


class PoolMetrics:
    """scheduler_phase3_pool_selected_total and scheduler_phase3_pool_attempt_total."""

    def __init__(self, metrics: SelectorMetrics, table: NodeTable) -> None:
        self._metrics = metrics
        self._table = table

    def found(self, order: PoolOrder, pool: str) -> None:
        """A node was found in `pool`; the pools before it in the order failed."""
        before = order.order[: order.order.index(pool)] if pool in order.order else ()
        self._failed(before)
        self._metrics.pool_attempt_total.labels(pool, "success", "ok").inc()
        self._metrics.pool_selected_total.labels(pool, "hit", _text(pool != order.preferred)).inc()

    def missed(self, order: PoolOrder) -> None:
        """No pool had a node."""
        self._failed(order.order)
        self._metrics.pool_selected_total.labels(order.preferred, "miss", _text(len(order.order) > 1)).inc()

    def _failed(self, pools: tuple[str, ...]) -> None:
        for pool in pools[:ATTEMPTS_MAX]:
            self._metrics.pool_attempt_total.labels(pool, "fail", self._reason(pool)).inc()

    def _reason(self, pool: str) -> str:
        number = self._table.pools.find(pool)
        by_status = self._table.index().by_status
        if number == UNKNOWN or number >= len(by_status) or not by_status[number].sum():
            return RefusalReason.NO_NODES
        return "no_candidate" if by_status[number][READY_STATUS] else FilterName.STATUS


def _text(flag: bool) -> str:
    return "true" if flag else "false"
