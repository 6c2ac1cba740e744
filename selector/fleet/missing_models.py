"""Missing models: handles MODEL_NOT_AVAILABLE reports in batches, in a lane of their own.

One call of the store per batch: it rate-limits reports per node and marks the node, so that no selector places a job
that needs the service there. Our own columns are updated at once, other selectors' by their snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from lua.store.types.nodes import Mark, Marked
from mesh.cells import cell_of
from mesh.errors import StoreError
from mesh.frames import ModelMissing
from mesh.ids import is_id
from mesh.link.link import Received
from mesh.log import get_logger
from selector.context import SelectorContext
from selector.fleet.core.missing_model_counts import MissingModelCounts, as_id, reason_of

#: Pause after a batch: a burst becomes a few large batches, and placements go first.
GATHER_MS: Final = 50
#: Bound on the count in one frame, which a peer chooses.
COUNT_MAX: Final = 10_000

log = get_logger()


class MissingModels:
    """Handler of ModelMissing."""

    def __init__(self, context: SelectorContext) -> None:
        self.counts = MissingModelCounts()
        self._store = context.store
        self._table = context.table
        self._snapshot = context.snapshot
        self._cells = context.config.mesh.cells
        self._metrics = context.metrics
        models = context.config.models
        #: Service id -> its type, for reports without a type.
        self._types = {models.asr_service_id: "asr", models.nmt_service_id: "nmt", models.tts_service_id: "tts"}

    def on_dropped(self, message: Received) -> None:
        """Its lane was full."""
        assert isinstance(message.frame, ModelMissing)
        self._metrics.model_na_dropped_total.inc(_count(message.frame))

    async def on_model_missing(self, messages: list[Received]) -> None:
        """Count, mark, log."""
        frames = [message.frame for message in messages if isinstance(message.frame, ModelMissing)]
        marks: dict[tuple[str, int, str, str], int] = {}
        about: dict[tuple[str, str], ModelMissing] = {}
        for frame in frames:
            service_id = as_id(frame.service_id)
            if is_id(frame.node_id):
                key = (frame.node_id, frame.epoch, self._type_of(frame, service_id), service_id)
                marks[key] = marks.get(key, 0) + _count(frame)
                about[frame.node_id, service_id] = frame
        requested = [Mark(*key, count) for key, count in marks.items()]
        marked_by: dict[tuple[str, str], ModelMissing] = {}
        for mark, marked in zip(requested, await self._store.nodes.mark_models(requested), strict=True):
            if isinstance(marked, StoreError):
                self._metrics.store_errors_total.labels("model_mark").inc()
                log.warning("store_failed", frame="ModelMissing", node_id=mark.node_id, error=str(marked))
            elif self._take(mark, marked):
                frame = about[mark.node_id, mark.service_id]
                marked_by.setdefault((mark.service_id, as_id(frame.version, "")), frame)
        for frame in frames:  # last: a counted report has been handled
            self._count_received(frame)
        await self._log(marked_by)
        await asyncio.sleep(GATHER_MS / 1_000)

    def _type_of(self, frame: ModelMissing, service_id: str) -> str:
        return as_id(frame.service, "").lower() or self._types.get(service_id, service_id)

    def _take(self, mark: Mark, marked: Marked) -> bool:
        """Apply the store's verdict on one; True if the node is marked."""
        metrics = self._metrics
        if marked.verdict == "limited":
            metrics.model_na_rate_limited_total.inc(mark.count)
            metrics.model_na_rate_limited_by_node_total.labels(mark.node_id).inc(mark.count)
            if not self.counts.limited(mark.node_id, mark.count):
                metrics.model_na_other_total["rate_limited_node"].inc(mark.count)
        if marked.verdict != "marked":
            return False
        offset_ms = self._snapshot.clock_offset_ms(cell_of(mark.node_id, self._cells))
        self._table.set_marks(mark.node_id, {name: until + offset_ms for name, until in marked.marks.items()})
        metrics.model_na_marked_total.inc(mark.count)
        metrics.model_na_marked_by_node_total.labels(mark.node_id).inc(mark.count)
        if not self.counts.marked(mark.node_id, mark.count):
            metrics.model_na_other_total["marked_node"].inc(mark.count)
        return True

    def _count_received(self, frame: ModelMissing) -> None:
        metrics, count = self._metrics, _count(frame)
        service_id, reason = as_id(frame.service_id), reason_of(frame.reason)
        service_known, reason_known = self.counts.received(service_id, reason, count)
        metrics.model_na_received_total.inc(count)
        metrics.model_na_by_service_total.labels(service_id).inc(count)
        metrics.model_na_by_reason_total.labels(reason).inc(count)
        if not service_known:
            metrics.model_na_other_total["service"].inc(count)
        if not reason_known:
            metrics.model_na_other_total["reason"].inc(count)

    async def _log(self, marked_by: Mapping[tuple[str, str], ModelMissing]) -> None:
        """Log each (service, version) once per debounce interval, across all selectors."""
        pairs = list(marked_by.items())
        answers = await asyncio.gather(
            *(self._store.deployment.debounce(*names) for names, _ in pairs), return_exceptions=True
        )
        for ((service_id, version), frame), first in zip(pairs, answers, strict=True):
            if isinstance(first, BaseException):
                if not isinstance(first, StoreError):
                    raise first
                self._metrics.store_errors_total.labels("debounce").inc()
            elif first:
                log.warning(
                    "model_not_available",
                    service_id=service_id,
                    version=version,
                    node_id=frame.node_id,
                    reason=reason_of(frame.reason),
                )


def _count(frame: ModelMissing) -> int:
    return max(1, min(frame.count, COUNT_MAX))
