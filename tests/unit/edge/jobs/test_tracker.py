"""Deliveries by single steps: assignments, progress, results that are kept, nodes that come and go."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.jobs.core.job import SendDone, SendToEdge, SendToJob, StopJob, TellNode, WriteJob
from edge.jobs.core.tracker import JobTracker
from mesh.errors import ErrorCode, PeerError
from mesh.frames import AssignFailed, CancelJob, ControlNode, JobEvent, Notice, Placed, ResultAck
from mesh.states.job import JobAction
from tests.support.builders.jobs import DELAY_MS, LIMITS, PAYLOAD, assign, report


def ack(verdict: str, number: int = 1) -> ResultAck:
    return ResultAck(f"job-00-{number}", 1, "n", verdict)


def event(words: str) -> SendToJob:
    return SendToJob("job-00-1", JobEvent("job-00-1", 1, "n", words))


def with_job() -> JobTracker:
    core = JobTracker("b", LIMITS)
    (write,) = core.on_assign(assign(), PAYLOAD, 7, 0)
    assert isinstance(write, WriteJob)
    assert isinstance(write.placed, Placed)
    core.check()
    return core


def test_repeated_assign_is_only_confirmed_again() -> None:
    core = with_job()
    (again,) = core.on_assign(assign(), PAYLOAD, 7, 10)
    assert isinstance(again, SendToEdge) and isinstance(again.frame, Placed) and again.to == "a"
    (again,) = core.on_assign(assign(), PAYLOAD, None, 20)
    assert isinstance(again, SendToEdge), "within the grace a node that is away keeps its job"


def test_absent_node_wrong_epoch_and_stuck_socket_give_the_job_back() -> None:
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


def test_progress_worth_showing_is_told_to_the_session() -> None:
    core = with_job()
    (notice,) = core.on_progress("n", "job-00-1", 1, JobAction.ACCEPT, 1)
    assert isinstance(notice, SendToEdge) and isinstance(notice.frame, Notice)
    assert (notice.to, notice.frame.event, notice.frame.request_id, notice.payload) == ("a", "accepted", "r1", ())
    assert core.on_progress("n", "job-00-1", 1, JobAction.START, 1) == [], "no client is shown that a job was started"
    (notice,) = core.on_progress("n", "job-00-1", None, JobAction.START, 2, b"{}")
    assert isinstance(notice, SendToEdge) and isinstance(notice.frame, Notice)
    assert (notice.frame.event, notice.payload) == ("asr_partial", (b"{}",))
    assert core.on_progress("n", "job-00-1", 2, JobAction.ACCEPT, 3) == []
    assert core.on_progress("other", "job-00-1", 1, JobAction.ACCEPT, 3) == []
    assert core.outcomes["progress_unknown"] == 2


def test_events_of_a_job_go_out_together_once_they_waited() -> None:
    core = with_job()
    core.on_progress("n", "job-00-1", 1, JobAction.ACCEPT, 5)
    core.on_progress("n", "job-00-1", 1, JobAction.START, 10)
    core.on_progress("n", "job-00-1", 1, JobAction.ACCEPT, 11)
    assert core.next_due_ms() == DELAY_MS and core.tick(DELAY_MS - 1) == []
    assert core.tick(DELAY_MS) == [event("dispatch accept start")]
    core.on_progress("n", "job-00-1", None, JobAction.START, 40, b"{}")
    assert core.next_due_ms() is None, "each word is said once"


def test_events_that_come_later_wait_anew_and_those_that_were_overtaken_are_left_out() -> None:
    core = with_job()
    assert core.tick(DELAY_MS) == [event("dispatch")]
    core.on_progress("n", "job-00-1", None, JobAction.START, 100, b"{}")
    core.on_progress("n", "job-00-1", 1, JobAction.ACCEPT, 110)
    assert core.next_due_ms() == 100 + DELAY_MS
    assert core.tick(100 + DELAY_MS) == [event("start")]


def test_job_that_ends_first_leaves_its_events_unsaid() -> None:
    ends: list[Callable[[JobTracker], object]] = [
        lambda core: core.on_result(report(), b"text", 10),
        lambda core: core.on_cancel(CancelJob("job-00-1", 1, "n", "t", "job_timeout"), 10),
        lambda core: core.write_failed(assign()),
    ]
    for end in ends:
        core = with_job()
        end(core)
        core.check()
        assert not [effect for effect in core.tick(DELAY_MS) if isinstance(effect, SendToJob)]


def test_result_is_kept_and_sent_again_until_acknowledged() -> None:
    core = with_job()
    (done,) = core.on_result(report(), b"text", 0)
    assert isinstance(done, SendDone)
    assert (done.done.request_id, done.done.session_id, done.done.utterance_index) == ("r1", "s", 1)
    assert (done.done.session_edge, done.done.node_edge, done.done.resend) == ("a", "b", 0)
    core.sent(done.key, "broker-1")
    times = []
    for number in range(1, 5):
        due = core.next_due_ms()
        assert due is not None
        times.append(due)
        (again,) = core.tick(due)
        assert isinstance(again, SendDone) and again.done.resend == number and again.avoid == "broker-1"
        core.check()
    assert times == [400, 1_200, 2_700, 4_200]
    assert core.on_result(report(), b"text", 7_000) == [], "the node repeats it: it is here already"
    (told,) = core.on_ack(ack("delivered"), 8_000)
    assert told == TellNode("n", "job-00-1", 1)
    assert core.next_due_ms() is None and not core.results
    assert core.on_ack(ack("delivered"), 8_100) == []
    assert core.on_result(report(), b"text", 8_200) == [TellNode("n", "job-00-1", 1)]
    assert core.on_assign(assign(), PAYLOAD, 7, 8_300) == [], "done and delivered: nothing to do"


def test_result_of_an_unknown_job_is_sent_with_what_the_node_says() -> None:
    core = JobTracker("b", LIMITS)
    (done,) = core.on_result(report(), b"text", 0)
    assert isinstance(done, SendDone)
    assert (done.done.request_id, done.done.session_edge, done.done.session_id) == ("", "", "forged")
    assert done.done.resend == 1, "the selector looks the session's owner up"
    assert core.outcomes["job_unknown"] == 1


def test_result_from_another_node_than_the_assigned_one_gets_no_request_id() -> None:
    core = with_job()
    (done,) = core.on_result(report(node_id="thief"), b"text", 0)
    assert isinstance(done, SendDone) and done.done.request_id == "" and done.done.node_id == "thief"


def test_result_of_another_node_does_not_touch_the_one_that_has_the_job() -> None:
    core = with_job()
    core.on_result(report(node_id="thief"), b"forged", 0)
    core.check()
    (done,) = core.on_result(report(), b"text", 10)
    core.check()
    assert isinstance(done, SendDone) and (done.done.request_id, done.text) == ("r1", b"text")
    fenced = core.on_ack(ResultAck("job-00-1", 1, "thief", "fenced"), 20)
    assert fenced == [TellNode("thief", "job-00-1", 1)] and [kept.text for kept in core.results.values()] == [b"text"]
    assert core.on_result(report(), b"text", 30) == [], "a repeat: it is here, and not yet acknowledged"
    assert core.on_ack(ack("delivered"), 40) == [TellNode("n", "job-00-1", 1)] and not core.results


def test_edge_that_does_not_know_the_session_is_asked_a_bounded_number_of_times() -> None:
    core = with_job()
    core.on_result(report(), b"text", 0)
    assert core.on_ack(ack("no_session"), 10) == [] == core.on_ack(ack("no_session"), 500)
    assert core.on_ack(ack("no_session"), 900) == [TellNode("n", "job-00-1", 1)]
    assert not core.results and core.outcomes["no_session"] == 1


def test_result_that_nobody_acknowledges_expires() -> None:
    core = with_job()
    core.on_result(report(), b"text", 0)
    now = 0
    while (due := core.next_due_ms()) is not None:
        now = due
        core.tick(now)
        core.check()
    assert 60_000 <= now <= 66_000 and core.outcomes["expired"] == 1


def test_assign_of_a_finished_job_hurries_its_result() -> None:
    core = with_job()
    core.on_result(report(), b"text", 0)
    core.tick(400)
    (again,) = core.on_assign(assign(), PAYLOAD, 7, 500)
    assert isinstance(again, SendToEdge) and core.next_due_ms() == 500


def test_results_are_bounded_in_number_and_bytes() -> None:
    core = JobTracker("b", LIMITS)
    for number in range(6):
        core.on_result(report(number), b"x" * 100, number)
        core.check()
    assert list(core.results) == [f"n/job-00-{number}#1" for number in range(2, 6)] and core.outcomes["shed"] == 2
    core.on_result(report(6), b"x" * 900, 7)
    core.check()
    assert sum(len(kept.text) for kept in core.results.values()) <= 1_000
    assert core.on_result(report(7), b"x" * 1_001, 8) == []
    core.check()


def test_results_of_jobs_that_were_not_given_are_bounded_per_node_and_go_first() -> None:
    core = JobTracker("b", LIMITS._replace(kept=LIMITS.kept._replace(unknown_per_node_max=2)))
    for number in (1, 2):
        core.on_result(report(number), b"invented", 0)
    with pytest.raises(PeerError) as error:
        core.on_result(report(3), b"invented", 0)
    assert error.value.code is ErrorCode.SLOW_DOWN and core.outcomes["refused"] == 1
    core.check()
    core.on_ack(ack("fenced", 1), 10)
    assert core.on_result(report(3), b"invented", 20) != [], "room again"
    for number in (6, 7, 8, 9):
        core.on_assign(assign(number, node_id="m"), PAYLOAD, 7, 30)
        core.on_result(report(number, node_id="m"), b"real", 30)
        core.check()
    assert [kept.text for kept in core.results.values()] == [b"real"] * 4
    assert core.on_result(report(4), b"invented", 40) == [], "nothing real is given up for it"
    core.check()


def test_jobs_per_node_are_bounded() -> None:
    core = JobTracker("b", LIMITS)
    for number in range(5):
        core.on_assign(assign(number), PAYLOAD, 7, 0)
        core.check()
    assert core.outcomes["job_forgotten"] == 2


def test_node_that_stays_away_gives_its_jobs_back_and_one_that_returns_keeps_them() -> None:
    core = with_job()
    core.on_assign(assign(2), PAYLOAD, 7, 0)
    core.on_result(report(2), b"text", 5)
    core.node_gone("n", 7, 100)
    core.node_back("n", 100)
    assert [effect for effect in core.tick(2_100) if isinstance(effect, SendToJob)] == [event("dispatch")]
    core.node_gone("n", 7, 3_000)
    failed = [effect for effect in core.tick(5_000) if isinstance(effect, SendToJob)]
    reasons = [effect.frame.reason for effect in failed if isinstance(effect.frame, AssignFailed)]
    assert reasons == ["node_gone"], "whether it is anywhere else is for the selector to say"
    assert [effect.job_id for effect in failed] == ["job-00-1"], "the finished one is not given back"
    (write,) = core.on_assign(assign(1, attempt=2, node_epoch=9), PAYLOAD, 9, 5_100)
    assert isinstance(write, WriteJob)


def test_result_after_a_reconnect_with_a_new_epoch_finds_its_job() -> None:
    core = with_job()
    core.node_gone("n", 7, 100)
    core.node_back("n", 100)
    (done,) = core.on_result(report(), b"text", 200)
    assert isinstance(done, SendDone) and done.done.request_id == "r1"


def test_jobs_that_a_node_came_back_without_are_given_to_another() -> None:
    core = with_job()
    for number in (2, 3):
        core.on_assign(assign(number), PAYLOAD, 7, 0)
    core.on_result(report(3), b"text", 5)
    core.node_gone("n", 7, 100)
    core.node_back("n", 100)
    core.on_assign(assign(4, node_epoch=9), PAYLOAD, 9, 110)
    lost = core.on_jobs("n", {"n/job-00-2#1"}, 120)
    core.check()
    (given_back,) = lost
    assert isinstance(given_back, SendToJob) and isinstance(given_back.frame, AssignFailed)
    assert (given_back.frame.job_id, given_back.frame.reason) == ("job-00-1", "job_lost")
    assert core.on_jobs("n", set(), 130) == [], "what it had then, and what came on this socket, is not in doubt"
    (done,) = core.on_result(report(2), b"text", 200)
    assert isinstance(done, SendDone) and done.done.request_id == "r2"
    assert core.outcomes["job_lost"] == 1 and core.on_jobs("unknown", set(), 130) == []


def test_cancel_stops_the_node_and_forgets_the_job() -> None:
    core = with_job()
    cancel = CancelJob("job-00-1", 1, "n", "t", "job_timeout")
    assert core.on_cancel(cancel, 5) == [StopJob(cancel)]
    assert core.on_result(report(), b"text", 10) == [TellNode("n", "job-00-1", 1)], "too late: it may forget it"
    assert core.outcomes["late"] == 1
    assert not core.results


def test_assign_that_its_cancel_overtook_is_not_written() -> None:
    core = JobTracker("b", LIMITS)
    core.on_cancel(CancelJob("job-00-1", 1, "n", "t", "job_timeout"), 0)
    assert core.on_assign(assign(), PAYLOAD, 7, 10) == []
    core.check()
    (write,) = core.on_assign(assign(attempt=2), PAYLOAD, 7, 20)
    assert isinstance(write, WriteJob), "another attempt is another matter"


def test_cancel_of_a_job_whose_result_is_here_leaves_it_to_be_acknowledged() -> None:
    core = with_job()
    core.on_result(report(), b"text", 0)
    core.on_cancel(CancelJob("job-00-1", 1, "n", "t", "session_closed"), 5)
    assert core.on_result(report(), b"text", 10) == [] and core.on_ack(ack("duplicate"), 20) != []


def test_given_back_result_is_tried_sooner() -> None:
    core = with_job()
    (done,) = core.on_result(report(), b"text", 0)
    assert isinstance(done, SendDone)
    core.given_back(done.done, 50, 10)
    assert core.next_due_ms() == 110


EVENTS = st.tuples(
    st.sampled_from(
        [
            "assign",
            "absent",
            "accept",
            "start",
            "result",
            "ack",
            "no_session",
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
            core.on_result(report(number), b"x" * 250, now)
        elif kind in ("ack", "no_session"):
            core.on_ack(ack("delivered" if kind == "ack" else kind, number), now)
        elif kind == "gone":
            core.node_gone("n", 7, now)
        elif kind == "back":
            core.node_back("n", now)
        elif kind == "jobs":
            core.on_jobs("n", {f"n/job-00-{number}#1"} if number else None, now)
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
        named = core.jobs_of("n", [(f"job-00-{number}", 1)])
        assert named is not None and len(named) == len(set(named))
