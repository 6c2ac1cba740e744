"""Unacked results: the direct send, its fallback by a selector, the end of the job, backoff, expiry, eviction."""

from __future__ import annotations

from itertools import permutations

import pytest

from edge.jobs.core.job import AckToNode, Effect, SendDone, SendFinished, SendToEdge, UnackedResult
from edge.jobs.core.tracker import JobTracker
from mesh.errors import ErrorCode, PeerError
from mesh.words import JobOutcome, ResultVerdict
from tests.support.builders.jobs import (
    LIMITS,
    PAYLOAD,
    TEXT,
    ack,
    assign,
    end_result,
    finished,
    report,
    sent_by_selector,
    sent_directly,
    tracker_with_jobs,
)

RETRY_MS = LIMITS.unacked.retry_ms
ACK_TO_NODE = AckToNode("n", "job-00-1", 1)


def with_result() -> tuple[JobTracker, UnackedResult]:
    """Node `n` finished job 1 at 0; its result was sent directly, and Finished to the selector."""
    core = tracker_with_jobs(1)
    result = sent_directly(core.on_result(report(), TEXT, 0))
    core.check()
    return core, result


def next_retry(core: JobTracker) -> tuple[int, list[Effect]]:
    """When the next retry is due, and the retry."""
    due_ms = core.timers.next_due_ms()
    assert due_ms is not None
    effects = core.tick(due_ms)
    core.check()
    return due_ms, effects


def bytes_of(core: JobTracker) -> int:
    """The bytes of all payloads that the tracker holds, as it counts them."""
    core.check()
    return core._unacked.bytes


# --- retries ----------------------------------------------------------------------------------------------


def test_result_is_retried_by_a_selector_with_backoff_until_acknowledged() -> None:
    core, result = with_result()
    assert (result.push.request_id, result.push.session_id, result.push.utterance_index) == ("r1", "s", 1)
    assert (result.session_edge, result.push.node_edge, result.sends) == ("a", "b", 1)
    times, avoided = [], ""
    for number in range(1, 5):
        due_ms, retry = next_retry(core)
        times.append(due_ms)
        again = sent_by_selector(retry)
        assert (again.done.resend, again.avoid, again.result.payload) == (number, avoided, TEXT)
        assert (again.done.request_id, again.done.session_edge) == ("r1", "a")
        again.result.broker = avoided = f"broker-{number}"
    assert times == [400, 1_200, 2_700, 4_200]
    assert core.on_result(report(), TEXT, 7_000) == [], "the node repeats it: it is here already"
    assert end_result(core, 1, 8_000) == [ACK_TO_NODE]
    assert core.timers.next_due_ms() is None and not core.results
    assert core.on_ack(ack("delivered"), 8_100) == []
    assert core.on_result(report(), TEXT, 8_200) == [ACK_TO_NODE]
    assert core.on_assign(assign(), PAYLOAD, 7, 8_300) == [], "done and delivered: nothing to do"


def test_result_of_an_unknown_job_goes_by_a_selector_at_once_and_is_retried() -> None:
    core = JobTracker("b", LIMITS)
    assert sent_by_selector(core.on_result(report(), TEXT, 0)).done.resend == 1
    due_ms, retry = next_retry(core)
    assert due_ms == RETRY_MS and sent_by_selector(retry).done.resend >= 1
    assert end_result(core, 1, 1_000) == [ACK_TO_NODE] and not core.results


def test_returned_result_goes_by_a_selector_at_once_and_once() -> None:
    core, result = with_result()
    done = sent_by_selector(core.on_push_returned(result.push, 10))
    assert done.done.resend == 1 and done.result is result
    core.check()
    assert core.on_push_returned(result.push, 20) == [], "a second copy of it bounced"
    due_ms = core.timers.next_due_ms()
    assert due_ms is not None and due_ms >= 10 + RETRY_MS, "the retry counts from the JobDone"
    assert sent_by_selector(core.tick(due_ms)).done.resend == 2
    end_result(core, 1, due_ms)
    assert core.on_push_returned(result.push, due_ms) == []


def test_returned_result_that_is_acknowledged_is_not_sent_again() -> None:
    core, result = with_result()
    core.on_ack(ack("delivered"), 5)
    assert core.on_push_returned(result.push, 10) == [], "a copy of it arrived"


def test_no_session_of_the_direct_send_goes_by_a_selector_at_once() -> None:
    core, _ = with_result()
    assert sent_by_selector(core.on_ack(ack("no_session"), 10)).done.resend == 1
    core.check()
    assert core.outcomes == {}, "the result is not dropped"


def test_result_is_dropped_after_a_bounded_number_of_no_session_acks() -> None:
    core, result = with_result()
    sent_by_selector(core.on_ack(ack("no_session"), 10))
    due_ms = core.timers.next_due_ms()
    for number in range(1, LIMITS.no_session_tries_max):
        assert core.on_ack(ack("no_session"), 10 + number) == []
        assert core.timers.next_due_ms() == due_ms, "the retry timer goes on"
        assert result.payload == TEXT
    assert core.on_ack(ack("no_session"), 900) == [ACK_TO_NODE]
    assert core.outcomes[ResultVerdict.NO_SESSION] == 1 and bytes_of(core) == 0
    core.on_finished_ack(finished())
    core.check()
    assert not core.results and core.outcomes[ResultVerdict.NO_SESSION] == 1


def test_no_session_of_an_unknown_job_counts_from_the_first() -> None:
    core = JobTracker("b", LIMITS)
    core.on_result(report(), TEXT, 0)
    for number in range(1, LIMITS.no_session_tries_max):
        assert core.on_ack(ack("no_session"), number) == []
    assert core.on_ack(ack("no_session"), 900) == [ACK_TO_NODE]


def test_returned_job_done_is_retried_sooner() -> None:
    core, result = with_result()
    done = sent_by_selector(core.on_push_returned(result.push, 0))
    core.on_done_returned(done.done, 50, 10)
    due_ms = core.timers.next_due_ms()
    assert due_ms is not None and 60 <= due_ms < RETRY_MS
    unknown = JobTracker("b", LIMITS)
    done = sent_by_selector(unknown.on_result(report(), TEXT, 0))
    unknown.on_done_returned(done.done, 50, 10)
    assert unknown.timers.next_due_ms() == 110


def test_assign_of_a_finished_job_retries_its_result_at_once() -> None:
    core, _ = with_result()
    core.tick(400)
    (again,) = core.on_assign(assign(), PAYLOAD, 7, 500)
    assert isinstance(again, SendToEdge) and core.timers.next_due_ms() == 500
    assert sent_by_selector(core.tick(500)).done.resend == 2


def test_assign_of_an_acknowledged_result_retries_its_finished_at_once() -> None:
    core, result = with_result()
    core.on_ack(ack("delivered"), 5)
    assert core.on_assign(assign(), PAYLOAD, 7, 10) == [], "its session's edge has more than Placed"
    assert core.tick(10) == [SendFinished(result, to_cell=True)]


# --- the end of the job -------------------------------------------------------------------------------------


def test_acknowledged_result_keeps_only_its_finished_until_that_is_acknowledged() -> None:
    core, result = with_result()
    assert bytes_of(core) == len(TEXT[0])
    assert core.on_ack(ack("delivered"), 10) == [ACK_TO_NODE]
    assert (bytes_of(core), result.payload, result.size) == (0, (), 0)
    times = []
    for _ in range(5):
        due_ms, retry = next_retry(core)
        assert retry == [SendFinished(result, to_cell=True)]
        times.append(due_ms)
    assert times == [400, 1_200, 2_700, 4_200, 5_700], "the same backoff"
    assert core.running_at("n", []) == ["job-00-1#1"], "its slot is not released"
    core.on_finished_ack(finished())
    core.check()
    assert not core.results and core.timers.next_due_ms() is None and core.running_at("n", []) == []


def test_returned_finished_goes_to_the_cell_at_once_and_once() -> None:
    core, result = with_result()
    assert core.on_finished_returned(result.finished) == [SendFinished(result, to_cell=True)]
    assert core.on_finished_returned(result.finished) == [], "the retry timer covers a second failure"
    core.check()
    assert core.timers.next_due_ms() == RETRY_MS
    core.on_finished_ack(finished())
    assert core.on_finished_returned(result.finished) == []


def test_returned_finished_of_a_finished_job_is_ignored() -> None:
    core, result = with_result()
    core.on_finished_ack(finished())
    assert core.on_finished_returned(result.finished) == []
    end_result(core, 1, 10)
    assert core.on_finished_returned(result.finished) == []


def test_finished_job_still_retries_its_result() -> None:
    core, result = with_result()
    core.on_finished_ack(finished())
    core.check()
    assert result.payload == TEXT and core.running_at("n", []) == [], "its slot is free"
    assert sent_by_selector(next_retry(core)[1]).result is result
    assert core.on_ack(ack("duplicate"), 500) == [ACK_TO_NODE] and not core.results
    assert core.timers.next_due_ms() is None


@pytest.mark.parametrize("order", sorted(set(permutations(["ack", "ack", "finished", "finished"]))))
def test_both_acknowledgements_end_a_result_once_in_any_order(order: tuple[str, ...]) -> None:
    core, _ = with_result()
    to_node: list[Effect] = []
    for number, kind in enumerate(order):
        before = set(order[:number])
        assert bool(core.results) == (before != {"ack", "finished"})
        if kind == "ack":
            to_node += core.on_ack(ack("delivered"), number)
        else:
            core.on_finished_ack(finished())
        core.check()
    assert to_node == [ACK_TO_NODE] and core.outcomes == {ResultVerdict.DELIVERED: 1}
    assert not core.results and core.timers.next_due_ms() is None


# --- bounds -------------------------------------------------------------------------------------------------


def test_unacked_result_expires() -> None:
    core, _ = with_result()
    now = 0
    while (due := core.timers.next_due_ms()) is not None:
        now = due
        core.tick(now)
        core.check()
    assert 60_000 <= now <= 66_000 and core.outcomes[JobOutcome.RESULT_EXPIRED] == 1


def test_retries_of_finished_expire_and_no_result_counts_as_dropped() -> None:
    core, _ = with_result()
    core.on_ack(ack("delivered"), 5)
    now = 0
    while (due := core.timers.next_due_ms()) is not None:
        now = due
        core.tick(now)
        core.check()
    assert 60_000 <= now <= 66_000 and not core.results
    assert core.outcomes == {ResultVerdict.DELIVERED: 1}, "the client has it"


def test_unacked_results_are_evicted_beyond_number_and_bytes() -> None:
    core = JobTracker("b", LIMITS)
    for number in range(6):
        core.on_result(report(number), (b"x" * 100,), number)
        core.check()
    assert (
        list(core.results) == [f"n/job-00-{number}#1" for number in range(2, 6)]
        and core.outcomes[JobOutcome.RESULT_EVICTED] == 2
    )
    core.on_result(report(6), (b"x" * 400, b"x" * 500), 7)
    core.check()
    assert sum(len(part) for kept in core.results.values() for part in kept.payload) <= 1_000
    assert core.on_result(report(7), (b"x" * 1_001,), 8) == []
    core.check()


def test_results_of_unknown_jobs_are_bounded_per_node_and_evicted_first() -> None:
    core = JobTracker("b", LIMITS._replace(unacked=LIMITS.unacked._replace(unknown_per_node_max=2)))
    invented, real = (b"invented",), (b"real",)
    for number in (1, 2):
        core.on_result(report(number), invented, 0)
    with pytest.raises(PeerError) as error:
        core.on_result(report(3), invented, 0)
    assert error.value.code is ErrorCode.SLOW_DOWN and core.outcomes[JobOutcome.RESULT_REFUSED] == 1
    core.check()
    core.on_ack(ack("fenced", 1), 10)
    core.on_finished_ack(finished(1))
    assert core.on_result(report(3), invented, 20) != [], "room again"
    for number in (6, 7, 8, 9):
        core.on_assign(assign(number, node_id="m"), PAYLOAD, 7, 30)
        core.on_result(report(number, node_id="m"), real, 30)
        core.check()
    assert [kept.payload for kept in core.results.values()] == [real] * 4
    assert core.on_result(report(4), invented, 40) == [], "nothing real is given up for it"
    core.check()


def test_acknowledged_results_are_evicted_before_those_that_a_client_waits_for() -> None:
    core = JobTracker("b", LIMITS)
    for number in range(1, 5):
        core.on_assign(assign(number, node_id=f"n{number}"), PAYLOAD, 7, 0)
        core.on_result(report(number, node_id=f"n{number}"), TEXT, number)
    core.on_ack(ack("delivered", 3, "n3"), 10)
    core.on_assign(assign(5, node_id="n5"), PAYLOAD, 7, 11)
    sent_directly(core.on_result(report(5, node_id="n5"), TEXT, 12))
    core.check()
    assert [result.push.node_id for result in core.results.values()] == ["n1", "n2", "n4", "n5"]
    assert core.outcomes[JobOutcome.RESULT_EVICTED] == 0, "no client loses a result"
    assert all(isinstance(effect, SendDone) for effect in core.tick(5_000))
