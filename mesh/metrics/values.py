"""Metrics whose values are plain attributes: the hot path adds to an integer, and a scrape reads it.

A prometheus_client counter takes a lock and two checks per increment, which costs ten times the addition. Here one
thread, that of the event loop, writes; scrapes come from any thread and see each number as it was at some moment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Generic, Protocol, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Value(Protocol):
    """The value of one series."""

    @staticmethod
    def family(name: str, text: str, labels: tuple[str, ...]) -> Metric:
        """An empty metric of its type, for one scrape."""

    def add_to(self, family: Metric, labels: tuple[str, ...]) -> None:
        """Add this series to such a metric."""


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        """Add to it."""
        self.value += amount

    @staticmethod
    def family(name: str, text: str, labels: tuple[str, ...]) -> Metric:
        """See Value."""
        return CounterMetricFamily(name.removesuffix("_total"), text, labels=labels)

    def add_to(self, family: Metric, labels: tuple[str, ...]) -> None:
        """See Value."""
        assert isinstance(family, CounterMetricFamily)
        family.add_metric(labels, self.value)


class Gauge:
    """A number that is set, or computed when it is read."""

    __slots__ = ("_function", "_value")

    def __init__(self) -> None:
        self._value: float = 0
        self._function: Callable[[], float] | None = None

    @property
    def value(self) -> float:
        """The number now."""
        return self._value if self._function is None else self._function()

    def set(self, value: float) -> None:
        """Replace it."""
        self._value = value

    def set_function(self, function: Callable[[], float]) -> None:
        """Compute it by `function` at each scrape."""
        self._function = function

    @staticmethod
    def family(name: str, text: str, labels: tuple[str, ...]) -> Metric:
        """See Value."""
        return GaugeMetricFamily(name, text, labels=labels)

    def add_to(self, family: Metric, labels: tuple[str, ...]) -> None:
        """See Value."""
        assert isinstance(family, GaugeMetricFamily)
        family.add_metric(labels, self.value)


class Histogram:
    """Observations by bucket, and their sum."""

    __slots__ = ("buckets", "counts", "sum")

    def __init__(self, buckets: Iterable[float]) -> None:
        #: Upper edges; `counts` has one more, for what is beyond the last.
        self.buckets = tuple(buckets)
        self.counts = [0] * (len(self.buckets) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.buckets, value)] += 1
        self.sum += value

    def time(self) -> _Timer:
        """A context manager that observes the seconds spent in it."""
        return _Timer(self)

    @staticmethod
    def family(name: str, text: str, labels: tuple[str, ...]) -> Metric:
        """See Value."""
        return HistogramMetricFamily(name, text, labels=labels)

    def add_to(self, family: Metric, labels: tuple[str, ...]) -> None:
        """See Value. The exposition format has cumulative counts."""
        assert isinstance(family, HistogramMetricFamily)
        running, samples = 0, []
        for edge, count in zip((*map(str, self.buckets), "+Inf"), list(self.counts), strict=True):
            running += count
            samples.append((edge, float(running)))
        family.add_metric(labels, samples, self.sum)


class _Timer:
    __slots__ = ("_began", "_histogram")

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, *_: object) -> None:
        self._histogram.observe(perf_counter() - self._began)


V = TypeVar("V", bound=Value)


class Family(Collector, Generic[V]):
    """One metric with its name, its help text, and a value per series. Without labels the one series is ()."""

    def __init__(self, make: Callable[[], V], name: str, text: str, labels: Iterable[str] = ()) -> None:
        self._make = make
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._empty = make()
        self.series: dict[tuple[str, ...], V] = {}

    def at(self, *values: str) -> V:
        """The value of that series; made if it is new."""
        value = self.series.get(values)
        if value is None:
            value = self.series[values] = self._make()
        return value

    def collect(self) -> Iterator[Metric]:
        """The metric with all its series."""
        family = self._empty.family(self._name, self._text, self._labels)
        for labels, value in list(self.series.items()):
            value.add_to(family, labels)
        yield family
