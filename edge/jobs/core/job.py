"""Job: a job at a node, its result, and the effects of the job tracker. Data and frame builders; no rules."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import NamedTuple

import msgspec

from edge.core.record import Record
from mesh.frames import Assign, AssignFailed, CancelJob, ControlNode, Finished, JobDone, JobEvent, Notice, Placed, Push
from mesh.states.job import JobAction
from mesh.words import NoticeEvent, StopReason


class TimerKind(IntEnum):
    """The timers of the job tracker, in the order in which those that are due at once are handled."""

    #: Retry an unacked result, or let it expire; by job key.
    RETRY = auto()
    #: The reconnect grace of a node ends.
    GRACE = auto()
    #: A draining node has no job left.
    DRAINED = auto()
    #: The deadline of a node's drain.
    DRAIN_END = auto()
    #: Report the coalesced events of a job, and to the session's edge that it is placed; by job key.
    EVENTS = auto()


class Payload(NamedTuple):
    """The payload of an Assign."""

    work: bytes
    audio: bytes


class Job(msgspec.Struct, eq=False):
    """A job that a node of this edge runs."""

    assign: Assign
    #: `key_of` the attempt that is assigned.
    key: str
    #: When it was written to the node's socket.
    written_ms: int
    #: The same on the wall clock, in microseconds; set by the runner.
    written_us: int
    #: The furthest event so far, and the events that are not reported yet (edge/jobs/core/running_jobs.py).
    reached: JobAction
    unreported: list[str]
    #: Written to a socket that the node has replaced; the node has not confirmed that it has the job.
    unconfirmed: bool = False
    #: The node reconnected meanwhile: the duration is no measure of its speed.
    interrupted: bool = False
    #: The session's edge was notified that the node has the job.
    is_placed: bool = False


class UnackedResult(msgspec.Struct, eq=False):
    """A job_result until the session's edge has acknowledged it, and a selector that the job is finished."""

    #: The frame for the edge of the session.
    push: Push
    finished: Finished
    #: The edge that owns the session, and the selector that placed the job; "" = not known.
    session_edge: str
    selector: str
    #: The parts of the node's message; empty once acknowledged.
    payload: tuple[bytes, ...]
    size: int
    received_ms: int
    #: This edge assigned the job. Otherwise its fields are the node's claim.
    known: bool
    is_acked: bool = False
    is_finished: bool = False
    #: Sends of the result, and of its Finished alone.
    sends: int = 0
    finish_sends: int = 0
    no_session_acks: int = 0
    #: The broker that accepted the last JobDone ("" = none was live). The retry avoids it.
    broker: str = ""


class ResultReport(Record, frozen=True):
    """The fields of a job_result that the tracker needs."""

    job_id: str
    attempt: int
    node_id: str
    session_id: str
    utterance_index: int
    success: bool
    #: The duration, or the failure, is a measure of the node's speed.
    measures_node: bool = True
    #: When it arrived, on the wall clock.
    received_us: int = 0


# --- effects --------------------------------------------------------------------------------------


class WriteJob(Record, frozen=True):
    """Write job_assign to the node's socket and set the job's `written_us`; if that fails, call `write_failed`."""

    job: Job
    payload: Payload


class SendToEdge(Record, frozen=True):
    """A frame for the edge that owns the session."""

    to: str
    frame: Placed | Notice
    payload: tuple[bytes, ...] = ()


class SendToJob(Record, frozen=True):
    """A frame for the selector of the job's cell."""

    job_id: str
    frame: JobEvent | AssignFailed


class SendResult(Record, frozen=True):
    """Send the result's Push with its payload directly to the edge of the session."""

    result: UnackedResult


class SendFinished(Record, frozen=True):
    """Send the result's Finished: to the selector that placed the job, or (`to_cell`) to any of the job's cell."""

    result: UnackedResult
    to_cell: bool = False


class SendDone(Record, frozen=True):
    """Send `done` with the result's payload to a selector; then set the result's `broker`."""

    result: UnackedResult
    done: JobDone
    avoid: str


class AckToNode(Record, frozen=True):
    """Acknowledge the result to the node, which may drop it (only nodes that asked for acknowledgements)."""

    node_id: str
    job_id: str
    attempt: int


class StopJob(Record, frozen=True):
    """Write job_cancel to the node's socket, if it has one."""

    cancel: CancelJob


class SendControl(Record, frozen=True):
    """Write node_control to the node's socket, if it has one. A drain ends at `due_ms`."""

    control: ControlNode
    due_ms: int


class NodeDrained(Record, frozen=True):
    """For the log: the node has no job left; `handed_over` jobs went to other nodes."""

    node_id: str
    handed_over: int


Effect = (
    WriteJob
    | SendToEdge
    | SendToJob
    | SendResult
    | SendFinished
    | SendDone
    | AckToNode
    | StopJob
    | SendControl
    | NodeDrained
)


def key_of(node_id: str, job_id: str, attempt: int) -> str:
    """The key of one attempt at a job by one node. A message of another node about the job has another key."""
    return f"{node_id}/{job_id}#{attempt}"


# --- frames about a job -----------------------------------------------------------------------------


def placed(assign: Assign) -> Placed:
    """The job is at its node."""
    return Placed(
        request_id=assign.request_id,
        attempt=assign.attempt,
        job_id=assign.job_id,
        node_id=assign.node_id,
        session_id=assign.session_id,
        utterance_index=assign.utterance_index,
        late_after_ms=assign.late_after_ms,
    )


def notice(assign: Assign, event: NoticeEvent, *payload: bytes) -> SendToEdge:
    """Progress for the client."""
    frame = Notice(
        session_id=assign.session_id,
        utterance_index=assign.utterance_index,
        job_id=assign.job_id,
        attempt=assign.attempt,
        event=event,
        request_id=assign.request_id,
    )
    return SendToEdge(assign.session_edge, frame, payload)


def assign_failed(assign: Assign, reason: str) -> SendToJob:
    """The node does not run the job, or no longer."""
    frame = AssignFailed(
        job_id=assign.job_id,
        attempt=assign.attempt,
        node_id=assign.node_id,
        node_epoch=assign.node_epoch,
        request_id=assign.request_id,
        session_edge=assign.session_edge,
        reason=reason,
    )
    return SendToJob(assign.job_id, frame)


def stop(assign: Assign, reason: StopReason) -> StopJob:
    """Cancel the job at its node, on the edge's own account."""
    return StopJob(CancelJob(assign.job_id, assign.attempt, assign.node_id, assign.trace_id, reason))


def unacked_result(
    edge: str, report: ResultReport, payload: tuple[bytes, ...], job: Job | None, now_ms: int
) -> UnackedResult:
    """The result of a job. If this edge did not assign it (None), all fields are the node's claim."""
    size = sum(map(len, payload))
    if job is None:
        push = Push(report.job_id, report.attempt, report.node_id, edge, "", report.session_id, report.utterance_index)
        finished = Finished(report.job_id, report.attempt, report.node_id, edge, report.success)
        return UnackedResult(push, finished, "", "", payload, size, now_ms, known=False)
    # The fields of the Assign, not those that the node repeats.
    assign = job.assign
    received_us, written_us = report.received_us, job.written_us
    stages = assign.stages
    if stages:  # without the stages before them, the next two would take their places
        stages = [*stages, max(0, written_us - assign.sent_us), max(0, received_us - written_us)]
    push = Push(
        assign.job_id,
        assign.attempt,
        assign.node_id,
        edge,
        assign.request_id,
        assign.session_id,
        assign.utterance_index,
        assign.session_epoch,
        received_us,
        stages,
    )
    took_ms = -1 if job.interrupted or not report.measures_node else now_ms - job.written_ms
    finished = Finished(
        assign.job_id, assign.attempt, assign.node_id, edge, report.success, took_ms, assign.pair, assign.audio_ms
    )
    return UnackedResult(push, finished, assign.session_edge, assign.selector, payload, size, now_ms, known=True)


def job_done(result: UnackedResult) -> JobDone:
    """The JobDone of a result that did not reach the session's edge directly."""
    push, finished = result.push, result.finished
    return JobDone(
        job_id=push.job_id,
        attempt=push.attempt,
        node_id=push.node_id,
        node_edge=push.node_edge,
        request_id=push.request_id,
        session_id=push.session_id,
        utterance_index=push.utterance_index,
        session_edge=result.session_edge,
        success=finished.success,
        # At least 1, as a retry: the selector must look up the owner of the session.
        resend=max(1, result.sends),
        took_ms=finished.took_ms,
        pair=finished.pair,
        audio_ms=finished.audio_ms,
    )
