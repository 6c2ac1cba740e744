from __future__ import annotations

from mesh.config.jobs import JobConfig, NodeConfig
from mesh.config.network import EdgeConfig


def test_one_late_heartbeat_is_no_failure() -> None:
    node = NodeConfig()
    assert 3 * node.heartbeat_interval_ms <= node.heartbeat_timeout_ms


def test_node_without_a_bound_of_its_own_is_within_the_limit() -> None:
    assert NodeConfig().max_jobs_default <= NodeConfig().max_jobs_limit


def test_lease_outlasts_the_deadline_of_its_job() -> None:
    assert JobConfig().lease_ms > JobConfig().deadline_ms


def test_attempts_fit_into_the_deadline() -> None:
    job = JobConfig()
    assert job.attempts_max * job.dispatched_timeout_ms < job.deadline_ms


def test_first_event_extends_the_provisional_lease_in_time() -> None:
    assert 10 * EdgeConfig().job_event_delay_ms < JobConfig().provisional_lease_ms
