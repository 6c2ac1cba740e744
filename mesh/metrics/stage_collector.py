"""Exports the histogram of stages to Prometheus: `lingua_stage_seconds{stage}`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mesh.metrics.stage_counts import STAGE_EDGES_US, STAGES, StageCounts

_US: Final = 1_000_000.0


class StageCollector(Collector):
    """Reads the counts at each scrape, from another thread: it sees integers, each consistent on its own."""

    def __init__(self, counts: StageCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """One histogram, with a series per measured stage."""
        counts = self._counts
        family = HistogramMetricFamily("lingua_stage_seconds", "Time of an utterance in each stage", labels=["stage"])
        for stage in counts.measured:
            index = STAGES.index(stage)
            running = 0
            buckets: list[tuple[str, float]] = []
            for edge_us, count in zip((*STAGE_EDGES_US, None), list(counts.buckets[index]), strict=True):
                running += count
                buckets.append(("+Inf" if edge_us is None else str(edge_us / _US), running))
            family.add_metric([stage.value], buckets, counts.sums_us[index] / _US)
        yield family
