"""Refusals: the reason, the nearest miss, whether waiting helps, and when to retry.

A full fleet scan is expensive. Forecasts are cached per needs for `selector.snapshot_ms`; at most FORECASTS_MAX scans
and FORECASTS_US of scanning per window.
"""

from __future__ import annotations

from typing import Final

from mesh import clock
from mesh.cells import cell_of
from mesh.log import get_logger
from mesh.words import DispatchOutcome, RefusalReason, SelectorStage
from selector.context import SelectorContext
from selector.core.filters import is_hopeless
from selector.core.job_rows import job_rows
from selector.core.kernel import examine
from selector.operators.decision_log import DecisionLog
from selector.placement.core import replies
from selector.placement.core.forecast import UNKNOWN_FORECAST, Forecast, forecast_of
from selector.placement.placement import Placement
from selector.placement.weights import CurrentWeights

#: A cell that was silent for longer may have nodes that the snapshot lacks: no refusal is final then.
SURE_MS: Final = 2_000
#: Different needs that are scanned per window, and the time after which no further scan begins. Other placements get
#: neither a nearest miss nor a forecast.
FORECASTS_MAX: Final = 16
FORECASTS_US: Final = 10_000
#: Audio lengths within the same step share a forecast.
AUDIO_STEP_MS: Final = 1_000


log = get_logger()


class Refusals:
    """Sends Refused, and decides whether a placement waits instead."""

    def __init__(self, context: SelectorContext, weights: CurrentWeights, decisions: DecisionLog) -> None:
        self._context = context
        self._config = context.config
        self._weights = weights
        self._decisions = decisions
        self._forecasts: dict[object, Forecast] = {}
        self._window_ms = 0
        self._spent_us = 0

    def is_worth_waiting(self, placement: Placement) -> bool:
        """True if a node may become available for it, or if the snapshot is too old to rule that out."""
        if placement.is_barred:
            return False
        return replies.is_worth_waiting(placement.dispatch, placement.removed_counts()) or (
            not placement.dispatch.beside and not self._is_sure()
        )

    def forecast(self, placement: Placement) -> Forecast:
        """The forecast for a placement, from the cache or by a scan of the fleet."""
        now_ms = clock.now_ms()
        if now_ms - self._window_ms > self._config.selector.snapshot_ms:
            self._forecasts.clear()
            self._window_ms, self._spent_us = now_ms, 0
        key = (placement.needs, placement.dispatch.audio_ms // AUDIO_STEP_MS)
        forecast = self._forecasts.get(key)
        if forecast is None:
            if len(self._forecasts) >= FORECASTS_MAX or self._spent_us >= FORECASTS_US:
                return UNKNOWN_FORECAST
            started_us = clock.wall_us()
            table, rules = self._context.table, self._weights.rules._replace(now_ms=now_ms)
            rows = job_rows([placement.dispatch], table, self._context.plan)
            examined = examine(table.columns, table.index(), rows, table.speeds.prior(), rules)
            forecast = self._forecasts[key] = forecast_of(examined, table, rules)
            self._spent_us += clock.wall_us() - started_us
        return forecast

    def refuse(self, placement: Placement, *, reason: str = "", ahead: int = 0) -> None:
        """Send Refused to the session's edge and record the decision."""
        dispatch, forecast, counts = placement.dispatch, self.forecast(placement), placement.removed_counts()
        retry_after_ms = 0
        if reason != RefusalReason.TOO_LATE and not self._is_hopeless(placement, counts):
            job = self._config.job
            retry_after_ms = forecast.retry_after_ms(ahead, job.retry_after_ms, job.pending_timeout_ms)
        waited_ms = placement.waited_ms(clock.now_ms())
        nearest = (forecast.nearest_node, forecast.nearest)
        frame = replies.refusal(dispatch, counts, retry_after_ms, reason=reason, nearest=nearest, waited_ms=waited_ms)
        self._count(placement, frame.reason, frame.removed)
        self._decisions.end(placement, DispatchOutcome.REFUSED, refused=frame, waited_ms=waited_ms)
        if frame.reason == RefusalReason.NO_NODES:
            ids = {"request_id": dispatch.request_id, "session_id": dispatch.session_id, "trace_id": dispatch.trace_id}
            log.warning("no_nodes", **ids)
        cell = cell_of(dispatch.session_id, self._config.mesh.cells)
        self._context.send(dispatch.edge, cell, frame, deadline_ms=dispatch.deadline_ms, prefer=placement.broker)

    def _is_hopeless(self, placement: Placement, counts: list[int]) -> bool:
        return placement.is_barred or (self._is_sure() and is_hopeless(counts))

    def _is_sure(self) -> bool:
        return self._context.snapshot.age_ms() <= SURE_MS

    def _count(self, placement: Placement, reason: str, removed: dict[str, int]) -> None:
        metrics = self._context.metrics
        metrics.dispatch_total.labels(DispatchOutcome.REFUSED).inc()
        by_pool = SelectorStage.PHASE3_TYPE if self._context.plan.enabled else SelectorStage.TYPES
        selector = SelectorStage.RESERVE if placement.conflicts else by_pool
        metrics.no_available_node_total.labels(selector, reason).inc()
        for name, count in removed.items():
            metrics.removed_total.labels(name).inc(count)
