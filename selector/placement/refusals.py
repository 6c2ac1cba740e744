"""Requests that get no node: why, who came closest, whether waiting helps, and when to come again.

To examine the whole fleet costs more than to choose from it, so what was found counts for a moment, for all requests
with the same needs, and only so many different needs are examined in that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mesh import clock
from mesh.cells import cell_of
from mesh.config import Config
from mesh.link.link import Send
from mesh.log import get_logger
from mesh.words import DispatchOutcome, RefusalReason, SelectorStage
from selector.core.filters import is_hopeless
from selector.core.job_rows import job_rows
from selector.core.kernel import Rules, examine
from selector.core.node_table import NodeTable
from selector.core.pools import PoolPlan
from selector.fleet.snapshot import Snapshot
from selector.metrics import SelectorMetrics
from selector.operators.decision_log import DecisionLog
from selector.placement.core import replies
from selector.placement.core.forecast import NOTHING_KNOWN, Forecast, forecast_of
from selector.placement.placement import Placement

#: A cell that was silent for longer may have nodes that we do not know of: nobody is refused for good.
SURE_MS: Final = 2_000
#: Different needs that are examined per selector.snapshot_ms, and the time after which no other one is begun: in a
#: large fleet each takes long. Others hear no nearest miss and no forecast.
OUTLOOKS_MAX: Final = 16
OUTLOOKS_US: Final = 10_000
#: Audio within the same second has the same prospects.
AUDIO_STEP_MS: Final = 1_000


log = get_logger()


class Refusals:
    """Says no, and how long that holds."""

    def __init__(
        self,
        table: NodeTable,
        snapshot: Snapshot,
        config: Config,
        metrics: SelectorMetrics,
        send: Send,
        plan: PoolPlan,
        decisions: DecisionLog,
        rules: Callable[[int], Rules],
    ) -> None:
        self._table = table
        self._snapshot = snapshot
        self._config = config
        self._metrics = metrics
        self._send = send
        self._plan = plan
        self._decisions = decisions
        self._rules = rules
        self._outlooks: dict[object, Forecast] = {}
        self._looked_ms = 0
        self._spent_us = 0

    def is_worth_waiting(self, request: Placement) -> bool:
        """True if a node may come free for it, or if we cannot be sure that none will."""
        if request.is_barred:
            return False
        return replies.is_worth_waiting(request.dispatch, self._counts(request)) or (
            not request.dispatch.beside and not self._is_sure()
        )

    def outlook(self, request: Placement) -> Forecast:
        """What the request may expect."""
        now_ms = clock.now_ms()
        if now_ms - self._looked_ms > self._config.selector.snapshot_ms:
            self._outlooks.clear()
            self._looked_ms, self._spent_us = now_ms, 0
        key = (request.needs, request.dispatch.audio_ms // AUDIO_STEP_MS)
        outlook = self._outlooks.get(key)
        if outlook is None:
            if len(self._outlooks) >= OUTLOOKS_MAX or self._spent_us >= OUTLOOKS_US:
                return NOTHING_KNOWN
            started_us = clock.wall_us()
            table, rules = self._table, self._rules(now_ms)
            rows = job_rows([request.dispatch], table, self._plan)
            examined = examine(table.columns, table.index(), rows, table.prior(), rules)
            outlook = self._outlooks[key] = forecast_of(examined, table, rules)
            self._spent_us += clock.wall_us() - started_us
        return outlook

    def refuse(self, request: Placement, *, reason: str = "", ahead: int = 0) -> None:
        """Tell the session's edge, with all that it may want to know."""
        dispatch, outlook, counts = request.dispatch, self.outlook(request), self._counts(request)
        retry_after_ms = 0
        if reason != RefusalReason.TOO_LATE and not self._is_hopeless(request, counts):
            job = self._config.job
            retry_after_ms = outlook.retry_after_ms(ahead, job.retry_after_ms, job.pending_timeout_ms)
        waited_ms = request.waited_ms(clock.now_ms())
        nearest = (outlook.nearest_node, outlook.nearest)
        frame = replies.refusal(dispatch, counts, retry_after_ms, reason=reason, nearest=nearest, waited_ms=waited_ms)
        self._count(request, frame.reason, frame.removed)
        self._decisions.end(request, DispatchOutcome.REFUSED, refused=frame, waited_ms=waited_ms)
        if frame.reason == RefusalReason.NO_NODES:
            log.warning("no_nodes", request_id=dispatch.request_id, session_id=dispatch.session_id,
                        trace_id=dispatch.trace_id)  # fmt: skip
        cell = cell_of(dispatch.session_id, self._config.mesh.cells)
        self._send(dispatch.edge, cell, frame, deadline_ms=dispatch.deadline_ms, prefer=request.broker)

    def reason(self, request: Placement) -> str:
        """What most nodes lack."""
        return replies.main_reason(self._counts(request))

    def _counts(self, request: Placement) -> list[int]:
        return replies.with_tried(request.removed, request.tried)

    def _is_hopeless(self, request: Placement, counts: list[int]) -> bool:
        return request.is_barred or (self._is_sure() and is_hopeless(counts))

    def _is_sure(self) -> bool:
        return self._snapshot.age_ms() <= SURE_MS

    def _count(self, request: Placement, reason: str, removed: dict[str, int]) -> None:
        metrics = self._metrics
        metrics.dispatch_total.labels(DispatchOutcome.REFUSED).inc()
        by_pool = SelectorStage.PHASE3_TYPE if self._plan.enabled else SelectorStage.TYPES
        selector = SelectorStage.RESERVE if request.conflicts else by_pool
        metrics.no_available_node_total.labels(selector, reason).inc()
        for name, count in removed.items():
            metrics.removed_total.labels(name).inc(count)
