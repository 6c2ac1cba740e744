"""Missing models: coalesces MODEL_NOT_AVAILABLE reports of nodes per (node, service).

The first report is forwarded at once and marks the node; later ones are forwarded every 3 to 6 s (jittered) as one
frame with their count, at most FRAMES_PER_TICK per tick. Receiving a report only enqueues it: a node may send thousands
per second. Reports beyond the bounds are dropped and counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import msgspec

from edge.core.timers import Timers, Wake, no_wake
from mesh.frames import ModelMissing

#: Minimum interval between two frames about the same node and service; the jitter adds up to as much again.
INTERVAL_MS: Final = 3_000
#: Frames per tick; the others follow after TICK_MS.
FRAMES_PER_TICK: Final = 4
TICK_MS: Final = 20
#: Services of one node that are counted at a time; reports about more are dropped.
SERVICES_PER_NODE_MAX: Final = 32


@dataclass(slots=True)
class _Reports:
    #: The latest report; `count` is 0 once all are forwarded.
    latest: ModelMissing
    count: int


class MissingModelReports:
    """Reports that are not forwarded yet, by node and service."""

    def __init__(self, reports_max: int, wake: Wake = no_wake) -> None:
        self.dropped = 0
        self._reports_max = reports_max
        self._reports: dict[tuple[str, str], _Reports] = {}
        self._services: Counter[str] = Counter()
        self.timers: Timers[tuple[str, str]] = Timers(wake)

    def add(self, report: ModelMissing, now_ms: int) -> None:
        """Enqueue a node's report."""
        key = (report.node_id, report.service_id)
        reports = self._reports.get(key)
        if reports is not None:
            reports.latest = report
            reports.count += 1
        elif len(self._reports) >= self._reports_max or self._services[report.node_id] >= SERVICES_PER_NODE_MAX:
            self.dropped += 1
        else:
            self._reports[key] = _Reports(report, 1)
            self._services[report.node_id] += 1
            self.timers.set(key, now_ms)

    def pop_due(self, now_ms: int) -> list[ModelMissing]:
        """The frames that are due, at most FRAMES_PER_TICK. A key without new reports for an interval is evicted."""
        frames: list[ModelMissing] = []
        deferred = 0
        for key in self.timers.pop_due(now_ms):
            reports = self._reports[key]
            if not reports.count:
                self._evict(key)
            elif len(frames) < FRAMES_PER_TICK:
                frames.append(msgspec.structs.replace(reports.latest, count=reports.count))
                reports.count = 0
                self.timers.set(key, now_ms + _interval_ms(key))
            else:
                self.timers.set(key, now_ms + TICK_MS * (1 + deferred // FRAMES_PER_TICK))
                deferred += 1
        return frames

    def _evict(self, key: tuple[str, str]) -> None:
        del self._reports[key]
        self._services[key[0]] -= 1
        if not self._services[key[0]]:
            del self._services[key[0]]

    def check(self) -> None:
        """All bounds hold and every report has its timer."""
        self.timers.check()
        assert len(self._reports) == len(self.timers) <= self._reports_max
        assert self._services == Counter(node_id for node_id, _ in self._reports)
        assert all(0 < count <= SERVICES_PER_NODE_MAX for count in self._services.values())


def _interval_ms(key: tuple[str, str]) -> int:
    """Jittered by key, so that reports which began together do not stay together."""
    return INTERVAL_MS + crc32(" ".join(key).encode()) % INTERVAL_MS
