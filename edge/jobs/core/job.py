"""Assignment: a job at a node, its result, and the effects that deliveries may ask of their rim. Holds no rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mesh.frames import Assign, AssignFailed, CancelJob, ControlNode, JobDone, JobEvent, Notice, Placed
from mesh.states.job import JobAction
from mesh.words import NoticeEvent, StopReason


class Payload(NamedTuple):
    """What rides behind an Assign."""

    work: bytes
    audio: bytes


@dataclass(slots=True, eq=False)
class Job:
    """A job that a node of ours runs."""

    frame: Assign
    #: When it was written to the node's socket.
    written_ms: int
    #: The furthest event so far, and those the mesh has not been told (edge/jobs/core/progress.py).
    reached: JobAction | None = None
    untold: list[str] = field(default_factory=list)
    tell_ms: int = 0
    #: Written to a socket that the node has replaced; whether the node still has it is not known yet.
    in_doubt: bool = False
    #: The same, for good: how long it took says nothing of the node's speed.
    interrupted: bool = False


@dataclass(slots=True, eq=False)
class UnackedResult:
    """A job_result that is kept until acknowledged."""

    done: JobDone
    text: bytes
    received_ms: int
    #: We gave the node this job. If not, there is only the node's word for it.
    known: bool
    sends: int = 0
    no_session: int = 0
    broker: str = ""


class ResultReport(NamedTuple):
    """What a node's job_result says, as far as delivery needs it."""

    job_id: str
    attempt: int
    node_id: str
    session_id: str
    utterance_index: int
    success: bool
    #: How long it took says something of the node's speed.
    is_telling: bool = True


# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteJob:
    """Write job_assign to the node's socket; if that fails, call `write_failed`; else send `placed`."""

    assign: Assign
    payload: Payload
    placed: Placed


@dataclass(frozen=True, slots=True)
class SendToEdge:
    """A frame for the edge that owns the session."""

    to: str
    frame: Placed | Notice
    payload: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class SendToJob:
    """A frame for whichever selector serves the job's cell."""

    job_id: str
    frame: JobEvent | AssignFailed


@dataclass(frozen=True, slots=True)
class SendDone:
    """Send the result; then call `sent` with the broker that took it."""

    key: str
    done: JobDone
    text: bytes
    avoid: str


@dataclass(frozen=True, slots=True)
class TellNode:
    """The result is in good hands: the node may forget it (only nodes that asked are told)."""

    node_id: str
    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class StopJob:
    """Write job_cancel to the node's socket, if it is there."""

    cancel: CancelJob


@dataclass(frozen=True, slots=True)
class TellControl:
    """Write node_control to the node's socket, if it is there. A drain ends at `due_ms`."""

    control: ControlNode
    due_ms: int


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """For the log: the node has no job left, after so many were given to others."""

    node_id: str
    handed_over: int


Effect = WriteJob | SendToEdge | SendToJob | SendDone | TellNode | StopJob | TellControl | NodeDrained


def key_of(node_id: str, job_id: str, attempt: int) -> str:
    """The name of one attempt at a job by one node: what another node says of the job concerns only that node."""
    return f"{node_id}/{job_id}#{attempt}"


def key_of_assign(assign: Assign) -> str:
    """`key_of` the attempt that is assigned."""
    return key_of(assign.node_id, assign.job_id, assign.attempt)


# --- frames about a job -----------------------------------------------------------------------------


def placed(assign: Assign) -> Placed:
    """The node has it."""
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
    """Something that the client may be shown."""
    frame = Notice(
        session_id=assign.session_id,
        utterance_index=assign.utterance_index,
        job_id=assign.job_id,
        attempt=assign.attempt,
        event=event,
        request_id=assign.request_id,
    )
    return SendToEdge(assign.session_edge, frame, payload)


def failed(assign: Assign, reason: str) -> SendToJob:
    """The node does not have it, or no longer."""
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


def stopped(assign: Assign, reason: StopReason) -> StopJob:
    """Nobody wants it of that node any more."""
    return StopJob(CancelJob(assign.job_id, assign.attempt, assign.node_id, assign.trace_id, reason))


def done(edge: str, report: ResultReport, assignment: Job | None, now_ms: int) -> JobDone:
    """The result of a job of ours. Of one that we do not know, only what the node says."""
    if assignment is None:
        return JobDone(
            job_id=report.job_id,
            attempt=report.attempt,
            node_id=report.node_id,
            node_edge=edge,
            request_id="",
            session_id=report.session_id,
            utterance_index=report.utterance_index,
            session_edge="",
            success=report.success,
            # Whose session it is must be looked up at once, as if this were a repeat.
            resend=1,
        )
    # What we were told when the job was assigned counts, not what the node repeats.
    frame = assignment.frame
    return JobDone(
        job_id=frame.job_id,
        attempt=frame.attempt,
        node_id=frame.node_id,
        node_edge=edge,
        request_id=frame.request_id,
        session_id=frame.session_id,
        utterance_index=frame.utterance_index,
        session_edge=frame.session_edge,
        success=report.success,
        took_ms=-1 if assignment.interrupted or not report.is_telling else now_ms - assignment.written_ms,
        pair=frame.pair,
        audio_ms=frame.audio_ms,
    )
