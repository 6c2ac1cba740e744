"""Effects of a session: every one has a runner, every counter is a metric of the edge."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry

from edge.metrics import EdgeMetrics
from edge.sessions import actor
from edge.sessions.core.effects import Count, CounterName, Effect, Log, ObserveStages
from mesh.words import BackpressureAction, ChunkAnomaly, LatencyStage, MissingReason

#: A label that each counter accepts; "" = it has none.
LABELS = {
    CounterName.SEGMENTS: "manual",
    CounterName.BACKPRESSURE: BackpressureAction.PAUSE,
    CounterName.MISSING: MissingReason.GAP_TIMEOUT,
    CounterName.UTTERANCES: "",
    CounterName.CHUNK_ANOMALIES: next(iter(ChunkAnomaly)),
}


def test_every_effect_has_a_runner_of_the_actor() -> None:
    assert set(actor._RUNNERS) == set(get_args(Effect))
    assert all(inspect.isfunction(runner) for runner in actor._RUNNERS.values())


@pytest.mark.parametrize("name", CounterName)
def test_counter_name_is_a_metric_of_the_edge(name: CounterName) -> None:
    registry = CollectorRegistry()
    counter, label = getattr(EdgeMetrics(registry), name.value), LABELS[name]
    (counter.labels(label) if label else counter).inc(3)
    samples = [one for family in registry.collect() for one in family.samples if one.name.endswith(name.value)]
    counted = [list(one.labels.values()) for one in samples if one.value]
    assert counted == [[label] if label else []] and sum(one.value for one in samples) == 3


@pytest.mark.parametrize("effect", get_args(Effect))
def test_effect_is_immutable(effect: type) -> None:
    assert effect.__struct_config__.frozen  # type: ignore[attr-defined]


def test_stages_that_end_at_an_edge_are_counted() -> None:
    registry = CollectorRegistry()
    context = SimpleNamespace(metrics=EdgeMetrics(registry))
    actor._RUNNERS[ObserveStages](SimpleNamespace(_context=context), ObserveStages(list(range(1, 10))))  # type: ignore[arg-type]
    sums = {
        stage.value: registry.get_sample_value("lingua_stage_seconds_sum", {"stage": stage.value})
        for stage in LatencyStage
    }
    counted = {stage: round(seconds * 1_000_000) for stage, seconds in sums.items() if seconds is not None}
    assert counted == {"edge_in": 1, "deliver": 6, "node": 7, "back": 8, "order": 9}, "selectors count the others"


def test_defaults_are_one_step_and_no_label() -> None:
    assert Count(CounterName.UTTERANCES) == Count(CounterName.UTTERANCES, "", 1)
    assert Log("x").fields == {} and Log("x").fields is not Log("y").fields and not Log("x").is_warning
