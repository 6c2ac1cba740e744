"""Limits of a load test and the verdict on each, from the rows of locust's statistics. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loadtest.delivery import Metric

#: Rows of which every entry of the run must have ended with a result.
RESULTS: Final = (Metric.RESULT, Metric.RESUMED_RESULT, Metric.ROOM)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the statistics."""

    kind: str
    name: str
    requests: int
    failures: int
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a run. Missing results, duplicates and order violations are bounded by zero, always."""

    p95_ms: float
    failures_max: int = 0
    results_min: int = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """One limit and what the run had."""

    name: str
    measured: str
    limit: str
    held: bool

    def __str__(self) -> str:
        return f"{'ok    ' if self.held else 'MISSED'}  {self.name}: {self.measured} (limit {self.limit})"


def judge(rows: Sequence[Row], limits: Limits, *, user_errors: int, broken_invariants: str) -> list[Verdict]:
    """A verdict per limit."""
    results = [row for row in rows if row.name in RESULTS]
    delivered = sum(row.requests - row.failures for row in results)
    slowest = max((row for row in results if row.name == Metric.RESULT), key=lambda row: row.p95_ms, default=None)
    p95_ms = slowest.p95_ms if slowest else 0.0
    failures = sum(row.failures for row in rows) + user_errors
    return [
        Verdict("results", str(delivered), f"at least {limits.results_min}", delivered >= limits.results_min),
        _none("missing results", sum(row.failures for row in results)),
        _none("order violations", _failures(rows, Metric.ORDER)),
        _none("duplicate results", _failures(rows, Metric.DUPLICATE)),
        _none("results of other audio", _failures(rows, Metric.CONTENT)),
        Verdict("failures", str(failures), f"at most {limits.failures_max}", failures <= limits.failures_max),
        Verdict(
            f"p95 of {Metric.RESULT}" + (f", {slowest.kind}" if slowest else ""),
            f"{p95_ms:.0f} ms",
            f"below {limits.p95_ms:g} ms",
            p95_ms < limits.p95_ms,
        ),
        Verdict("invariants of the mesh", broken_invariants or "hold", "hold", not broken_invariants),
    ]


def _failures(rows: Sequence[Row], metric: Metric) -> int:
    return sum(row.failures for row in rows if row.name == metric)


def _none(name: str, count: int) -> Verdict:
    return Verdict(name, str(count), "0", count == 0)
