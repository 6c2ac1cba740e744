"""Deliveries by single steps: assignments, progress, results that are kept, nodes that come and go."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.core.assignment import Report, SendDone, SendToEdge, SendToJob, StopJob, TellNode, WriteJob
from edge.core.deliveries import Deliveries, Limits
from mesh.frames import Assign, AssignFailed, CancelJob, JobEvent, Notice, Placed, ResultAck

LIMITS = Limits(400, 5_000, 4, 1_000, 60_000, 3, 3, 2_000, 16, 30_000)


def assign(number: int = 1, **fields: Any) -> Assign:
    base: dict[str, Any] = {
        "job_id": f"job-00-{number}", "attempt": 1, "node_id": "n", "node_epoch": 7, "request_id": f"r{number}",
        "session_id": "s", "utterance_index": number, "session_edge": "a", "deadline_ms": 0, "trace_id": "t",
    }  # fmt: skip
    return Assign(**{**base, **fields})


def report(number: int = 1, **fields: Any) -> Report:
    base: dict[str, Any] = {
        "job_id": f"job-00-{number}", "attempt": 1, "node_id": "n", "session_id": "forged", "utterance_index": 99,
        "success": True,
    }  # fmt: skip
    return Report(**{**base, **fields})


def ack(verdict: str, number: int = 1) -> ResultAck:
    return ResultAck(f"job-00-{number}", 1, "n", verdict)


def with_job() -> Deliveries:
    core = Deliveries("b", LIMITS)
    (write,) = core.on_assign(assign(), 7, 0)
    assert isinstance(write, WriteJob)
    assert isinstance(write.placed, Placed) and write.event == JobEvent("job-00-1", 1, "n", "dispatch")
    core.check()
    return core


def test_repeated_assign_is_only_confirmed_again() -> None:
    core = with_job()
    (again,) = core.on_assign(assign(), 7, 10)
    assert isinstance(again, SendToEdge) and isinstance(again.frame, Placed) and again.to == "a"
    (again,) = core.on_assign(assign(), None, 20)
    assert isinstance(again, SendToEdge), "within the grace a node that is away keeps its job"


def test_absent_node_wrong_epoch_and_stuck_socket_give_the_job_back() -> None:
    core = Deliveries("b", LIMITS)
    for epoch in (None, 6, 8):
        (failed,) = core.on_assign(assign(), epoch, 0)
        assert isinstance(failed, SendToJob) and isinstance(failed.frame, AssignFailed)
        assert failed.frame.reason == "node_absent"
    core.on_assign(assign(), 7, 0)
    (failed,) = core.write_failed(assign())
    assert isinstance(failed, SendToJob) and isinstance(failed.frame, AssignFailed)
    assert failed.frame.reason == "node_stuck"
    (write,) = core.on_assign(assign(), 7, 0)
    assert isinstance(write, WriteJob), "it was not remembered"


def test_progress_is_told_to_the_session_and_moves_the_job_once() -> None:
    core = with_job()
    seen = []
    for event, attempt in (("accepted", 1), ("accepted", 1), ("asr_partial", None), ("started", 1), ("accepted", 1)):
        effects = core.on_progress("n", "job-00-1", attempt, event, b"{}")
        assert isinstance(effects[0], SendToEdge) and isinstance(effects[0].frame, Notice)
        assert effects[0].payload == ((b"{}",) if event == "asr_partial" else ())
        seen += [effect.frame.event for effect in effects if isinstance(effect, SendToJob)]  # type: ignore[union-attr]
    assert seen == ["accept", "start"]
    assert core.on_progress("n", "job-00-1", 2, "accepted", b"") == []
    assert core.on_progress("other", "job-00-1", 1, "accepted", b"") == []
    assert core.outcomes["progress_unknown"] == 2


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
    assert times == [400, 1_200, 2_800, 6_000]
    assert core.on_result(report(), b"text", 7_000) == [], "the node repeats it: it is here already"
    (told,) = core.on_ack(ack("delivered"), 8_000)
    assert told == TellNode("n", "job-00-1", 1)
    assert core.next_due_ms() is None and not core.results
    assert core.on_ack(ack("delivered"), 8_100) == []
    assert core.on_result(report(), b"text", 8_200) == [TellNode("n", "job-00-1", 1)]
    assert core.on_assign(assign(), 7, 8_300) == [], "done and delivered: nothing to do"


def test_result_of_an_unknown_job_is_sent_with_what_the_node_says() -> None:
    core = Deliveries("b", LIMITS)
    (done,) = core.on_result(report(), b"text", 0)
    assert isinstance(done, SendDone)
    assert (done.done.request_id, done.done.session_edge, done.done.session_id) == ("", "", "forged")
    assert done.done.resend == 1, "the selector looks the session's owner up"
    assert core.outcomes["job_unknown"] == 1


def test_result_from_another_node_than_the_assigned_one_gets_no_request_id() -> None:
    core = with_job()
    (done,) = core.on_result(report(node_id="thief"), b"text", 0)
    assert isinstance(done, SendDone) and done.done.request_id == "" and done.done.node_id == "thief"


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
    (again,) = core.on_assign(assign(), 7, 500)
    assert isinstance(again, SendToEdge) and core.next_due_ms() == 500


def test_results_are_bounded_in_number_and_bytes() -> None:
    core = Deliveries("b", LIMITS)
    for number in range(6):
        core.on_result(report(number), b"x" * 100, number)
        core.check()
    assert list(core.results) == [f"job-00-{number}#1" for number in range(2, 6)] and core.outcomes["shed"] == 2
    core.on_result(report(6), b"x" * 900, 7)
    core.check()
    assert core.result_bytes <= 1_000
    assert core.on_result(report(7), b"x" * 1_001, 8) == []
    core.check()


def test_jobs_per_node_are_bounded() -> None:
    core = Deliveries("b", LIMITS)
    for number in range(5):
        core.on_assign(assign(number), 7, 0)
        core.check()
    assert core.outcomes["job_forgotten"] == 2


def test_node_that_stays_away_gives_its_jobs_back_and_one_that_returns_keeps_them() -> None:
    core = with_job()
    core.on_assign(assign(2), 7, 0)
    core.on_result(report(2), b"text", 5)
    core.node_gone("n", 100)
    core.node_back("n")
    assert all(not isinstance(effect, SendToJob) for effect in core.tick(2_100))
    core.node_gone("n", 3_000)
    failed = [effect for effect in core.tick(5_000) if isinstance(effect, SendToJob)]
    assert [effect.job_id for effect in failed] == ["job-00-1"], "the finished one is not given back"
    (write,) = core.on_assign(assign(1, attempt=2, node_epoch=9), 9, 5_100)
    assert isinstance(write, WriteJob)


def test_result_after_a_reconnect_with_a_new_epoch_finds_its_job() -> None:
    core = with_job()
    core.node_gone("n", 100)
    core.node_back("n")
    (done,) = core.on_result(report(), b"text", 200)
    assert isinstance(done, SendDone) and done.done.request_id == "r1"


def test_cancel_stops_the_node_and_forgets_the_job() -> None:
    core = with_job()
    cancel = CancelJob("job-00-1", 1, "n", "t", "job_timeout")
    assert core.on_cancel(cancel) == [StopJob(cancel)]
    (done,) = core.on_result(report(), b"text", 10)
    assert isinstance(done, SendDone) and done.done.request_id == ""


def test_given_back_result_is_tried_sooner() -> None:
    core = with_job()
    (done,) = core.on_result(report(), b"text", 0)
    assert isinstance(done, SendDone)
    core.given_back(done.done, 50, 10)
    assert core.next_due_ms() == 110


EVENTS = st.tuples(
    st.sampled_from(["assign", "absent", "result", "ack", "no_session", "gone", "back", "cancel", "stuck", "wait"]),
    st.integers(0, 5),
)


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=80))
def test_any_sequence_keeps_the_bounds(events: list[tuple[str, int]]) -> None:
    core, now = Deliveries("b", LIMITS), 0
    for kind, number in events:
        if kind in ("assign", "absent"):
            core.on_assign(assign(number), 7 if kind == "assign" else None, now)
        elif kind == "result":
            core.on_result(report(number), b"x" * 250, now)
        elif kind in ("ack", "no_session"):
            core.on_ack(ack("delivered" if kind == "ack" else kind, number), now)
        elif kind == "gone":
            core.node_gone("n", now)
        elif kind == "back":
            core.node_back("n")
        elif kind == "cancel":
            core.on_cancel(CancelJob(f"job-00-{number}", 1, "n", "", ""))
        elif kind == "stuck":
            core.write_failed(assign(number))
        else:
            now += number * 1_000
            core.tick(now)
        core.check()
