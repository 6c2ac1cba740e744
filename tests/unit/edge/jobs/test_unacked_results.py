"""Unacked results: retries with backoff, expiry, eviction."""

from __future__ import annotations

import pytest

from edge.jobs.core.job import AckToNode, SendDone, SendToEdge
from edge.jobs.core.tracker import JobTracker
from mesh.errors import ErrorCode, PeerError
from mesh.words import JobOutcome, ResultVerdict
from tests.support.builders.jobs import LIMITS, PAYLOAD, ack, assign, report, tracker_with_jobs


def test_result_is_retried_with_backoff_until_acknowledged() -> None:
    core = tracker_with_jobs(1)
    (done,) = core.on_result(report(), b"text", 0)
    assert isinstance(done, SendDone)
    assert (done.done.request_id, done.done.session_id, done.done.utterance_index) == ("r1", "s", 1)
    assert (done.done.session_edge, done.done.node_edge, done.done.resend) == ("a", "b", 0)
    done.result.broker = "broker-1"
    times = []
    for number in range(1, 5):
        due = core.timers.next_due_ms()
        assert due is not None
        times.append(due)
        (again,) = core.tick(due)
        assert isinstance(again, SendDone) and again.done.resend == number and again.avoid == "broker-1"
        core.check()
    assert times == [400, 1_200, 2_700, 4_200]
    assert core.on_result(report(), b"text", 7_000) == [], "the node repeats it: it is here already"
    (told,) = core.on_ack(ack("delivered"), 8_000)
    assert told == AckToNode("n", "job-00-1", 1)
    assert core.timers.next_due_ms() is None and not core.results
    assert core.on_ack(ack("delivered"), 8_100) == []
    assert core.on_result(report(), b"text", 8_200) == [AckToNode("n", "job-00-1", 1)]
    assert core.on_assign(assign(), PAYLOAD, 7, 8_300) == [], "done and delivered: nothing to do"


def test_result_is_dropped_after_a_bounded_number_of_no_session_acks() -> None:
    core = tracker_with_jobs(1)
    core.on_result(report(), b"text", 0)
    assert core.on_ack(ack("no_session"), 10) == [] == core.on_ack(ack("no_session"), 500)
    assert core.on_ack(ack("no_session"), 900) == [AckToNode("n", "job-00-1", 1)]
    assert not core.results and core.outcomes[ResultVerdict.NO_SESSION] == 1


def test_unacked_result_expires() -> None:
    core = tracker_with_jobs(1)
    core.on_result(report(), b"text", 0)
    now = 0
    while (due := core.timers.next_due_ms()) is not None:
        now = due
        core.tick(now)
        core.check()
    assert 60_000 <= now <= 66_000 and core.outcomes[JobOutcome.RESULT_EXPIRED] == 1


def test_assign_of_a_finished_job_retries_its_result_at_once() -> None:
    core = tracker_with_jobs(1)
    core.on_result(report(), b"text", 0)
    core.tick(400)
    (again,) = core.on_assign(assign(), PAYLOAD, 7, 500)
    assert isinstance(again, SendToEdge) and core.timers.next_due_ms() == 500


def test_unacked_results_are_evicted_beyond_number_and_bytes() -> None:
    core = JobTracker("b", LIMITS)
    for number in range(6):
        core.on_result(report(number), b"x" * 100, number)
        core.check()
    assert (
        list(core.results) == [f"n/job-00-{number}#1" for number in range(2, 6)]
        and core.outcomes[JobOutcome.RESULT_EVICTED] == 2
    )
    core.on_result(report(6), b"x" * 900, 7)
    core.check()
    assert sum(len(kept.text) for kept in core.results.values()) <= 1_000
    assert core.on_result(report(7), b"x" * 1_001, 8) == []
    core.check()


def test_results_of_unknown_jobs_are_bounded_per_node_and_evicted_first() -> None:
    core = JobTracker("b", LIMITS._replace(unacked=LIMITS.unacked._replace(unknown_per_node_max=2)))
    for number in (1, 2):
        core.on_result(report(number), b"invented", 0)
    with pytest.raises(PeerError) as error:
        core.on_result(report(3), b"invented", 0)
    assert error.value.code is ErrorCode.SLOW_DOWN and core.outcomes[JobOutcome.RESULT_REFUSED] == 1
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


def test_returned_result_is_retried_sooner() -> None:
    core = tracker_with_jobs(1)
    (done,) = core.on_result(report(), b"text", 0)
    assert isinstance(done, SendDone)
    core.on_done_returned(done.done, 50, 10)
    assert core.timers.next_due_ms() == 110
