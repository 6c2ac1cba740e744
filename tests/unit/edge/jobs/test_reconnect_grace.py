"""Reconnect grace: detached nodes and the jobs buffered for them."""

from __future__ import annotations

from edge.core.timers import Timers
from edge.jobs.core.job import Payload, StopJob, TimerKind, WriteJob
from edge.jobs.core.reconnect_grace import ReconnectGrace
from edge.jobs.core.tracker import JobTracker
from mesh.frames import CancelJob
from tests.support.builders.jobs import (
    DELAY_MS,
    GRACE_MS,
    LIMITS,
    PAYLOAD,
    TEXT,
    assign,
    failed_assigns,
    placed_jobs,
    report,
    sent_directly,
    written,
)


def detached(*numbers: int) -> JobTracker:
    """The node detached at 100; these jobs were assigned to it since."""
    core = JobTracker("b", LIMITS)
    core.node_detached("n", 7, 100)
    for number in numbers:
        assert core.on_assign(assign(number), PAYLOAD, None, 200) == []
        core.check()
    return core


def test_job_for_a_detached_node_is_buffered_and_written_when_it_reattaches() -> None:
    core = detached(1, 2)
    assert core.on_assign(assign(1), PAYLOAD, None, 300) == [], "a repeat waits too, and is not confirmed"
    effects = core.node_reattached("n", 900)
    core.check()
    assert written(effects) == ["1", "2"]
    write = effects[0]
    assert isinstance(write, WriteJob) and write.payload == PAYLOAD
    assert placed_jobs(core.tick(900 + DELAY_MS)) == ["1", "2"], "they are placed since then"
    assert failed_assigns(core.tick(100 + GRACE_MS)) == [], "it is at the node now"
    result = sent_directly(core.on_result(report(1), TEXT, 5_000))
    assert result.push.request_id == "r1" and result.finished.took_ms == 4_100


def test_buffered_job_fails_when_the_grace_ends_and_a_retried_assign_fails_alike() -> None:
    core = detached(1)
    assert core.timers.next_due_ms() == 100 + GRACE_MS
    assert failed_assigns(core.tick(100 + GRACE_MS)) == [("1", "job_lost")]
    core.check()
    assert failed_assigns(core.on_assign(assign(1), PAYLOAD, None, 5_000)) == [("1", "job_lost")]
    assert failed_assigns(core.on_assign(assign(2), PAYLOAD, None, 5_000)) == [("2", "node_absent")]
    assert core.timers.next_due_ms() is None


def test_job_is_buffered_only_for_the_epoch_that_was_here() -> None:
    core = detached()
    assert failed_assigns(core.on_assign(assign(1, node_epoch=8), PAYLOAD, None, 200)) == [("1", "node_absent")]
    assert failed_assigns(core.on_assign(assign(1, node_id="m"), PAYLOAD, None, 200)) == [("1", "node_absent")]
    core.node_reattached("n", 300)
    assert failed_assigns(core.on_assign(assign(1), PAYLOAD, None, 350)) == [("1", "node_absent")], "closing already"


def test_assign_for_the_former_epoch_of_a_reattached_node_is_written() -> None:
    core = detached()
    core.node_reattached("n", 300)
    assert written(core.on_assign(assign(1), PAYLOAD, 9, 400)) == ["1"]
    core.tick(100 + GRACE_MS)
    assert failed_assigns(core.on_assign(assign(2), PAYLOAD, 9, 5_000)) == [("2", "node_absent")], "long ago"


def test_cancelled_job_leaves_the_buffer() -> None:
    core = detached(1)
    cancel = CancelJob("job-00-1", 1, "n", "t", "session_closed")
    assert core.on_cancel(cancel, 300) == [StopJob(cancel)]
    core.check()
    assert core.node_reattached("n", 400) == [] and core.on_assign(assign(1), PAYLOAD, 7, 500) == []


def test_buffered_jobs_are_bounded_per_node_and_in_all() -> None:
    core = detached(1, 2, 3)
    assert failed_assigns(core.on_assign(assign(4), PAYLOAD, None, 200)) == [("4", "node_absent")], "jobs of one node"
    core.node_detached("m", 7, 100)
    large = Payload(b"", b"x" * 31)
    assert failed_assigns(core.on_assign(assign(5, node_id="m"), large, None, 200)) == [("5", "node_absent")], (
        "bytes of one"
    )
    assert core.on_assign(assign(5, node_id="m"), PAYLOAD, None, 200) == []
    core.check()
    assert failed_assigns(core.on_assign(assign(6, node_id="m"), PAYLOAD, None, 200)) == [("6", "node_absent")], (
        "in all"
    )
    core.on_cancel(CancelJob("job-00-5", 1, "m", "", ""), 250)
    tight = Payload(b"", b"x" * 14)
    assert failed_assigns(core.on_assign(assign(7, node_id="m"), tight, None, 300)) == [("7", "node_absent")], (
        "bytes in all"
    )
    core.check()


def test_detached_nodes_are_bounded_except_those_with_running_jobs() -> None:
    core = JobTracker("b", LIMITS)
    for number in range(6):
        core.node_detached(f"n{number}", 1, 0)
        core.check()
    core.on_assign(assign(1), PAYLOAD, 7, 0)
    core.node_detached("n", 7, 0)
    assert failed_assigns(core.tick(GRACE_MS)) == [("1", "node_gone")]
    core.check()


def test_result_of_a_buffered_job_removes_it() -> None:
    core = detached(1)
    core.on_result(report(1), (b"invented",), 300)
    core.check()
    assert core.node_reattached("n", 400) == []


def test_node_is_listed_until_its_grace_ends_even_if_reattached() -> None:
    timers: Timers[tuple[TimerKind, str]] = Timers()
    nodes = ReconnectGrace(LIMITS.grace, timers)
    nodes.detach("n", 7, 0, has_jobs=False)
    node = nodes.nodes.get("n")
    assert node is not None and node.epoch == 7 and "n" in nodes and "m" not in nodes
    nodes.reattach("n")
    assert "n" not in nodes and nodes.nodes.get("n") is node
    assert timers.pop_due(GRACE_MS - 1) == [] and timers.pop_due(GRACE_MS) == [(TimerKind.GRACE, "n")]
    assert nodes.on_due(["n"]) == [] and nodes.nodes.get("n") is None
    nodes.check()
