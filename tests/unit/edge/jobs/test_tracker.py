"""Job tracker by single steps: assignments, progress, results, cancellations, node errors."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.jobs.core.job import AckToNode, SendToEdge, SendToJob, StopJob, WriteJob
from edge.jobs.core.tracker import JobTracker
from mesh.frames import AssignFailed, CancelJob, ControlNode, Finished, JobDone, JobEvent, Notice, Placed, Push
from mesh.states.job import JobAction
from mesh.words import JobOutcome, ResultVerdict
from tests.support.builders.jobs import (
    DELAY_MS,
    LIMITS,
    PAYLOAD,
    TEXT,
    ack,
    assign,
    end_result,
    failed_assigns,
    finished,
    placed_jobs,
    report,
    sent_by_selector,
    sent_directly,
    tracker_with_jobs,
    written,
)


def event(events: str) -> SendToJob:
    return SendToJob("job-00-1", JobEvent("job-00-1", 1, "n", events))


def test_retried_assign_is_confirmed_and_not_written_again() -> None:
    core = tracker_with_jobs(1)
    (again,) = core.on_assign(assign(), PAYLOAD, 7, 10)
    assert isinstance(again, SendToEdge) and isinstance(again.frame, Placed) and again.to == "a"
    (again,) = core.on_assign(assign(), PAYLOAD, None, 20)
    assert isinstance(again, SendToEdge), "within the grace a node that is away keeps its job"
    assert placed_jobs(core.tick(DELAY_MS)) == [], "it was confirmed already"


def test_job_runs_at_its_node_until_its_result() -> None:
    core = tracker_with_jobs(1)
    job = assign()
    assert core.is_running(job.node_id, job.job_id, job.attempt)
    assert not core.is_running("another", job.job_id, job.attempt)
    core.on_result(report(), TEXT, 10)
    assert not core.is_running(job.node_id, job.job_id, job.attempt)


def test_job_is_placed_after_the_delay_and_only_without_a_result() -> None:
    core = tracker_with_jobs(1, 2)
    assert placed_jobs(core.tick(DELAY_MS - 1)) == []
    sent_directly(core.on_result(report(1), TEXT, DELAY_MS - 1))
    assert placed_jobs(core.tick(DELAY_MS)) == ["2"]
    core.on_progress("n", "job-00-2", 1, JobAction.ACCEPT, 100)
    assert placed_jobs(core.tick(100 + DELAY_MS)) == [], "once"


def test_assign_fails_for_absent_node_wrong_epoch_and_stuck_socket() -> None:
    core = JobTracker("b", LIMITS)
    for epoch in (None, 6, 8):
        (failed,) = core.on_assign(assign(), PAYLOAD, epoch, 0)
        assert isinstance(failed, SendToJob) and isinstance(failed.frame, AssignFailed)
        assert failed.frame.reason == "node_absent"
    core.on_assign(assign(), PAYLOAD, 7, 0)
    (failed,) = core.write_failed(assign())
    assert isinstance(failed, SendToJob) and isinstance(failed.frame, AssignFailed)
    assert failed.frame.reason == "node_stuck"
    (write,) = core.on_assign(assign(), PAYLOAD, 7, 0)
    assert isinstance(write, WriteJob), "it was not remembered"


def test_progress_for_the_client_is_sent_to_the_session_edge() -> None:
    core = tracker_with_jobs(1)
    placed, notice = core.on_progress("n", "job-00-1", 1, JobAction.ACCEPT, 1)
    assert isinstance(placed, SendToEdge) and isinstance(placed.frame, Placed), "before any other progress, and once"
    assert isinstance(notice, SendToEdge) and isinstance(notice.frame, Notice)
    assert (notice.to, notice.frame.event, notice.frame.request_id, notice.payload) == ("a", "accepted", "r1", ())
    assert core.on_progress("n", "job-00-1", 1, JobAction.START, 1) == [], "no client is shown that a job was started"
    (notice,) = core.on_progress("n", "job-00-1", None, JobAction.START, 2, b"{}")
    assert isinstance(notice, SendToEdge) and isinstance(notice.frame, Notice)
    assert (notice.frame.event, notice.payload) == ("asr_partial", (b"{}",))
    assert core.on_progress("n", "job-00-1", 2, JobAction.ACCEPT, 3) == []
    assert core.on_progress("other", "job-00-1", 1, JobAction.ACCEPT, 3) == []
    assert core.outcomes[JobOutcome.PROGRESS_UNKNOWN] == 2


def test_result_of_another_node_does_not_affect_the_node_that_has_the_job() -> None:
    core = tracker_with_jobs(1)
    core.on_result(report(node_id="thief"), (b"forged",), 0)
    core.check()
    result = sent_directly(core.on_result(report(), TEXT, 10))
    core.check()
    assert (result.push.request_id, result.payload) == ("r1", TEXT)
    fenced = core.on_ack(ack("fenced", node_id="thief"), 20)
    core.on_finished_ack(finished(node_id="thief"))
    assert fenced == [AckToNode("thief", "job-00-1", 1)] and list(core.results.values()) == [result]
    assert (result.is_acked, result.is_finished, result.payload) == (False, False, TEXT)
    assert core.on_result(report(), TEXT, 30) == [], "a repeat: it is here, and not yet acknowledged"
    assert end_result(core, 1, 40) == [AckToNode("n", "job-00-1", 1)] and not core.results


def test_offline_node_loses_its_jobs_and_a_reattached_one_keeps_them() -> None:
    core = tracker_with_jobs(1)
    core.on_assign(assign(2), PAYLOAD, 7, 0)
    core.on_result(report(2), TEXT, 5)
    core.node_detached("n", 7, 100)
    core.node_reattached("n", 100)
    assert [effect for effect in core.tick(2_100) if isinstance(effect, SendToJob)] == [event("dispatch")]
    core.node_detached("n", 7, 3_000)
    failed = [effect for effect in core.tick(5_000) if isinstance(effect, SendToJob)]
    reasons = [effect.frame.reason for effect in failed if isinstance(effect.frame, AssignFailed)]
    assert reasons == ["node_gone"], "whether it is anywhere else is for the selector to say"
    assert [effect.job_id for effect in failed] == ["job-00-1"], "the finished one is not given back"
    (write,) = core.on_assign(assign(1, attempt=2, node_epoch=9), PAYLOAD, 9, 5_100)
    assert isinstance(write, WriteJob)


def test_result_after_a_reconnect_with_a_new_epoch_finds_its_job() -> None:
    core = tracker_with_jobs(1)
    core.node_detached("n", 7, 100)
    core.node_reattached("n", 100)
    assert sent_directly(core.on_result(report(), TEXT, 200)).push.request_id == "r1"


def test_jobs_missing_from_the_heartbeat_of_a_reattached_node_are_lost() -> None:
    core = tracker_with_jobs(1)
    for number in (2, 3):
        core.on_assign(assign(number), PAYLOAD, 7, 0)
    core.on_result(report(3), TEXT, 5)
    core.node_detached("n", 7, 100)
    core.node_reattached("n", 100)
    core.on_assign(assign(4, node_epoch=9), PAYLOAD, 9, 110)
    lost = core.on_jobs_reported("n", {"n/job-00-2#1"}, 120)
    core.check()
    (lost_job,) = lost
    assert isinstance(lost_job, SendToJob) and isinstance(lost_job.frame, AssignFailed)
    assert (lost_job.frame.job_id, lost_job.frame.reason) == ("job-00-1", "job_lost")
    assert core.on_jobs_reported("n", set(), 130) == [], "confirmed, or written to this socket just now"
    assert sent_directly(core.on_result(report(2), TEXT, 200)).push.request_id == "r2"
    assert core.on_jobs_reported("unknown", set(), 130) == []


def test_cancel_is_sent_to_the_node_and_ends_the_job() -> None:
    core = tracker_with_jobs(1)
    cancel = CancelJob("job-00-1", 1, "n", "t", "job_timeout")
    assert core.on_cancel(cancel, 5) == [StopJob(cancel)]
    assert core.on_result(report(), TEXT, 10) == [AckToNode("n", "job-00-1", 1)], "too late: it may forget it"
    assert core.outcomes[JobOutcome.RESULT_LATE] == 1
    assert not core.results


def test_assign_that_its_cancel_overtook_is_not_written() -> None:
    core = JobTracker("b", LIMITS)
    core.on_cancel(CancelJob("job-00-1", 1, "n", "t", "job_timeout"), 0)
    assert core.on_assign(assign(), PAYLOAD, 7, 10) == []
    core.check()
    (write,) = core.on_assign(assign(attempt=2), PAYLOAD, 7, 20)
    assert isinstance(write, WriteJob), "another attempt is another matter"


def test_cancel_does_not_drop_an_unacked_result() -> None:
    core = tracker_with_jobs(1)
    core.on_result(report(), TEXT, 0)
    core.on_cancel(CancelJob("job-00-1", 1, "n", "t", "session_closed"), 5)
    assert core.on_result(report(), TEXT, 10) == [] and core.on_ack(ack("duplicate"), 20) != []


EVENTS = st.tuples(
    st.sampled_from(
        [
            "assign",
            "absent",
            "accept",
            "start",
            "result",
            "ack",
            "finished",
            "no_session",
            "push returned",
            "finished returned",
            "done returned",
            "gone",
            "back",
            "jobs",
            "cancel",
            "stuck",
            "wait",
            "wait",
            "error",
            "errors",
            "drain",
            "resume",
        ]
    ),
    st.integers(0, 5),
)


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=80))
def test_any_sequence_keeps_the_bounds(events: list[tuple[str, int]]) -> None:
    core, now = JobTracker("b", LIMITS), 0
    for kind, number in events:
        if kind in ("assign", "absent"):
            core.on_assign(assign(number), PAYLOAD, 7 if kind == "assign" else None, now)
        elif kind in ("accept", "start"):
            core.on_progress("n", f"job-00-{number}", 1, JobAction(kind), now)
        elif kind == "result":
            core.on_result(report(number), (b"x" * 100, b"x" * 150), now)
        elif kind in ("ack", "no_session"):
            core.on_ack(ack("delivered" if kind == "ack" else kind, number), now)
        elif kind == "finished":
            core.on_finished_ack(finished(number))
        elif kind.endswith("returned"):
            push = Push(f"job-00-{number}", 1, "n", "b", f"r{number}", "s", number)
            if kind.startswith("push"):
                core.on_push_returned(push, now)
            elif kind.startswith("finished"):
                core.on_finished_returned(Finished(push.job_id, 1, "n", "b", True))
            else:
                core.on_done_returned(JobDone(push.job_id, 1, "n", "b", "", "s", 0, "a", True), 50, now)
        elif kind == "gone":
            core.node_detached("n", 7, now)
        elif kind == "back":
            core.node_reattached("n", now)
        elif kind == "jobs":
            core.on_jobs_reported("n", {f"n/job-00-{number}#1"} if number else None, now)
        elif kind == "cancel":
            core.on_cancel(CancelJob(f"job-00-{number}", 1, "n", "", ""), now)
        elif kind == "stuck":
            core.write_failed(assign(number))
        elif kind in ("error", "errors"):
            core.on_node_error("n", f"job-00-{number}" if kind == "error" else None, None, now)
        elif kind in ("drain", "resume"):
            core.on_control(ControlNode("n", 7, kind, ""), 7, now + number * 300)
        else:
            now += number * number * 100
            core.tick(now)
        core.check()
        named = core.running_at("n", [(f"job-00-{number}", 1)])
        assert named is not None and len(named) == len(set(named))


def test_node_error_fails_one_job_or_all_of_the_node() -> None:
    core = tracker_with_jobs(1, 2, 3)
    assert failed_assigns(core.on_node_error("n", "job-00-2", None, 50)) == [("2", "node_error")]
    assert core.on_node_error("n", "job-00-2", None, 60) == [] == core.on_node_error("n", "job-00-1", 2, 60)
    assert failed_assigns(core.on_node_error("n", "job-00-1", 1, 60)) == [("1", "node_error")]
    assert failed_assigns(core.on_node_error("n", None, None, 70)) == [("3", "node_error")]
    core.check()
    assert core.running_at("n", [("job-00-2", 1)]) == []
    assert failed_assigns(core.on_assign(assign(2), PAYLOAD, 7, 80)) == [("2", "node_error")], "AssignFailed was lost"
    assert written(core.on_assign(assign(2, attempt=2), PAYLOAD, 7, 90)) == ["2"], "another attempt is another matter"


def test_late_result_of_a_failed_assign_is_sent_as_of_an_unknown_job() -> None:
    core = tracker_with_jobs(1)
    core.on_node_error("n", None, None, 50)
    done = sent_by_selector(core.on_result(report(1), TEXT, 60)).done
    core.check()
    assert (done.request_id, done.resend) == ("", 1)
    assert core.on_ack(ack("fenced"), 70) == [AckToNode("n", "job-00-1", 1)]
    assert core.on_result(report(1), TEXT, 80) == [AckToNode("n", "job-00-1", 1)]
    assert core.outcomes[ResultVerdict.FENCED] == 1
