"""What to answer: pure decisions from a frame and what Redis said about it. Knows no socket, no Redis, no clock.

Every function returns frames to send (or None); the rims ask, decide here, and send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, get_args

from lua.answers import Advanced, Beaten, Claimed, Committed, Release, Released
from mesh.errors import ErrorCode
from mesh.frames import (
    AnyFrame,
    Assign,
    AssignFailed,
    Beat,
    Bounce,
    BrokerBeat,
    Busy,
    Cancel,
    CancelJob,
    ControlNode,
    Credit,
    Dispatch,
    EdgeReport,
    Failed,
    Frame,
    Goodbye,
    JobDone,
    JobEvent,
    ModelMissing,
    NodeHeartbeat,
    NodeOffline,
    NodeRegister,
    NodeRegistered,
    NodeStale,
    Notice,
    Placed,
    Push,
    Query,
    QueryAnswer,
    Refused,
    ResultAck,
    SessionClaim,
    SessionClaimed,
    SessionRelease,
    StatusChanged,
    Undone,
    Waiting,
)
from mesh.jobs import State
from selector.core.filters import NO_NODES, REASON, Filter, is_hopeless, main_filter, removed_by_name

#: Frames that a selector gets and acts upon; selector/loop.py has a lane for each.
TAKEN: Final = frozenset({
    NodeRegister, NodeHeartbeat, NodeOffline, SessionClaim, SessionRelease,
    Dispatch, AssignFailed, JobEvent, JobDone, Cancel, Bounce,
})  # fmt: skip
#: Frames that are for others. If one comes it is counted and dropped.
NOT_OURS: Final = frozenset({
    Beat, BrokerBeat, Credit, Busy, Goodbye, NodeRegistered, NodeStale, Failed, SessionClaimed,
    Assign, Placed, Refused, Undone, Notice, Push, ResultAck, CancelJob, StatusChanged, ControlNode, Waiting,
    QueryAnswer, ModelMissing, Query, EdgeReport,
})  # fmt: skip
assert set(get_args(AnyFrame)) == TAKEN | NOT_OURS, "decide for every frame whether a selector takes it"
assert not TAKEN & NOT_OURS

#: Reasons of AssignFailed. Absent: its edge has no such node. Lost: the node came back without the job, and is fine.
#: Gone: its socket closed long ago; it may live elsewhere by now, with the job.
NODE_ABSENT: Final = "node_absent"
JOB_LOST: Final = "job_lost"
NODE_GONE: Final = "node_gone"

#: What the commit script says of a candidate without room -> the filter that should have caught it.
TAKEN_REASONS: Final[Mapping[str, Filter]] = {
    "full": Filter.SLOT,
    "gone": Filter.OFFLINE,
    "stale": Filter.OFFLINE,
    "not_ready": Filter.STATUS,
}


class Answer(NamedTuple):
    """A frame for a peer."""

    to: str
    frame: Frame


# --- placing ----------------------------------------------------------------------------------------


def assign(dispatch: Dispatch, commit: Committed) -> Answer:
    """The job, for the edge that owns its node."""
    return Answer(
        commit.node_edge,
        Assign(
            job_id=commit.job_id,
            attempt=commit.attempt,
            node_id=commit.node_id,
            node_epoch=commit.node_epoch,
            request_id=dispatch.request_id,
            session_id=dispatch.session_id,
            utterance_index=dispatch.utterance_index,
            session_edge=dispatch.edge,
            deadline_ms=dispatch.deadline_ms,
            trace_id=dispatch.trace_id,
        ),
    )


def on_bound(dispatch: Dispatch, commit: Committed) -> Answer | None:
    """A repeat of a request that is placed already: what its edge still needs to hear.

    Finished: nothing, its result is repeated until acknowledged. Given up: Undone, so that the next attempt begins.
    Otherwise the Assign may have been lost, so it goes out again; the node's edge knows what it has.
    """
    if commit.attempt != dispatch.attempt or commit.finished:
        return None
    if commit.state in (State.RELEASED, ""):
        return Answer(
            dispatch.edge,
            Undone(
                request_id=dispatch.request_id,
                attempt=commit.attempt,
                job_id=commit.job_id,
                node_id=commit.node_id,
                reason="released",
                exclude_node=False,
            ),
        )
    return assign(dispatch, commit)


def refusal(dispatch: Dispatch, counts: Sequence[int], retry_after_ms: int) -> Refused:
    """No node: why, how many nodes each filter removed, and when to try again (0: not at all)."""
    worst = main_filter(counts)
    return Refused(
        request_id=dispatch.request_id,
        attempt=dispatch.attempt,
        code=ErrorCode.NO_AVAILABLE_NODE.name,
        reason=NO_NODES if worst is None else REASON[worst],
        removed=removed_by_name(counts),
        retry_after_ms=0 if is_hopeless(counts) else retry_after_ms,
    )


def with_tried(counts: Sequence[int], tried: Mapping[str, str]) -> list[int]:
    """The counts of the last round, with nodes that a commit turned down under the filter they belong to."""
    corrected = [int(count) for count in counts]
    for reason in tried.values():
        if corrected[Filter.EXCLUDED]:
            corrected[Filter.EXCLUDED] -= 1
        corrected[TAKEN_REASONS.get(reason, Filter.SLOT)] += 1
    return corrected


# --- attempts that came to nothing ----------------------------------------------------------------------


def is_node_away(frame: AssignFailed) -> bool:
    """True if that connection of the node should be taken off the lists: its edge has no socket of it."""
    return frame.reason in (NODE_ABSENT, NODE_GONE)


def release_of(frame: AssignFailed) -> Release:
    """The slot to give back. A node that is only gone from there keeps its jobs if it lives by a later connection."""
    epoch = frame.node_epoch if frame.reason == NODE_GONE else 0
    return Release(frame.job_id, frame.attempt, frame.node_id, frame.reason, epoch)


def on_assign_failed(frame: AssignFailed, released: Released) -> Answer | None:
    """Its slot is back: the session's edge may try elsewhere. A fenced one was replaced already, a kept one goes on."""
    if released.verdict in ("fenced", "kept"):
        return None
    return Answer(
        frame.session_edge,
        Undone(
            request_id=frame.request_id,
            attempt=frame.attempt,
            job_id=frame.job_id,
            node_id=frame.node_id,
            reason=frame.reason,
            exclude_node=frame.reason not in (JOB_LOST, NODE_GONE),
        ),
    )


def on_assign_bounced(assigned: Assign, released: Released, reason: str) -> Answer | None:
    """The node's edge cannot be reached. The node itself may be fine, so it is not excluded for good."""
    if released.verdict == "fenced":
        return None
    return Answer(
        assigned.session_edge,
        Undone(
            request_id=assigned.request_id,
            attempt=assigned.attempt,
            job_id=assigned.job_id,
            node_id=assigned.node_id,
            reason=reason,
            exclude_node=False,
        ),
    )


def on_cancelled(job: Release, released: Released, node_edge: str) -> Answer | None:
    """Tell the node to stop, if that attempt is still its own and we know where it is."""
    if released.verdict == "fenced" or not node_edge:
        return None
    return Answer(
        node_edge,
        CancelJob(job_id=job.job_id, attempt=job.attempt, node_id=job.node_id, trace_id="", reason=job.reason),
    )


# --- results --------------------------------------------------------------------------------------------


def is_deliverable(advanced: Advanced) -> bool:
    """True if the result is the job's own. An unknown job was lost by Redis, not by us: its edge decides."""
    return advanced.verdict == "unknown" or (advanced.verdict in ("moved", "same") and advanced.finished)


def session_of(done: JobDone, advanced: Advanced) -> str:
    """The result's session: what the job's record says counts, what the node says only if there is none."""
    return advanced.session_id or done.session_id


def needs_owner(done: JobDone, advanced: Advanced) -> bool:
    """True if Redis must tell where the session is.

    A repeat was pushed before and nobody acknowledged it: the session may have moved.
    """
    return is_deliverable(advanced) and (done.resend > 0 or not (advanced.edge or done.session_edge))


def on_result(done: JobDone, advanced: Advanced, looked_up: str) -> Answer:
    """Push to the session's edge, or tell the node's edge that nobody wants it. `looked_up`: the owner, if asked."""
    if not is_deliverable(advanced):
        return _ack(done, "fenced")
    owner = looked_up or advanced.edge or done.session_edge
    if not owner:
        return _ack(done, "no_session")
    return Answer(
        owner,
        Push(
            job_id=done.job_id,
            attempt=done.attempt,
            node_id=done.node_id,
            node_edge=done.node_edge,
            request_id=advanced.request_id or done.request_id,
            session_id=session_of(done, advanced),
            utterance_index=done.utterance_index,
        ),
    )


def _ack(done: JobDone, verdict: str) -> Answer:
    return Answer(done.node_edge, ResultAck(done.job_id, done.attempt, done.node_id, verdict))


# --- nodes and sessions -----------------------------------------------------------------------------------


def on_beaten(frame: NodeHeartbeat, beaten: Beaten) -> Answer | None:
    """NodeStale when the connection is not the one in force."""
    if beaten.verdict == "ok":
        return None
    return Answer(frame.edge, NodeStale(frame.node_id, frame.epoch, beaten.verdict))


def on_lost(node_id: str, edge: str, epoch: int) -> Answer:
    """Redis has no such connection of the node any more: if it is there still, its edge registers it again."""
    return Answer(edge, NodeStale(node_id, epoch, "unknown"))


def on_claimed(frame: SessionClaim, claimed: Claimed) -> Answer:
    """SessionClaimed, or Failed when another edge owns the session."""
    if claimed.ok:
        return Answer(frame.edge, SessionClaimed(frame.ref, frame.session_id, claimed.epoch))
    message = f"session {frame.session_id} is held elsewhere with epoch {claimed.epoch}"
    return Answer(frame.edge, Failed(frame.ref, ErrorCode.INVALID_SESSION.name, message))


def store_down(ref: str, edge: str) -> Answer:
    """Redis cannot be used: the edge should hear it now rather than wait for its timeout."""
    code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
    return Answer(edge, Failed(ref, code.name, code.hint))
