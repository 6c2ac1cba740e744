from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from edge.metrics import MESSAGE_TYPES, EdgeMetrics
from mesh import metrics
from mesh.errors import ConfigError
from selector.metrics import SelectorMetrics
from tests.support.conditions import DEADLINE_S

ROLES = (EdgeMetrics, SelectorMetrics)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def _served() -> Iterator[None]:
    yield
    metrics.stop_serving()


def families(registry: CollectorRegistry) -> dict[str, dict[tuple[str, ...], float]]:
    """Sample name -> label values, in the order of their names -> value."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.render(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def bounded(role: object) -> dict[str, metrics.Bounded[object]]:  # type: ignore[type-var]
    return {name: value for name, value in vars(role).items() if isinstance(value, metrics.Bounded)}


@pytest.mark.parametrize("role", ROLES)
def test_names_have_prefix_and_unit(role: type[metrics.Metrics], registry: CollectorRegistry) -> None:
    role(registry)
    for family in registry.collect():
        assert family.name.startswith(("lingua_", "scheduler_"))
        assert family.documentation
        if family.type == "histogram":
            assert family.name.endswith(("_seconds", "_size"))


@pytest.mark.parametrize("role", ROLES)
def test_number_of_series_is_bounded(role: type[metrics.Metrics], registry: CollectorRegistry) -> None:
    instance = role(registry)
    labelled = bounded(instance)
    assert labelled
    for metric in labelled.values():
        count = len(metric._allowed)
        for number in range(5_000):
            metric.labels(*[f"peer-{number}"] * count).inc()  # type: ignore[attr-defined]
    for name, samples in families(registry).items():
        if name.endswith("_total"):
            assert len(samples) <= metrics.LABEL_VALUES_MAX + 1, name


def test_unlisted_value_counts_as_other(registry: CollectorRegistry) -> None:
    edge = EdgeMetrics(registry)
    for _ in range(3):
        edge.errors_total.labels("session", "JOB_TIMEOUT").inc()
        edge.errors_total.labels("node", "MADE_UP_BY_A_NODE").inc()
    assert families(registry)["lingua_edge_errors_total"] == {("JOB_TIMEOUT", "session"): 3, ("other", "node"): 3}


def test_every_message_type_has_its_own_series(registry: CollectorRegistry) -> None:
    edge = EdgeMetrics(registry)
    for kind in MESSAGE_TYPES:
        edge.messages_total.labels("session", "in", kind).inc()
    seen = {labels[2] for labels in families(registry)["lingua_edge_messages_total"]}
    assert {"utterance", "job_result", "invalid"} <= seen
    assert "other" not in seen


def test_second_instance_shares_metrics(registry: CollectorRegistry) -> None:
    one, two = EdgeMetrics(registry), EdgeMetrics(registry)
    one.utterances_total.inc()
    two.utterances_total.inc()
    assert families(registry)["lingua_edge_utterances_total"] == {(): 2}


@dataclass
class Counts:
    sent: int = 5
    unsent: int = 1
    diverted: int = 2
    received: int = 7
    garbage: int = 3
    brokers_lost: int = 4


@dataclass(eq=False)
class FakeLink:
    counts: Counts = field(default_factory=Counts)

    def brokers_live(self) -> int:
        return 2


def test_links_are_read_at_scrape_and_dropped_when_collected(registry: CollectorRegistry) -> None:
    watch = metrics.LinkMetrics(registry)
    link = FakeLink()
    watch.watch(link)
    link.counts.sent = 50
    seen = families(registry)
    assert seen["lingua_link_sent_total"] == {(): 50}
    assert seen["lingua_link_malformed_total"] == {(): 3}
    assert seen["lingua_link_brokers_live"] == {(): 2}
    del link
    assert families(registry)["lingua_link_brokers_live"] == {(): 0}


def test_process_metrics_name_role_and_version(registry: CollectorRegistry) -> None:
    metrics.describe_process("edge", "0.1.0", registry)
    seen = families(registry)
    assert seen["lingua_build_info"] == {("edge", "0.1.0"): 1}
    assert "process_resident_memory_bytes" in seen


@pytest.mark.usefixtures("_served")
def test_metrics_are_served_on_loopback_until_stopped(registry: CollectorRegistry) -> None:
    EdgeMetrics(registry).sessions.set(3)
    before = threading.active_count()
    port = metrics.serve(0, registry)
    assert port > 0
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S) as answer:
        assert b"lingua_edge_sessions 3.0" in answer.read()
    assert metrics._servers[-1].server_address[0] == "127.0.0.1"
    with pytest.raises(ConfigError, match=f"metrics_port {port}"):
        metrics.serve(port, registry)
    metrics.stop_serving()
    assert threading.active_count() <= before + 1
