"""The JobDone of a result, with and without its Assign."""

from __future__ import annotations

from edge.jobs.core.job import SendDone, WriteJob
from edge.jobs.core.tracker import JobTracker
from mesh.words import JobOutcome
from tests.support.builders.jobs import LIMITS, PAYLOAD, assign, report, tracker_with_jobs


def test_result_of_an_unknown_job_is_sent_with_the_fields_of_the_node() -> None:
    core = JobTracker("b", LIMITS)
    (done,) = core.on_result(report(), b"text", 0)
    assert isinstance(done, SendDone)
    assert (done.done.request_id, done.done.session_edge, done.done.session_id) == ("", "", "forged")
    assert done.done.resend == 1, "the selector looks the session's owner up"
    assert core.outcomes[JobOutcome.RESULT_UNKNOWN] == 1


def test_result_from_another_node_than_the_assigned_one_gets_no_request_id() -> None:
    core = tracker_with_jobs(1)
    (done,) = core.on_result(report(node_id="thief"), b"text", 0)
    assert isinstance(done, SendDone) and done.done.request_id == "" and done.done.node_id == "thief"


def test_speed_is_not_measured_over_a_reconnect_or_of_unknown_jobs() -> None:
    core = tracker_with_jobs(1, 2)
    (done,) = core.on_result(report(2), b"text", 300)
    assert isinstance(done, SendDone) and done.done.took_ms == 300
    core.node_detached("n", 7, 400)
    core.node_reattached("n", 500)
    (done,) = core.on_result(report(1), b"text", 600)
    assert isinstance(done, SendDone) and done.done.took_ms == -1
    (done,) = core.on_result(report(9), b"text", 600)
    assert isinstance(done, SendDone) and (done.done.took_ms, done.done.pair) == (-1, "")


def test_fields_for_the_speed_model_and_hedging_are_copied() -> None:
    core = JobTracker("b", LIMITS)
    (write,) = core.on_assign(assign(1, pair="zh>en", audio_ms=1_800, late_after_ms=700), PAYLOAD, 7, 50)
    assert isinstance(write, WriteJob) and write.placed.late_after_ms == 700
    (done,) = core.on_result(report(1), b"text", 450)
    assert isinstance(done, SendDone)
    assert (done.done.pair, done.done.audio_ms, done.done.took_ms) == ("zh>en", 1_800, 400)
