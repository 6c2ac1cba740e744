"""Base of metrics: one Prometheus registry per process, bounded labels, the metrics of links, and /metrics itself.

The metrics of each process are in broker/metrics.py, edge/metrics.py and selector/metrics.py. Must not import ZeroMQ.

Names of the original system keep their prefix `scheduler_`; new ones begin with `lingua_`. The values of a label come
from an enum or are capped, so that no peer can create series: any other value is counted as "other". All values are
plain numbers that a scrape reads (mesh/metrics/values.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mesh.errors import ConfigError
from mesh.loopback import LOOPBACK
from mesh.metrics.values import Counter, Family, Gauge, Histogram, Value

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
OTHER: Final = "other"
#: Distinct values of a label without a closed list; further ones count as OTHER.
LABEL_VALUES_MAX: Final = 64

REGISTRY: Final = CollectorRegistry()

RESULT_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0)

#: Label name -> its values; None = the first LABEL_VALUES_MAX distinct ones.
Labels = dict[str, Iterable[str] | None]
V = TypeVar("V", bound=Value)


class Bounded(Generic[V]):
    """A labelled metric with a bounded number of series. `labels` is one dictionary lookup once a series exists."""

    def __init__(self, family: Family[V], labels: Labels) -> None:
        self._family = family
        self._allowed = [None if values is None else frozenset(values) for values in labels.values()]
        self._seen: list[set[str]] = [set() for _ in labels]

    def labels(self, *values: str) -> V:
        """The series of these values, in the order of the label names."""
        value = self._family.series.get(values)
        if value is None:
            value = self._family.at(*(self._fit(number, text) for number, text in enumerate(values)))
        return value

    def totals(self) -> dict[tuple[str, ...], float]:
        """The counters of all series, by their labels."""
        series = self._family.series.items()
        return {labels: counter.value for labels, counter in series if isinstance(counter, Counter)}

    def _fit(self, number: int, value: str) -> str:
        """`value`, or OTHER if the label of that number may not have it."""
        allowed, seen = self._allowed[number], self._seen[number]
        if allowed is not None:
            return value if value in allowed else OTHER
        if value not in seen and len(seen) < LABEL_VALUES_MAX:
            seen.add(value)
        return value if value in seen else OTHER


#: One metric object per registry and name: prometheus_client refuses a second one.
_made: Final[WeakKeyDictionary[CollectorRegistry, dict[str, Any]]] = WeakKeyDictionary()


class Metrics:
    """Base of a process's metrics. A second instance on a registry shares the metrics of the first."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        made = _made.setdefault(self._registry, {})
        if name not in made:
            made[name] = make()
        return made[name]

    def _family(self, family: Family[V]) -> Family[V]:
        self._registry.register(family)
        return family

    def _counter(self, name: str, text: str) -> Counter:
        counter: Counter = self._once(name, lambda: self._family(Family(Counter, name, text)).at())
        return counter

    def _counters(self, name: str, text: str, labels: Labels) -> Bounded[Counter]:
        counters: Bounded[Counter] = self._once(
            name, lambda: Bounded(self._family(Family(Counter, name, text, labels)), labels)
        )
        return counters

    def _gauge(self, name: str, text: str) -> Gauge:
        gauge: Gauge = self._once(name, lambda: self._family(Family(Gauge, name, text)).at())
        return gauge

    def _histogram(self, name: str, text: str, buckets: Iterable[float]) -> Histogram:
        edges = tuple(buckets)
        histogram: Histogram = self._once(name, lambda: self._family(Family(lambda: Histogram(edges), name, text)).at())
        return histogram


class LinkCounters(Protocol):
    """Totals of a link (mesh.link.link.LinkCounts)."""

    sent: int
    unsent: int
    diverted: int
    received: int
    garbage: int
    brokers_lost: int


class WatchedLink(Protocol):
    """A mesh.link.link.Link, which is not imported here: metrics must not import ZeroMQ."""

    @property
    def counts(self) -> LinkCounters:
        """Totals since the link began."""

    def brokers_live(self) -> int:
        """Number of live brokers."""


class LinkMetrics(Collector):
    """Collector of links: reads the counters of the watched links at each scrape."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._links: WeakSet[Any] = WeakSet()
        registry.register(self)

    def watch(self, link: WatchedLink) -> None:
        """Include `link` until it is garbage collected."""
        self._links.add(link)

    def collect(self) -> Iterator[Metric]:
        """All metrics, summed over the links."""
        links: list[WatchedLink] = list(self._links)
        for field, name, text in LINK_COUNTERS:
            total = sum(getattr(link.counts, field) for link in links)
            yield CounterMetricFamily(f"lingua_link_{name}", text, total)
        live = sum(link.brokers_live() for link in links)
        yield GaugeMetricFamily("lingua_link_brokers_live", "Live brokers", live)


#: Field of LinkCounters, name, help.
LINK_COUNTERS: Final = (
    ("sent", "sent", "Messages that a broker took"),
    ("unsent", "unsent", "Messages that no live broker took"),
    ("diverted", "diverted", "Messages that failed over to another broker than the first choice"),
    ("received", "received", "Messages received"),
    ("garbage", "malformed", "Messages that could not be decoded"),
    ("brokers_lost", "brokers_lost", "Times that a broker timed out (link.dead_ms)"),
)


def describe_process(role: str, version: str, registry: CollectorRegistry = REGISTRY) -> None:
    """Add the metrics of every process: memory, CPU, open files, and its role and version."""
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    info = Family(Gauge, "lingua_build_info", "Always 1; the labels are role and version", ("role", "version"))
    info.at(role, version).set(1)
    registry.register(info)


def render(registry: CollectorRegistry = REGISTRY) -> bytes:
    """The exposition text, of type CONTENT_TYPE."""
    return generate_latest(registry)


_servers: Final[list[WSGIServer]] = []


def serve(port: int, registry: CollectorRegistry = REGISTRY) -> int:
    """Serve /metrics on loopback from a daemon thread; returns the port. 0 = any free port."""
    try:
        server, _ = start_http_server(port, addr=LOOPBACK, registry=registry)
    except OSError as error:
        raise ConfigError(f"metrics_port {port} cannot be used: {error.strerror}") from None
    _servers.append(server)
    return int(server.server_port)


def stop_serving() -> None:
    """Stop all servers that serve() started."""
    while _servers:
        server = _servers.pop()
        server.shutdown()
        server.server_close()
