"""Metrics: what every process counts alike, and how each of them names, bounds and shows what it counts.

One Prometheus registry per process. What is counted: broker/metrics.py, edge/metrics.py, selector/metrics.py.

Names that the original system had keep their prefix `scheduler_`; new ones begin with `lingua_`. A label's values
come from a list in the code, or are capped, so no peer can make a series: what does not fit is counted as "other".
Brokers and links count in plain integers on their hot path; a collector reads those when a scrape comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mesh.errors import ConfigError
from mesh.loopback import LOOPBACK

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
OTHER: Final = "other"
#: Values of a label whose list is not known beforehand.
LABEL_VALUES_MAX: Final = 64

REGISTRY: Final = CollectorRegistry()
# A time of birth beside every counter would double a scrape, and nobody reads it.
disable_created_metrics()  # type: ignore[no-untyped-call]


RESULT_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0)

M = TypeVar("M", Counter, Gauge, Histogram)
#: Label name -> the values it may take; None = the first LABEL_VALUES_MAX that come.
Labels = dict[str, Iterable[str] | None]


class Bounded(Generic[M]):
    """A labelled metric whose series are limited. `labels` is a dictionary look-up once a series exists."""

    def __init__(self, metric: M, labels: Labels) -> None:
        self._metric: M = metric
        self._allowed = [None if values is None else frozenset(values) for values in labels.values()]
        self._seen: list[set[str]] = [set() for _ in labels]
        self._children: dict[tuple[str, ...], M] = {}

    def labels(self, *values: str) -> M:
        """The series of these values, in the order of the label names."""
        child = self._children.get(values)
        if child is None:
            fitted = tuple(self._fit(place, value) for place, value in enumerate(values))
            child = self._metric.labels(*fitted)
            if fitted == values:
                self._children[values] = child
        return child

    def totals(self) -> dict[tuple[str, ...], float]:
        """What the counters of all series say, by their labels."""
        [family] = self._metric.collect()
        return {
            tuple(sample.labels.values()): sample.value for sample in family.samples if sample.name.endswith("_total")
        }

    def _fit(self, place: int, value: str) -> str:
        allowed, seen = self._allowed[place], self._seen[place]
        if allowed is not None:
            return value if value in allowed else OTHER
        if value not in seen and len(seen) < LABEL_VALUES_MAX:
            seen.add(value)
        return value if value in seen else OTHER


#: One metric object per registry and name, so that a second instance of a class shares the first one's.
_made: Final[WeakKeyDictionary[CollectorRegistry, dict[str, Any]]] = WeakKeyDictionary()


class Metrics:
    """Base of the classes below."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        made = _made.setdefault(self._registry, {})
        if name not in made:
            made[name] = make()
        return made[name]

    def _counter(self, name: str, text: str) -> Counter:
        counter: Counter = self._once(name, lambda: Counter(name, text, registry=self._registry))
        return counter

    def _counters(self, name: str, text: str, labels: Labels) -> Bounded[Counter]:
        def make() -> Bounded[Counter]:
            return Bounded(Counter(name, text, tuple(labels), registry=self._registry), labels)

        counters: Bounded[Counter] = self._once(name, make)
        return counters

    def _gauge(self, name: str, text: str) -> Gauge:
        gauge: Gauge = self._once(name, lambda: Gauge(name, text, registry=self._registry))
        return gauge

    def _histogram(self, name: str, text: str, buckets: Iterable[float]) -> Histogram:
        histogram: Histogram = self._once(
            name, lambda: Histogram(name, text, buckets=tuple(buckets), registry=self._registry)
        )
        return histogram


class LinkCounters(Protocol):
    """What mesh.link counts."""

    sent: int
    unsent: int
    diverted: int
    received: int
    garbage: int
    brokers_lost: int


class WatchedLink(Protocol):
    """A mesh.link.Link, which is not imported here: metrics must not pull in ZeroMQ."""

    @property
    def counts(self) -> LinkCounters:
        """Totals since the link began."""

    def brokers_live(self) -> int:
        """How many brokers answer."""


class LinkMetrics(Collector):
    """The DEALER side of an edge or selector: reads the counters of the links it watches when it is asked."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._links: WeakSet[Any] = WeakSet()
        registry.register(self)

    def watch(self, link: WatchedLink) -> None:
        """Counts `link` in, for as long as it lives."""
        self._links.add(link)

    def collect(self) -> Iterator[Metric]:
        """Everything, summed over the links."""
        links: list[WatchedLink] = list(self._links)
        for field, name, text in LINK_COUNTERS:
            total = sum(getattr(link.counts, field) for link in links)
            yield CounterMetricFamily(f"lingua_link_{name}", text, total)
        live = sum(link.brokers_live() for link in links)
        yield GaugeMetricFamily("lingua_link_brokers_live", "Brokers that answer", live)


#: Field of LinkCounters, name, help.
LINK_COUNTERS: Final = (
    ("sent", "sent", "Messages that a broker took"),
    ("unsent", "unsent", "Messages that no live broker took"),
    ("diverted", "diverted", "Messages sent by another broker than the first choice"),
    ("received", "received", "Messages received"),
    ("garbage", "malformed", "Messages that could not be decoded"),
    ("brokers_lost", "brokers_lost", "Times that a broker went silent"),
)


def describe_process(role: str, version: str, registry: CollectorRegistry = REGISTRY) -> None:
    """Adds what every process tells: memory, cpu, open files, and who it is."""
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    info = Gauge("lingua_build_info", "Always 1; the labels say what runs", ("role", "version"), registry=registry)
    info.labels(role, version).set(1)


def render(registry: CollectorRegistry = REGISTRY) -> bytes:
    """The exposition text; its type is CONTENT_TYPE."""
    return generate_latest(registry)


_servers: Final[list[WSGIServer]] = []


def serve(port: int, registry: CollectorRegistry = REGISTRY) -> int:
    """Serves /metrics on loopback from a daemon thread; the port it got. 0 = any free one."""
    try:
        server, _ = start_http_server(port, addr=LOOPBACK, registry=registry)
    except OSError as error:
        raise ConfigError(f"metrics_port {port} cannot be used: {error.strerror}") from None
    _servers.append(server)
    return int(server.server_port)


def stop_serving() -> None:
    """Ends everything that serve() started."""
    while _servers:
        server = _servers.pop()
        server.shutdown()
        server.server_close()
