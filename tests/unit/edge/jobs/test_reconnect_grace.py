"""Jobs for nodes that are away, drains and node errors by single steps, and what a heartbeat says is running."""

from __future__ import annotations

import pytest

from edge.jobs.core import reconnect_grace
from edge.jobs.core.job import (
    Effect,
    NodeDrained,
    Payload,
    SendDone,
    SendToEdge,
    SendToJob,
    StopJob,
    TellControl,
    TellNode,
    WriteJob,
)
from edge.jobs.core.tracker import JobTracker
from mesh.frames import AssignFailed, CancelJob, ControlNode, Placed, ResultAck
from mesh.states.job import RUNNING_JOBS_MAX
from tests.support.builders.jobs import GRACE_MS, KEPT_MS, LIMITS, NAMED_MS, PAYLOAD, assign, report

KEY = "n/job-00-1#1"
DRAIN = ControlNode("n", 7, "drain", "upgrade", 99_000)


def with_jobs(*numbers: int) -> JobTracker:
    core = JobTracker("b", LIMITS)
    for number in numbers:
        core.on_assign(assign(number), PAYLOAD, 7, 0)
    return core


def gone(*numbers: int) -> JobTracker:
    """The node left at 100; these jobs came for it since."""
    core = JobTracker("b", LIMITS)
    core.node_gone("n", 7, 100)
    for number in numbers:
        assert core.on_assign(assign(number), PAYLOAD, None, 200) == []
        core.check()
    return core


def given_back(effects: list[Effect]) -> list[tuple[str, str]]:
    frames = [effect.frame for effect in effects if isinstance(effect, SendToJob)]
    return [(frame.job_id[-1], frame.reason) for frame in frames if isinstance(frame, AssignFailed)]


def written(effects: list[Effect]) -> list[str]:
    return [effect.assign.job_id[-1] for effect in effects if isinstance(effect, WriteJob)]


# --- held ------------------------------------------------------------------------------------------


def test_job_for_a_node_that_just_left_waits_and_is_written_when_it_is_back() -> None:
    core = gone(1, 2)
    assert core.on_assign(assign(1), PAYLOAD, None, 300) == [], "a repeat waits too, and is not confirmed"
    effects = core.node_back("n", 900)
    core.check()
    assert written(effects) == ["1", "2"]
    write = effects[0]
    assert isinstance(write, WriteJob) and write.payload == PAYLOAD and isinstance(write.placed, Placed)
    assert given_back(core.tick(100 + GRACE_MS)) == [], "it is at the node now"
    (done,) = core.on_result(report(1), b"text", 5_000)
    assert isinstance(done, SendDone) and done.done.request_id == "r1" and done.done.took_ms == 4_100


def test_held_job_goes_elsewhere_when_the_grace_ends_and_a_repeat_hears_it_again() -> None:
    core = gone(1)
    assert core.next_due_ms() == 100 + GRACE_MS
    assert given_back(core.tick(100 + GRACE_MS)) == [("1", "job_lost")]
    core.check()
    assert given_back(core.on_assign(assign(1), PAYLOAD, None, 5_000)) == [("1", "job_lost")]
    assert given_back(core.on_assign(assign(2), PAYLOAD, None, 5_000)) == [("2", "node_absent")]
    assert core.next_due_ms() is None


def test_only_the_connection_that_was_here_counts() -> None:
    core = gone()
    assert given_back(core.on_assign(assign(1, node_epoch=8), PAYLOAD, None, 200)) == [("1", "node_absent")]
    assert given_back(core.on_assign(assign(1, node_id="m"), PAYLOAD, None, 200)) == [("1", "node_absent")]
    core.node_back("n", 300)
    assert given_back(core.on_assign(assign(1), PAYLOAD, None, 350)) == [("1", "node_absent")], "closing already"


def test_assign_for_the_former_connection_of_a_node_that_is_back_is_written() -> None:
    core = gone()
    core.node_back("n", 300)
    assert written(core.on_assign(assign(1), PAYLOAD, 9, 400)) == ["1"]
    core.tick(100 + GRACE_MS)
    assert given_back(core.on_assign(assign(2), PAYLOAD, 9, 5_000)) == [("2", "node_absent")], "long ago"


def test_cancelled_job_is_held_no_longer() -> None:
    core = gone(1)
    cancel = CancelJob("job-00-1", 1, "n", "t", "session_closed")
    assert core.on_cancel(cancel, 300) == [StopJob(cancel)]
    core.check()
    assert core.node_back("n", 400) == [] and core.on_assign(assign(1), PAYLOAD, 7, 500) == []


def test_held_jobs_are_bounded_per_node_and_in_all() -> None:
    core = gone(1, 2, 3)
    assert given_back(core.on_assign(assign(4), PAYLOAD, None, 200)) == [("4", "node_absent")], "jobs of one node"
    core.node_gone("m", 7, 100)
    large = Payload(b"", b"x" * 31)
    assert given_back(core.on_assign(assign(5, node_id="m"), large, None, 200)) == [("5", "node_absent")], (
        "bytes of one"
    )
    assert core.on_assign(assign(5, node_id="m"), PAYLOAD, None, 200) == []
    core.check()
    assert given_back(core.on_assign(assign(6, node_id="m"), PAYLOAD, None, 200)) == [("6", "node_absent")], "in all"
    core.on_cancel(CancelJob("job-00-5", 1, "m", "", ""), 250)
    tight = Payload(b"", b"x" * 14)
    assert given_back(core.on_assign(assign(7, node_id="m"), tight, None, 300)) == [("7", "node_absent")], (
        "bytes in all"
    )
    core.check()


def test_nodes_that_left_are_remembered_up_to_a_bound_but_jobs_always_end() -> None:
    core = JobTracker("b", LIMITS)
    for number in range(6):
        core.node_gone(f"n{number}", 1, 0)
        core.check()
    core.on_assign(assign(1), PAYLOAD, 7, 0)
    core.node_gone("n", 7, 0)
    assert given_back(core.tick(GRACE_MS)) == [("1", "node_gone")]
    core.check()


def test_result_of_a_held_job_drops_it() -> None:
    core = gone(1)
    core.on_result(report(1), b"invented", 300)
    core.check()
    assert core.node_back("n", 400) == []


def test_speed_is_not_measured_over_a_reconnect_or_of_unknown_jobs() -> None:
    core = with_jobs(1, 2)
    (done,) = core.on_result(report(2), b"text", 300)
    assert isinstance(done, SendDone) and done.done.took_ms == 300
    core.node_gone("n", 7, 400)
    core.node_back("n", 500)
    (done,) = core.on_result(report(1), b"text", 600)
    assert isinstance(done, SendDone) and done.done.took_ms == -1
    (done,) = core.on_result(report(9), b"text", 600)
    assert isinstance(done, SendDone) and (done.done.took_ms, done.done.pair) == (-1, "")


def test_what_the_speed_model_and_hedging_need_is_passed_on() -> None:
    core = JobTracker("b", LIMITS)
    (write,) = core.on_assign(assign(1, pair="zh>en", audio_ms=1_800, late_after_ms=700), PAYLOAD, 7, 50)
    assert isinstance(write, WriteJob) and write.placed.late_after_ms == 700
    (done,) = core.on_result(report(1), b"text", 450)
    assert isinstance(done, SendDone)
    assert (done.done.pair, done.done.audio_ms, done.done.took_ms) == ("zh>en", 1_800, 400)


# --- what is running -------------------------------------------------------------------------------


def test_running_is_what_the_node_names_and_what_the_edge_knows_until_it_is_acknowledged() -> None:
    core = with_jobs(1, 2)
    assert core.jobs_of("n", []) == ["job-00-1#1", "job-00-2#1"], "a node that names none: what it was given"
    core.on_result(report(2), b"text", 10)
    assert core.jobs_of("n", [("job-00-7", 3)]) == ["job-00-1#1", "job-00-2#1", "job-00-7#3"]
    core.on_ack(ResultAck("job-00-2", 1, "n", "delivered"), 20)
    assert core.jobs_of("n", [("job-00-2", 1)]) == ["job-00-1#1"], "it named that before it knew"
    core.on_cancel(CancelJob("job-00-1", 1, "n", "", ""), 30)
    assert core.jobs_of("n", [("job-00-1", 1)]) == [] == core.jobs_of("m", [])
    assert core.jobs_of("n", [("job-00-1", attempt) for attempt in range(2, RUNNING_JOBS_MAX + 3)]) is None


def test_job_that_a_node_does_not_name_for_a_whole_heartbeat_is_lost() -> None:
    core = with_jobs(1)
    assert core.on_jobs("n", set(), NAMED_MS - 1) == [], "it may have crossed the heartbeat"
    assert core.on_jobs("n", {KEY}, NAMED_MS) == [] == core.on_jobs("n", None, NAMED_MS)
    assert given_back(core.on_jobs("n", set(), NAMED_MS)) == [("1", "job_lost")]
    core.check()
    assert core.jobs_of("n", []) == [] and core.outcomes["job_lost"] == 1


def test_job_that_outlived_its_slot_is_given_up_whatever_the_node_says() -> None:
    for named in (None, {KEY}):
        core = with_jobs(1)
        assert core.on_jobs("n", named, KEPT_MS - 1) == []
        effects = core.on_jobs("n", named, KEPT_MS)
        assert given_back(effects) == [("1", "job_lost")] and any(isinstance(effect, StopJob) for effect in effects)
        core.check()


# --- node errors -----------------------------------------------------------------------------------


def test_node_error_gives_one_job_or_all_of_them_back_at_once() -> None:
    core = with_jobs(1, 2, 3)
    assert given_back(core.on_node_error("n", "job-00-2", None, 50)) == [("2", "node_error")]
    assert core.on_node_error("n", "job-00-2", None, 60) == [] == core.on_node_error("n", "job-00-1", 2, 60)
    assert given_back(core.on_node_error("n", "job-00-1", 1, 60)) == [("1", "node_error")]
    assert given_back(core.on_node_error("n", None, None, 70)) == [("3", "node_error")]
    core.check()
    assert core.jobs_of("n", [("job-00-2", 1)]) == []
    assert given_back(core.on_assign(assign(2), PAYLOAD, 7, 80)) == [("2", "node_error")], "the mesh did not hear it"
    assert written(core.on_assign(assign(2, attempt=2), PAYLOAD, 7, 90)) == ["2"], "another attempt is another matter"


def test_late_result_of_a_job_that_was_given_back_is_for_the_mesh_to_judge() -> None:
    core = with_jobs(1)
    core.on_node_error("n", None, None, 50)
    (done,) = core.on_result(report(1), b"text", 60)
    core.check()
    assert isinstance(done, SendDone) and (done.done.request_id, done.done.resend) == ("", 1)
    assert core.on_ack(ResultAck("job-00-1", 1, "n", "fenced"), 70) == [TellNode("n", "job-00-1", 1)]
    assert core.on_result(report(1), b"text", 80) == [TellNode("n", "job-00-1", 1)]
    assert core.outcomes["fenced"] == 1


# --- drains ----------------------------------------------------------------------------------------


def test_drained_node_keeps_its_jobs_until_the_deadline_and_then_loses_them() -> None:
    core = with_jobs(1, 2)
    core.tick(25)
    assert core.on_control(DRAIN, 7, 10_000) == [TellControl(DRAIN, 10_000)]
    assert written(core.on_assign(assign(3), PAYLOAD, 7, 30)) == ["3"], "it was committed before the drain"
    core.on_result(report(2), b"text", 50)
    core.on_ack(ResultAck("job-00-2", 1, "n", "delivered"), 60)
    effects = core.tick(10_000)
    core.check()
    assert given_back(effects) == [("1", "drained"), ("3", "drained")]
    stops = [effect.cancel for effect in effects if isinstance(effect, StopJob)]
    assert [(stop.job_id, stop.reason, stop.trace_id) for stop in stops] == [
        ("job-00-1", "drained", "t"), ("job-00-3", "drained", "t"),
    ]  # fmt: skip
    assert NodeDrained("n", 2) in effects and core.next_due_ms() is None
    assert given_back(core.on_assign(assign(1), PAYLOAD, 7, 11_000)) == [("1", "drained")]


def test_it_is_said_once_when_a_drained_node_has_nothing_left() -> None:
    core = with_jobs(1)
    core.tick(25)
    core.on_control(DRAIN, 7, 10_000)
    core.on_result(report(1), b"text", 50)
    assert core.next_due_ms() == 0 and NodeDrained("n", 0) in core.tick(60)
    core.on_ack(ResultAck("job-00-1", 1, "n", "delivered"), 70)
    core.on_assign(assign(2), PAYLOAD, 7, 80)
    core.on_cancel(CancelJob("job-00-2", 1, "n", "", ""), 90)
    assert core.tick(100) == [] and core.tick(10_000) == [NodeDrained("n", 0)]
    idle = JobTracker("b", LIMITS)
    idle.on_control(DRAIN, 7, 10_000)
    assert idle.tick(0) == [NodeDrained("n", 0)], "it had none to begin with"


def test_resume_leaves_the_node_its_jobs() -> None:
    core = with_jobs(1)
    core.on_control(DRAIN, 7, 10_000)
    resume = ControlNode("n", 7, "resume", "")
    assert core.on_control(resume, 7, 0) == [TellControl(resume, 0)]
    core.check()
    assert given_back(core.tick(10_000)) == []
    assert isinstance(core.on_assign(assign(1), PAYLOAD, 7, 10_001)[0], SendToEdge)


def test_drained_node_that_comes_back_hears_of_it_again_and_one_that_stays_away_is_forgotten() -> None:
    core = with_jobs(1)
    core.on_control(DRAIN, 7, 10_000)
    core.node_gone("n", 7, 100)
    core.on_assign(assign(2), PAYLOAD, None, 200)
    effects = core.node_back("n", 300)
    assert effects[0] == TellControl(DRAIN, 10_000) and written(effects) == ["2"]
    core.node_gone("n", 9, 400)
    core.on_assign(assign(3, node_epoch=9), PAYLOAD, None, 500)
    assert given_back(core.tick(400 + GRACE_MS)) == [("1", "node_gone"), ("2", "node_gone"), ("3", "job_lost")]
    core.check()
    assert core.node_back("n", 5_000) == [] and core.next_due_ms() is None


def test_deadline_that_passes_while_the_node_is_away_takes_held_jobs_too() -> None:
    core = with_jobs(1)
    core.node_gone("n", 7, 100)
    core.on_assign(assign(2), PAYLOAD, None, 150)
    core.on_control(DRAIN, None, 500)
    effects = core.tick(500)
    core.check()
    assert given_back(effects) == [("1", "drained"), ("2", "drained")] and NodeDrained("n", 2) in effects


@pytest.mark.parametrize("epoch", [None, 6])
def test_command_for_a_node_that_is_not_here_is_disregarded(epoch: int | None) -> None:
    core = JobTracker("b", LIMITS)
    assert core.on_control(DRAIN, epoch, 10_000) == [] and core.next_due_ms() is None
    assert core.outcomes["control_stale"] == 1


def test_away_alone_knows_who_left_and_who_is_back() -> None:
    nodes = reconnect_grace.ReconnectGrace(LIMITS.away)
    nodes.gone("n", 7, 0, has_jobs=False)
    assert "n" in nodes and nodes.had("n", 7) and not nodes.had("n", 8) and "m" not in nodes
    nodes.back("n")
    assert "n" not in nodes and nodes.had("n", 7)
    assert nodes.pop_due(GRACE_MS) == [] and not nodes.had("n", 7)
    nodes.check()
