"""The frames of a result, with and without its Assign: Push, Finished and JobDone."""

from __future__ import annotations

from edge.jobs.core.job import SendToEdge, WriteJob, job_done
from edge.jobs.core.tracker import JobTracker
from mesh.frames import Finished, JobDone, Placed, Push
from mesh.words import JobOutcome, LatencyStage
from tests.support.builders.jobs import (
    DELAY_MS,
    LIMITS,
    PAYLOAD,
    SENT_US,
    STAGES_TO_COMMIT,
    TEXT,
    assign,
    report,
    sent_by_selector,
    sent_directly,
    tracker_with_jobs,
)


def test_result_of_an_unknown_job_is_sent_with_the_fields_of_the_node() -> None:
    core = JobTracker("b", LIMITS)
    done = sent_by_selector(core.on_result(report(), TEXT, 0)).done
    assert (done.request_id, done.session_edge, done.session_id) == ("", "", "forged")
    assert done.resend == 1, "the selector looks the session's owner up"
    assert core.outcomes[JobOutcome.RESULT_UNKNOWN] == 1


def test_result_from_another_node_than_the_assigned_one_gets_no_request_id() -> None:
    core = tracker_with_jobs(1)
    done = sent_by_selector(core.on_result(report(node_id="thief"), TEXT, 0)).done
    assert done.request_id == "" and done.node_id == "thief"


def test_speed_is_not_measured_over_a_reconnect_or_of_unknown_jobs() -> None:
    core = tracker_with_jobs(1, 2, 3)
    assert sent_directly(core.on_result(report(2), TEXT, 300)).finished.took_ms == 300
    silence = sent_directly(core.on_result(report(3, measures_node=False), TEXT, 300))
    assert silence.finished.took_ms == -1
    core.node_detached("n", 7, 400)
    core.node_reattached("n", 500)
    assert sent_directly(core.on_result(report(1), TEXT, 600)).finished.took_ms == -1
    done = sent_by_selector(core.on_result(report(9), TEXT, 600)).done
    assert (done.took_ms, done.pair) == (-1, "")


def test_fields_for_the_speed_model_and_hedging_are_copied() -> None:
    core = JobTracker("b", LIMITS)
    core.on_assign(assign(1, pair="zh>en", audio_ms=1_800, late_after_ms=700), PAYLOAD, 7, 50)
    frames = [effect.frame for effect in core.tick(50 + DELAY_MS) if isinstance(effect, SendToEdge)]
    assert [frame.late_after_ms for frame in frames if isinstance(frame, Placed)] == [700]
    finished = sent_directly(core.on_result(report(1), TEXT, 450)).finished
    assert (finished.pair, finished.audio_ms, finished.took_ms) == ("zh>en", 1_800, 400)


def test_frames_of_a_result_have_the_fields_of_its_assign() -> None:
    core = JobTracker("b", LIMITS)
    core.on_assign(assign(1, pair="zh>en", audio_ms=1_800), PAYLOAD, 7, 50)
    result = sent_directly(core.on_result(report(1, success=False, received_us=SENT_US), (b"a", b"bc"), 450))
    push = result.push
    assert push == Push(
        "job-00-1", 1, "n", "b", "r1", "s", 1, session_epoch=5, sent_us=SENT_US, stages=push.stages
    )  # fmt: skip
    assert result.finished == Finished("job-00-1", 1, "n", "b", False, 400, "zh>en", 1_800)
    assert (result.session_edge, result.selector, result.payload, result.size) == ("a", "selector", (b"a", b"bc"), 3)
    assert job_done(result) == JobDone(
        "job-00-1", 1, "n", "b", "r1", "s", 1, "a", False, 1, took_ms=400, pair="zh>en", audio_ms=1_800
    )


def test_push_carries_the_stages_from_the_edge_to_the_node() -> None:
    core = JobTracker("b", LIMITS)
    (write,) = core.on_assign(assign(), PAYLOAD, 7, 0)
    assert isinstance(write, WriteJob)
    write.job.written_us = SENT_US + 600
    push = sent_directly(core.on_result(report(received_us=SENT_US + 9_600), TEXT, 9)).push
    assert (push.stages, push.sent_us) == ([*STAGES_TO_COMMIT, 600, 9_000], SENT_US + 9_600)
    names = list(LatencyStage)[: len(push.stages)]
    assert (names[0], names[-1]) == (LatencyStage.EDGE_IN, LatencyStage.NODE)


def test_stage_is_never_negative_if_clocks_differ() -> None:
    core = JobTracker("b", LIMITS)
    (write,) = core.on_assign(assign(), PAYLOAD, 7, 0)
    assert isinstance(write, WriteJob)
    write.job.written_us = SENT_US - 600
    assert sent_directly(core.on_result(report(received_us=SENT_US - 700), TEXT, 9)).push.stages[-2:] == [0, 0]


def test_push_of_an_assign_without_stages_has_none() -> None:
    core = JobTracker("b", LIMITS)
    core.on_assign(assign(stages=[]), PAYLOAD, 7, 0)
    assert sent_directly(core.on_result(report(), TEXT, 9)).push.stages == []
