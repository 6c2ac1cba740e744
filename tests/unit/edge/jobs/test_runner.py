"""Job runner: outcomes of the tracker as metrics, and limits from the configuration."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from edge.core.timers import Schedule
from edge.jobs.runner import DROPPED, JobRunner
from edge.link.link import EdgeLink, early_ms_max
from edge.metrics import EdgeMetrics
from mesh.config import Config
from mesh.words import JobOutcome, ResultDrop, ResultVerdict


def runner(config: Config) -> tuple[JobRunner, EdgeMetrics]:
    metrics, schedule = EdgeMetrics(CollectorRegistry()), Schedule()
    return JobRunner(config, EdgeLink(config, "edge:b:1", schedule), metrics, schedule, lambda node_id: None), metrics


@pytest.mark.parametrize("outcome", [*JobOutcome, *ResultVerdict])
def test_every_outcome_is_exported_once_under_its_own_label(outcome: str) -> None:
    jobs, metrics = runner(Config())
    jobs.tracker.outcomes[outcome] += 3
    jobs.run([])
    jobs.tick(1)
    assert {labels: count for labels, count in metrics.job_outcomes_total.totals().items() if count} == {(outcome,): 3}
    jobs.tracker.outcomes[outcome] += 1
    jobs.tick(2)
    assert metrics.job_outcomes_total.totals()[(outcome,)] == 4
    dropped = {labels: count for labels, count in metrics.dropped_results_total.totals().items() if count}
    assert dropped == ({(DROPPED[outcome],): 4} if outcome in DROPPED else {})


def test_every_reason_of_a_dropped_result_has_an_outcome() -> None:
    assert set(DROPPED.values()) == set(ResultDrop)


def test_limits_come_from_the_configuration() -> None:
    config = Config()
    jobs, _ = runner(config)
    limits = jobs.tracker.limits
    assert limits.unacked.retry_ms == config.edge.resend_ms
    assert limits.unacked.retry_early_ms_max == early_ms_max(config)
    assert limits.grace.grace_ms == config.edge.reconnect_grace_ms
    assert limits.job_named_ms == config.node.heartbeat_interval_ms
