"""Builders for tests of the job tracker: tight limits, and frames of jobs that differ by a number."""

from __future__ import annotations

from typing import Any

from edge.jobs.core import reconnect_grace, unacked_results
from edge.jobs.core.job import (
    Effect,
    Payload,
    ResultReport,
    SendDone,
    SendFinished,
    SendResult,
    SendToEdge,
    SendToJob,
    UnackedResult,
    WriteJob,
)
from edge.jobs.core.tracker import JobLimits, JobTracker
from mesh.frames import Assign, AssignFailed, FinishedJob, Placed, ResultAck

DELAY_MS = 25
NAMED_MS = 15_000
AGE_MS_MAX = 90_000
GRACE_MS = 2_000
PAYLOAD = Payload(b"work", b"audio")
#: The parts of a node's job_result.
TEXT = (b"text",)
#: In an Assign: when it was sent, and the stages EDGE_IN to COMMIT before it.
SENT_US = 1_000_000
STAGES_TO_COMMIT = [10, 20, 30, 40, 50]
LIMITS = JobLimits(
    unacked=unacked_results.UnackedLimits(4, 1_000, 5, 60_000, 400, 5_000, 1_500),
    grace=reconnect_grace.GraceLimits(
        GRACE_MS, nodes_max=4, jobs_max=4, bytes_max=40, jobs_per_node_max=3, bytes_per_node_max=30
    ),
    no_session_tries_max=3,
    jobs_per_node_max=3,
    job_age_ms_max=AGE_MS_MAX,
    job_named_ms=NAMED_MS,
    recent_max=16,
    recent_ms=30_000,
    job_event_delay_ms=DELAY_MS,
)


def assign(number: int = 1, **fields: Any) -> Assign:
    base: dict[str, Any] = {
        "job_id": f"job-00-{number}",
        "attempt": 1,
        "node_id": "n",
        "node_epoch": 7,
        "request_id": f"r{number}",
        "session_id": "s",
        "utterance_index": number,
        "session_edge": "a",
        "deadline_ms": 0,
        "trace_id": "t",
        "session_epoch": 5,
        "selector": "selector",
        "sent_us": SENT_US,
        "stages": STAGES_TO_COMMIT,
    }
    return Assign(**{**base, **fields})


def report(number: int = 1, **fields: Any) -> ResultReport:
    base: dict[str, Any] = {
        "job_id": f"job-00-{number}",
        "attempt": 1,
        "node_id": "n",
        "session_id": "forged",
        "utterance_index": 99,
        "success": True,
    }
    return ResultReport(**{**base, **fields})


def tracker_with_jobs(*numbers: int) -> JobTracker:
    """A tracker whose node `n` of epoch 7 runs these jobs since 0."""
    core = JobTracker("b", LIMITS)
    for number in numbers:
        (write,) = core.on_assign(assign(number), PAYLOAD, 7, 0)
        assert isinstance(write, WriteJob) and write.job.assign == assign(number)
        core.check()
    return core


def failed_assigns(effects: list[Effect]) -> list[tuple[str, str]]:
    """The last digit of the job, and the reason, of every AssignFailed."""
    frames = [effect.frame for effect in effects if isinstance(effect, SendToJob)]
    return [(frame.job_id[-1], frame.reason) for frame in frames if isinstance(frame, AssignFailed)]


def written(effects: list[Effect]) -> list[str]:
    """The last digit of every job that is written."""
    return [effect.job.assign.job_id[-1] for effect in effects if isinstance(effect, WriteJob)]


def placed_jobs(effects: list[Effect]) -> list[str]:
    """The last digit of every job whose session's edge is notified that it is placed."""
    frames = [effect.frame for effect in effects if isinstance(effect, SendToEdge)]
    return [frame.job_id[-1] for frame in frames if isinstance(frame, Placed)]


def sent_directly(effects: list[Effect]) -> UnackedResult:
    """The result that goes to the session's edge, and its Finished to the selector that placed the job."""
    direct, end = effects
    assert isinstance(direct, SendResult) and isinstance(end, SendFinished)
    assert direct.result is end.result and not end.to_cell
    return direct.result


def sent_by_selector(effects: list[Effect]) -> SendDone:
    """The result that goes by a selector, which also finishes its job."""
    (done,) = effects
    assert isinstance(done, SendDone)
    return done


def ack(verdict: str, number: int = 1, node_id: str = "n") -> ResultAck:
    return ResultAck(node_id, f"job-00-{number}", 1, verdict)


def finished(number: int = 1, node_id: str = "n") -> FinishedJob:
    return FinishedJob(node_id, f"job-00-{number}", 1)


def end_result(core: JobTracker, number: int, now_ms: int) -> list[Effect]:
    """Both acknowledgements of a result arrive."""
    effects = core.on_ack(ack("delivered", number), now_ms)
    core.on_finished_ack(finished(number))
    core.check()
    return effects
