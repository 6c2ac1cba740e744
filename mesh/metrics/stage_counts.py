"""Histogram of the stages of an utterance in plain integers: the hot path adds, stage_collector.py exports."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from mesh.words import LatencyStage

#: Upper edges of the buckets, in microseconds; one more bucket is beyond the last.
STAGE_EDGES_US: Final = tuple(
    int(edge_ms * 1_000)
    for edge_ms in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
)
#: The stages in the order of frames' `stages`: `observe` takes an index of this.
STAGES: Final = tuple(LatencyStage)


class StageCounts:
    """Counts of the stages that one process measures."""

    def __init__(self, measured: Iterable[LatencyStage]) -> None:
        #: The stages that are exported.
        self.measured = tuple(measured)
        #: Per stage: observations by bucket, and their sum.
        self.buckets = [[0] * (len(STAGE_EDGES_US) + 1) for _ in STAGES]
        self.sums_us = [0] * len(STAGES)

    def observe_all(self, stages: Iterable[int], us: Sequence[int]) -> None:
        """Count one passage of each stage with these indices; `us` has the time of every stage."""
        buckets, sums_us = self.buckets, self.sums_us
        for stage in stages:
            buckets[stage][bisect_left(STAGE_EDGES_US, us[stage])] += 1
            sums_us[stage] += us[stage]

    def observe(self, stage: int, us: int) -> None:
        """Count one passage of the stage with this index."""
        self.buckets[stage][bisect_left(STAGE_EDGES_US, us)] += 1
        self.sums_us[stage] += us
