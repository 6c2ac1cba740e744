"""Drains: deadlines, hand-over and the report of an empty node."""

from __future__ import annotations

import pytest

from edge.core.timers import Timers
from edge.jobs.core.drains import Drains
from edge.jobs.core.job import NodeDrained, SendControl, SendToEdge, StopJob, TimerKind
from edge.jobs.core.tracker import JobTracker
from mesh.frames import CancelJob, ControlNode
from mesh.words import JobOutcome
from tests.support.builders.jobs import (
    GRACE_MS,
    LIMITS,
    PAYLOAD,
    TEXT,
    assign,
    end_result,
    failed_assigns,
    report,
    tracker_with_jobs,
    written,
)

DRAIN = ControlNode("n", 7, "drain", "upgrade", 99_000)


def test_drain_hands_unfinished_jobs_over_at_its_deadline() -> None:
    core = tracker_with_jobs(1, 2)
    core.tick(25)
    assert core.on_control(DRAIN, 7, 10_000) == [SendControl(DRAIN, 10_000)]
    assert written(core.on_assign(assign(3), PAYLOAD, 7, 30)) == ["3"], "it was committed before the drain"
    core.on_result(report(2), TEXT, 50)
    end_result(core, 2, 60)
    effects = core.tick(10_000)
    core.check()
    assert failed_assigns(effects) == [("1", "drained"), ("3", "drained")]
    stops = [effect.cancel for effect in effects if isinstance(effect, StopJob)]
    assert [(stop.job_id, stop.reason, stop.trace_id) for stop in stops] == [
        ("job-00-1", "drained", "t"), ("job-00-3", "drained", "t"),
    ]  # fmt: skip
    assert NodeDrained("n", 2) in effects and core.timers.next_due_ms() is None
    assert failed_assigns(core.on_assign(assign(1), PAYLOAD, 7, 11_000)) == [("1", "drained")]


def test_drained_node_without_jobs_is_reported_once() -> None:
    core = tracker_with_jobs(1)
    core.tick(25)
    core.on_control(DRAIN, 7, 10_000)
    core.on_result(report(1), TEXT, 50)
    assert core.timers.next_due_ms() == 0 and NodeDrained("n", 0) in core.tick(60)
    end_result(core, 1, 70)
    core.on_assign(assign(2), PAYLOAD, 7, 80)
    core.on_cancel(CancelJob("job-00-2", 1, "n", "", ""), 90)
    assert core.tick(100) == [] and core.tick(10_000) == [NodeDrained("n", 0)]
    idle = JobTracker("b", LIMITS)
    idle.on_control(DRAIN, 7, 10_000)
    assert idle.tick(0) == [NodeDrained("n", 0)], "it had none to begin with"


def test_resume_cancels_the_drain() -> None:
    core = tracker_with_jobs(1)
    core.on_control(DRAIN, 7, 10_000)
    resume = ControlNode("n", 7, "resume", "")
    assert core.on_control(resume, 7, 0) == [SendControl(resume, 0)]
    core.check()
    assert failed_assigns(core.tick(10_000)) == []
    assert isinstance(core.on_assign(assign(1), PAYLOAD, 7, 10_001)[0], SendToEdge)


def test_reattached_node_receives_its_drain_again_and_an_offline_one_loses_it() -> None:
    core = tracker_with_jobs(1)
    core.on_control(DRAIN, 7, 10_000)
    core.node_detached("n", 7, 100)
    core.on_assign(assign(2), PAYLOAD, None, 200)
    effects = core.node_reattached("n", 300)
    assert effects[0] == SendControl(DRAIN, 10_000) and written(effects) == ["2"]
    core.node_detached("n", 9, 400)
    core.on_assign(assign(3, node_epoch=9), PAYLOAD, None, 500)
    assert failed_assigns(core.tick(400 + GRACE_MS)) == [("1", "node_gone"), ("2", "node_gone"), ("3", "job_lost")]
    core.check()
    assert core.node_reattached("n", 5_000) == [] and core.timers.next_due_ms() is None


def test_drain_deadline_of_a_detached_node_hands_buffered_jobs_over() -> None:
    core = tracker_with_jobs(1)
    core.node_detached("n", 7, 100)
    core.on_assign(assign(2), PAYLOAD, None, 150)
    core.on_control(DRAIN, None, 500)
    effects = core.tick(500)
    core.check()
    assert failed_assigns(effects) == [("1", "drained"), ("2", "drained")] and NodeDrained("n", 2) in effects


@pytest.mark.parametrize("epoch", [None, 6])
def test_command_for_a_node_of_another_edge_is_ignored(epoch: int | None) -> None:
    core = JobTracker("b", LIMITS)
    assert core.on_control(DRAIN, epoch, 10_000) == [] and core.timers.next_due_ms() is None
    assert core.outcomes[JobOutcome.CONTROL_STALE] == 1


def test_later_drain_of_a_node_replaces_the_deadline() -> None:
    timers: Timers[tuple[TimerKind, str]] = Timers()
    drains = Drains(timers)
    drains.start(DRAIN, 500)
    later = ControlNode("n", 7, "drain", "again", 99_000)
    drains.start(later, 900)
    drains.check()
    assert timers.pop_due(500) == [] and timers.next_due_ms() == 900
    drain = drains.nodes.get("n")
    assert drain is not None and drain.control is later
    assert timers.pop_due(900) == [(TimerKind.DRAIN_END, "n")]


def test_empty_node_is_due_at_once_and_forgotten_with_its_drain() -> None:
    timers: Timers[tuple[TimerKind, str]] = Timers()
    drains = Drains(timers)
    drains.has_no_job("n")
    assert timers.next_due_ms() is None, "it is in no drain"
    drains.start(DRAIN, 500)
    drains.has_no_job("n")
    assert timers.pop_due(0) == [(TimerKind.DRAINED, "n")]
    drains.has_no_job("n")
    assert timers.pop_due(0) == [], "once per drain"
    drains.start(DRAIN, 600)
    drains.has_no_job("n")
    drains.stop("n")
    drains.check()
    assert timers.next_due_ms() is None
