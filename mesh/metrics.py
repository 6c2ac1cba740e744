"""Metrics: every name, its labels and their bounds. One Prometheus registry per process.

Names that the original system had keep their prefix `scheduler_`; new ones begin with `lingua_`. A label's values
come from a list written here, or are capped, so no peer can make a series: what does not fit is counted as "other".
Brokers and links count in plain integers on their hot path; a collector reads those when a scrape comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar, get_args
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

from mesh.control_wire import FROM_OPERATOR
from mesh.errors import ConfigError, ErrorCode
from mesh.frames import AnyFrame
from mesh.node_wire import FROM_NODE, FROM_SCHEDULER
from mesh.session_wire import FROM_CLIENT, FROM_SERVER

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
LOOPBACK: Final = "127.0.0.1"
OTHER: Final = "other"
#: Values of a label whose list is not known beforehand.
LABEL_VALUES_MAX: Final = 64

REGISTRY: Final = CollectorRegistry()
# A time of birth beside every counter would double a scrape, and nobody reads it.
disable_created_metrics()  # type: ignore[no-untyped-call]

DIRECTIONS: Final = ("in", "out")
FRAME_NAMES: Final = tuple(frame.__name__ for frame in get_args(AnyFrame))
_CODECS: Final = (FROM_CLIENT, FROM_SERVER, FROM_NODE, FROM_SCHEDULER, FROM_OPERATOR)
MESSAGE_TYPES: Final = tuple(sorted({"done", "invalid"}.union(*(codec.types for codec in _CODECS))))
ERROR_CODES: Final = tuple(code.name for code in ErrorCode)

DECISION_SECONDS: Final = (0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1)
STORE_SECONDS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
RESULT_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0)
BATCH_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

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


class SelectorMetrics(Metrics):
    """One selector."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__(registry)
        self._decisions()
        self._pools()
        self._snapshots()
        self._results()
        self._nodes()
        self._models()

    def _decisions(self) -> None:
        self.dispatch_total = self._counters(
            "lingua_selector_dispatch_total",
            "Dispatches by what came of them",
            {
                "outcome": (
                    "new",
                    "bound",
                    "full",
                    "waiting",
                    "refused",
                    "unknown",
                    "undone",
                    "expired",
                    "withdrawn",
                    "error",
                )
            },
        )
        self.removed_total = self._counters(
            "lingua_selector_removed_total", "Nodes removed from consideration, by filter", {"filter": None}
        )
        self.no_available_node_total = self._counters(
            "scheduler_no_available_node_total",
            "Dispatches for which there was no node",
            {"selector": ("types", "phase3_type", "features", "reserve", "unknown"), "reason": None},
        )
        self.batch_size = self._histogram("lingua_selector_batch_size", "Dispatches decided together", BATCH_SIZES)
        self.decision_seconds = self._histogram(
            "lingua_selector_decision_seconds", "Filter and score of one batch", DECISION_SECONDS
        )
        self.commit_seconds = self._histogram("lingua_selector_commit_seconds", "Commit of one batch", STORE_SECONDS)
        self.dispatch_latency_seconds = self._histogram(
            "scheduler_dispatch_latency_seconds", "From a Dispatch's arrival to its Assign or refusal", STORE_SECONDS
        )
        self.conflicts_total = self._counter(
            "lingua_selector_conflicts_total", "Candidates that turned out to be taken at the commit"
        )
        self.waiting = self._gauge("lingua_selector_waiting", "Requests that stand in line for a node")
        self.waiting_bytes = self._gauge("lingua_selector_waiting_bytes", "Their audio")
        self.waited_seconds = self._histogram(
            "lingua_selector_waited_seconds", "Time in line of those that got a node or were refused", RESULT_SECONDS
        )
        self.weights_version = self._gauge("lingua_selector_weights_version", "Version of the weights in force")
        self.queries_total = self._counters(
            "lingua_selector_queries_total", "Questions of operators by status", {"kind": QUERY_KINDS, "status": None}
        )

    def _pools(self) -> None:
        self.pool_selected_total = self._counters(
            "scheduler_phase3_pool_selected_total",
            "Pools in which a node was found or not",
            {"pool": None, "outcome": ("hit", "miss"), "fallback": ("true", "false")},
        )
        self.pool_attempt_total = self._counters(
            "scheduler_phase3_pool_attempt_total",
            "Pools that were looked through",
            {"pool": None, "result": ("success", "fail"), "reason": None},
        )

    def _snapshots(self) -> None:
        self.snapshot_rows = self._gauge("lingua_selector_snapshot_rows", "Nodes in the columns")
        self.snapshot_age_seconds = self._gauge(
            "lingua_selector_snapshot_age_seconds", "Age of the oldest cell's last answer"
        )
        self.snapshot_seconds = self._histogram("lingua_selector_snapshot_seconds", "One refresh", STORE_SECONDS)
        self.snapshot_changes_total = self._counter("lingua_selector_snapshot_changes_total", "Rows that changed")
        self.words_refused_total = self._counters(
            "lingua_selector_words_refused_total",
            "Words of nodes that did not fit the columns; a node lacks them until there is room",
            {"kind": ("language", "service", "tenant")},
        )
        self.store_errors_total = self._counters(
            "lingua_selector_store_errors_total", "Script calls that failed", {"script": None}
        )

    def _results(self) -> None:
        self.events_total = self._counters(
            "lingua_selector_job_events_total", "Job events by verdict", {"verdict": VERDICTS}
        )
        self.results_total = self._counters(
            "lingua_selector_results_total",
            "Results by verdict; `fenced` belongs to an attempt that was given up",
            {"verdict": VERDICTS},
        )
        self.undone_total = self._counters(
            "lingua_selector_undone_total",
            "Attempts that came to nothing",
            {"reason": UNDONE_REASONS},
        )
        self.cancelled_total = self._counter("lingua_selector_cancelled_total", "Jobs that were cancelled")

    def _nodes(self) -> None:
        self.nodes_total = self._counters(
            "lingua_selector_node_changes_total",
            "Registrations and departures",
            {"change": ("registered", "detached", "offline", "superseded", "unknown")},
        )
        self.node_status_total = self._counters(
            "lingua_selector_node_status_total", "Changes of a node's status, by the new one", {"status": STATUSES}
        )
        self.ledger_drift = self._gauge(
            "lingua_selector_ledger_drift", "Slots that did not match the jobs of their nodes at their last audit"
        )
        self.ledger_repairs_total = self._counters(
            "lingua_selector_ledger_repairs_total",
            "Slots put right: `leaked` nobody ran the job, `missing` a running job had none",
            {"kind": ("leaked", "missing")},
        )
        self.lane_dropped_total = self._counters(
            "lingua_selector_lane_dropped_total", "Frames dropped because their lane was full", {"lane": None}
        )

    def _models(self) -> None:
        prefix = "scheduler_model_na"
        self.model_na_received_total = self._counter(f"{prefix}_received_total", "Words that a model is missing")
        self.model_na_rate_limited_total = self._counter(f"{prefix}_rate_limited_total", "Of these, one too many")
        self.model_na_marked_total = self._counter(f"{prefix}_marked_total", "Of these, nodes marked for a while")
        self.model_na_dropped_total = self._counter(f"{prefix}_dropped_total", "Of these, no room to wait")
        self.model_na_by_service_total = self._counters(
            f"{prefix}_by_service_total", "By service", {"service_id": None}
        )
        self.model_na_by_reason_total = self._counters(f"{prefix}_by_reason_total", "By reason", {"reason": None})
        self.model_na_rate_limited_by_node_total = self._counters(
            f"{prefix}_rate_limited_by_node_total", "Dropped by node", {"node_id": None}
        )
        self.model_na_marked_by_node_total = self._counters(
            f"{prefix}_marked_by_node_total", "Marked by node", {"node_id": None}
        )
        self.model_na_other_total = {
            kind: self._counter(f"{prefix}_other_{kind}_total", f"Without a series of their own, by {kind}")
            for kind in ("service", "reason", "rate_limited_node", "marked_node")
        }


UNDONE_REASONS: Final = (
    "node_absent", "node_stuck", "job_lost", "node_gone", "node_error", "drained", "unroutable", "queue_full",
    "expired", "no_selector", "released",
)  # fmt: skip
STATUSES: Final = ("registering", "ready", "degraded", "draining", "offline")
QUERY_KINDS: Final = (
    "selectors", "explain", "invariants", "pools", "simulate", "metrics", "recording", "node", "drain", "weights",
    "weights_set",
)  # fmt: skip
VERDICTS: Final = ("moved", "same", "fenced", "unknown")


class EdgeMetrics(Metrics):
    """One edge."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__(registry)
        self._connections()
        self._utterances()

    def _connections(self) -> None:
        self.sessions = self._gauge("lingua_edge_sessions", "Sessions open here")
        self.nodes = self._gauge("lingua_edge_nodes", "Nodes registered here")
        self.messages_total = self._counters(
            "lingua_edge_messages_total",
            "WebSocket messages",
            {"peer": PEERS, "direction": DIRECTIONS, "type": MESSAGE_TYPES},
        )
        self.errors_total = self._counters(
            "lingua_edge_errors_total", "Errors told to peers", {"peer": PEERS, "code": ERROR_CODES}
        )
        self.slow_consumers_total = self._counters(
            "lingua_edge_slow_consumers_total", "Sockets cut because they did not read", {"peer": PEERS}
        )
        self.refused_total = self._counters(
            "lingua_edge_refused_total",
            "Connections refused or closed by us",
            {"reason": ("full", "path", "idle", "superseded", "draining", "handshake", "too_large", "forbidden")},
        )

        self.pages_total = self._counters(
            "lingua_edge_pages_total", "Operators' pages by the answer's status", {"kind": PAGE_KINDS, "status": None}
        )

    def _utterances(self) -> None:
        self.utterances_total = self._counter("lingua_edge_utterances_total", "Utterances accepted from clients")
        self.results_total = self._counters(
            "lingua_edge_results_total",
            "How utterances ended",
            {"outcome": ("result", "silence", "failed", "timeout", "no_node", "cancelled", "duplicate", "late")},
        )
        self.attempts_total = self._counter("lingua_edge_attempts_total", "Dispatches with a new attempt number")
        self.hedges_total = self._counters(
            "lingua_edge_hedges_total",
            "Late jobs that a second node got as well, or would have got, and what came of it",
            {"outcome": ("won", "lost", "refused", "failed", "promoted", "cancelled", "over_budget")},
        )
        self.cancels_total = self._counters(
            "lingua_edge_cancels_total",
            "Jobs that nobody waited for any more",
            {"reason": CANCEL_REASONS},
        )
        self.resends_total = self._counters(
            "lingua_edge_resends_total", "Frames sent again for want of an answer", {"frame": FRAME_NAMES}
        )
        self.dropped_results_total = self._counters(
            "lingua_edge_dropped_results_total",
            "Results given up at the node's edge",
            {"reason": ("fenced", "no_session", "overflow", "unasked")},
        )
        self.given_back_total = self._counters(
            "lingua_edge_jobs_given_back_total",
            "Jobs that a node of this edge will not finish, by reason",
            {"reason": ("node_absent", "node_stuck", "job_lost", "node_gone", "node_error", "drained")},
        )
        self.model_words_dropped_total = self._counter(
            "lingua_edge_model_words_dropped_total", "Words of nodes about missing models for which there was no room"
        )
        self.backpressure_total = self._counters(
            "lingua_edge_backpressure_total",
            "Clients told to send less",
            {"action": ("BUSY", "PAUSE", "SLOW_DOWN")},
        )
        self.waiting = self._gauge("lingua_edge_utterances_waiting", "Utterances that have no result yet")
        self.results_kept = self._gauge("lingua_edge_results_kept", "Results kept until acknowledged")
        self.result_seconds = self._histogram(
            "lingua_edge_result_seconds", "From the utterance's arrival to its result's departure", RESULT_SECONDS
        )


CANCEL_REASONS: Final = (
    "session_closed", "job_timeout", "no_available_node", "node_unavailable", "superseded", "failed",
)  # fmt: skip
PAGE_KINDS: Final = (
    "explain", "invariants", "metrics", "node", "none", "pools", "recording", "selectors", "simulate", "weights",
)  # fmt: skip
PEERS: Final = ("session", "node", "control")


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
