"""What to answer: pure decisions from a frame and what Redis said about it. Knows no socket, no Redis, no clock.

Every function returns frames to send (or None); the rims ask, decide here, and send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from lua.store.types.commits import Committed
from lua.store.types.jobs import Release, Released
from mesh.errors import ErrorCode
from mesh.frames import Assign, AssignFailed, CancelJob, Dispatch, Frame, Refused, Role, Undone, frames_to, pair_of
from mesh.states.job import JobState
from mesh.words import AssignFailure, RefusalReason, UndoneReason
from selector.core.filters import LASTING, REASON, Filter, is_hopeless, main_filter, removed_by_name

#: Frames that a selector acts upon; selector/app.py has a lane for each. Any other is counted and dropped.
TAKEN: Final = frames_to(Role.SELECTOR)

#: What the commit script says of a candidate without room -> the filter that should have caught it.
TAKEN_REASONS: Final[Mapping[str, Filter]] = {
    "full": Filter.SLOT,
    "gone": Filter.OFFLINE,
    "stale": Filter.OFFLINE,
    "not_ready": Filter.STATUS,
    "draining": Filter.DRAINING,
    "moved": Filter.SLOT,
}


class Reply(NamedTuple):
    """A frame for a peer."""

    to: str
    frame: Frame


# --- placing ----------------------------------------------------------------------------------------


def assign(dispatch: Dispatch, commit: Committed, late_after_ms: int = 0) -> Reply:
    """The job, for the edge that owns its node."""
    return Reply(
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
            pair=pair_of(dispatch.src_lang, dispatch.tgt_lang),
            audio_ms=dispatch.audio_ms,
            late_after_ms=late_after_ms,
        ),
    )


def on_bound(dispatch: Dispatch, commit: Committed, node_epoch: int, result_lost_ms: int) -> Reply | None:
    """A repeat of a request that is placed already: what its edge still needs to hear. `node_epoch`: the node's now.

    Finished: nothing, its result is repeated until acknowledged; unless that was long ago, so that whoever repeated it
    must be gone. Then, and if it was given up: Undone, so that the next attempt begins.
    Otherwise the Assign may have been lost, so it goes out again; the node's edge knows what it has. Not so if the node
    had the job and has connected elsewhere since: it has it still, or the audit of its slots gives the job up.
    A higher attempt is in force: this is an old Dispatch of an edge that has moved on; or its edge took the session
    over from one that was further, and must catch up.
    """
    if commit.attempt != dispatch.attempt:
        is_new_edge = commit.asked_by not in ("", dispatch.edge)
        return _undone(dispatch, commit, UndoneReason.OVERTAKEN) if is_new_edge else None
    if commit.finished:
        return _undone(dispatch, commit, UndoneReason.RESULT_LOST) if commit.ended_for_ms > result_lost_ms else None
    if commit.state in (JobState.DISPATCHED, JobState.ACCEPTED, JobState.RUNNING) and node_epoch > commit.node_epoch:
        return None
    if commit.state in (JobState.RELEASED, ""):
        return _undone(dispatch, commit, UndoneReason.RELEASED)
    return assign(dispatch, commit)


def _undone(dispatch: Dispatch, commit: Committed, reason: UndoneReason) -> Reply:
    return Reply(
        dispatch.edge,
        Undone(
            request_id=dispatch.request_id,
            attempt=dispatch.attempt,
            job_id=commit.job_id,
            node_id=commit.node_id,
            reason=reason,
            exclude_node=False,
        ),
    )


def refusal(
    dispatch: Dispatch,
    counts: Sequence[int],
    retry_after_ms: int,
    *,
    reason: str = "",
    nearest: tuple[str, str] = ("", ""),
    waited_ms: int = 0,
) -> Refused:
    """No node: why, how many nodes each filter removed, who came closest, and when to try again (0: not at all)."""
    return Refused(
        request_id=dispatch.request_id,
        attempt=dispatch.attempt,
        code=ErrorCode.NO_AVAILABLE_NODE.name,
        reason=reason or main_reason(counts),
        removed=removed_by_name(counts),
        retry_after_ms=retry_after_ms,
        nearest_node=nearest[0],
        nearest=nearest[1],
        waited_ms=waited_ms,
    )


def main_reason(counts: Sequence[int]) -> str:
    """The filter that removed most of the nodes that the job may use, by name; nodes of other pools do not count."""
    own = [0 if place == Filter.POOL else count for place, count in enumerate(counts)]
    worst = main_filter(own) or main_filter(counts)
    return RefusalReason.NO_NODES if worst is None else REASON[worst]


def is_worth_waiting(dispatch: Dispatch, counts: Sequence[int]) -> bool:
    """True if a node may come free for it.

    A hedge is not worth it: by the time, the first attempt may be done. If all who could are excluded, its edge must
    decide whether they stay so.
    """
    removed_by = {Filter(place) for place, count in enumerate(counts) if count} - LASTING - {Filter.POOL}
    return not dispatch.beside and removed_by != {Filter.EXCLUDED} and not is_hopeless(counts)


def needs_of(dispatch: Dispatch, order: Sequence[str]) -> tuple[object, ...]:
    """What decides which nodes may take a job. Where one finds nobody, others with the same needs need not look."""
    return (
        dispatch.tenant_id,
        dispatch.public,
        dispatch.src_lang,
        dispatch.tgt_lang,
        dispatch.lang_a,
        dispatch.lang_b,
        *(tuple(words) for words in (dispatch.services, dispatch.auto_langs, dispatch.models, dispatch.excluded)),
        tuple(order),
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
    return frame.reason in (AssignFailure.NODE_ABSENT, AssignFailure.NODE_GONE)


def release_of(frame: AssignFailed) -> Release:
    """The slot to give back. A node that is only gone from there keeps its jobs if it lives by a later connection."""
    epoch = frame.node_epoch if frame.reason == AssignFailure.NODE_GONE else 0
    return Release(frame.job_id, frame.attempt, frame.node_id, frame.reason, epoch)


def on_assign_failed(frame: AssignFailed, released: Released) -> Reply | None:
    """Its slot is back: the session's edge may try elsewhere. A fenced one was replaced already, a kept one goes on."""
    if released.verdict in ("fenced", "kept"):
        return None
    return Reply(
        frame.session_edge,
        Undone(
            request_id=frame.request_id,
            attempt=frame.attempt,
            job_id=frame.job_id,
            node_id=frame.node_id,
            reason=frame.reason,
            exclude_node=frame.reason not in (AssignFailure.JOB_LOST, AssignFailure.NODE_GONE),
        ),
    )


def on_assign_bounced(assigned: Assign, released: Released, reason: str) -> Reply | None:
    """The node's edge cannot be reached. The node itself may be fine, so it is not excluded for good."""
    if released.verdict == "fenced":
        return None
    return Reply(
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


def on_cancelled(job: Release, released: Released, node_edge: str) -> Reply | None:
    """Tell the node to stop, if that attempt is still its own and we know where it is."""
    if released.verdict == "fenced" or not node_edge:
        return None
    return Reply(
        node_edge,
        CancelJob(job_id=job.job_id, attempt=job.attempt, node_id=job.node_id, trace_id="", reason=job.reason),
    )
