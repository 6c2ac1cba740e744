"""Metric values: plain numbers on the hot path, the exposition format at a scrape."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from mesh.metrics.values import Counter, Family, Gauge, Histogram


def exposed(family: Family[Counter] | Family[Gauge] | Family[Histogram]) -> list[str]:
    registry = CollectorRegistry()
    registry.register(family)
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_counter_is_exposed_by_series() -> None:
    family = Family(Counter, "jobs_total", "Jobs", ("outcome",))
    family.at("ok").inc()
    family.at("ok").inc(2)
    family.at("failed").inc()
    assert exposed(family) == ['jobs_total{outcome="ok"} 3.0', 'jobs_total{outcome="failed"} 1.0']


def test_gauge_is_set_or_computed() -> None:
    family = Family(Gauge, "depth", "Depth")
    family.at().set(4)
    assert exposed(family) == ["depth 4.0"]
    family.at().set_function(lambda: 7)
    assert exposed(family) == ["depth 7.0"]


def test_histogram_has_cumulative_buckets_and_a_sum() -> None:
    family = Family(lambda: Histogram((0.1, 1.0)), "took_seconds", "Time")
    for value in (0.1, 0.5, 3.0):
        family.at().observe(value)
    assert exposed(family) == [
        'took_seconds_bucket{le="0.1"} 1.0',
        'took_seconds_bucket{le="1.0"} 2.0',
        'took_seconds_bucket{le="+Inf"} 3.0',
        "took_seconds_count 3.0",
        "took_seconds_sum 3.6",
    ]


def test_timer_observes_once() -> None:
    histogram = Histogram((1_000.0,))
    with histogram.time():
        pass
    assert histogram.counts == [1, 0] and histogram.sum > 0
