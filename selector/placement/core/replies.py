"""Replies about placements and jobs: pure decisions from a frame and the store's answer. No socket, Redis or clock.

Every function returns the frame to send, or None; handlers call the store, decide here, and send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lua.store.types.commits import Committed
from lua.store.types.jobs import Release, Released
from mesh.errors import ErrorCode
from mesh.frames import Assign, AssignFailed, CancelJob, Dispatch, Refused, Undone, pair_of
from mesh.states.job import JobState
from mesh.words import AssignFailure, RefusalReason, UndoneReason
from selector.core.filters import PASSING, REASON, Filter, is_hopeless, main_filter, removed_by_name
from selector.core.reply import Reply

#: Reason of the commit script for rejecting a candidate -> the filter that should have removed it.
REJECTED_BY: Final[Mapping[str, Filter]] = {
    "full": Filter.SLOT,
    "gone": Filter.OFFLINE,
    "stale": Filter.OFFLINE,
    "not_ready": Filter.STATUS,
    "draining": Filter.DRAINING,
    "moved": Filter.SLOT,
}

_EXCLUDED: Final = int(Filter.EXCLUDED)


# --- placements -----------------------------------------------------------------------------------------


def assign(
    dispatch: Dispatch,
    commit: Committed,
    late_after_ms: int = 0,
    *,
    selector: str = "",
    sent_us: int = 0,
    stages: list[int] | None = None,
) -> Reply:
    """The job, for the edge of its node. `selector`: where Finished goes; `stages`: of mesh.words.LatencyStage."""
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
            session_epoch=dispatch.session_epoch,
            selector=selector,
            sent_us=sent_us,
            stages=stages or [],
        ),
    )


def on_bound(
    dispatch: Dispatch, commit: Committed, node_epoch: int, result_lost_ms: int, *, selector: str = "", sent_us: int = 0
) -> Reply | None:
    """Reply to a retry of a request that is placed already. `node_epoch`: the node's current one.

    Finished: none, because the result is redelivered until acknowledged. If it finished longer than `result_lost_ms`
    ago, the edge that redelivers it must be dead. Then, and if the job was released: Undone, for the next attempt.
    Otherwise the Assign may be lost and is sent again; the node's edge deduplicates it. Not so if the node had the job
    and has reconnected since: it still has the job, or the audit of its slots releases it.
    A higher attempt is in force: this Dispatch is outdated; or its edge took the session over from one that had more
    attempts, and must catch up.
    """
    edge, job = dispatch.edge, (dispatch.request_id, dispatch.attempt, commit.job_id, commit.node_id)
    if commit.attempt != dispatch.attempt:
        is_new_edge = commit.asked_by not in ("", edge)
        return _undone(edge, *job, UndoneReason.OVERTAKEN) if is_new_edge else None
    if commit.finished:
        return _undone(edge, *job, UndoneReason.RESULT_LOST) if commit.ended_for_ms > result_lost_ms else None
    if commit.state in (JobState.DISPATCHED, JobState.ACCEPTED, JobState.RUNNING) and node_epoch > commit.node_epoch:
        return None
    if commit.state in (JobState.RELEASED, ""):
        return _undone(edge, *job, UndoneReason.RELEASED)
    return assign(dispatch, commit, selector=selector, sent_us=sent_us)


def refusal(
    dispatch: Dispatch,
    counts: Sequence[int],
    retry_after_ms: int,
    *,
    reason: str = "",
    nearest: tuple[str, str] = ("", ""),
    waited_ms: int = 0,
) -> Refused:
    """No node: the reason, nodes removed per filter, the nearest miss, and when to retry (0: never)."""
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
    """True if a node may become available for it.

    A hedge never waits: the first attempt may be done by then. If all suitable nodes are excluded, its edge must decide
    whether they stay excluded.
    """
    if dispatch.beside or is_hopeless(counts):
        return False
    return not counts[_EXCLUDED] or any(counts[place] for place in PASSING if place != _EXCLUDED)


def with_rejected(counts: Sequence[int], rejected: Mapping[str, str], excluded: int) -> list[int]:
    """The counts of the last choice, with rejected nodes under the filter of their reason.

    `excluded`: how many of them the choice counted as excluded. The others passed it, or have left the table.
    """
    corrected = list(counts)
    if not rejected:
        return corrected
    corrected[_EXCLUDED] = max(0, corrected[_EXCLUDED] - excluded)
    for reason in rejected.values():
        corrected[REJECTED_BY.get(reason, Filter.SLOT)] += 1
    return corrected


# --- failed attempts ------------------------------------------------------------------------------------


def is_node_absent(frame: AssignFailed) -> bool:
    """True if that connection of the node must be unlisted: its edge has no socket of it."""
    return frame.reason in (AssignFailure.NODE_ABSENT, AssignFailure.NODE_GONE)


def release_of(frame: AssignFailed) -> Release:
    """The slot to release. A node that is only gone from that edge keeps its jobs if it has a later connection."""
    epoch = frame.node_epoch if frame.reason == AssignFailure.NODE_GONE else 0
    return Release(frame.job_id, frame.attempt, frame.node_id, frame.reason, epoch)


def on_assign_failed(frame: AssignFailed, released: Released) -> Reply | None:
    """The slot is released: the session's edge may start the next attempt.

    None for a fenced attempt, which was replaced, and for a kept one, which its node continues.
    """
    if released.verdict in ("fenced", "kept"):
        return None
    exclude_node = frame.reason not in (AssignFailure.JOB_LOST, AssignFailure.NODE_GONE)
    job = (frame.request_id, frame.attempt, frame.job_id, frame.node_id)
    return _undone(frame.session_edge, *job, frame.reason, exclude_node=exclude_node)


def on_assign_bounced(assigned: Assign, released: Released, reason: str) -> Reply | None:
    """The node's edge is unreachable. The node itself may be healthy, so it is not excluded from later attempts."""
    if released.verdict == "fenced":
        return None
    job = (assigned.request_id, assigned.attempt, assigned.job_id, assigned.node_id)
    return _undone(assigned.session_edge, *job, reason)


def _undone(
    edge: str, request_id: str, attempt: int, job_id: str, node_id: str, reason: str, *, exclude_node: bool = False
) -> Reply:
    return Reply(edge, Undone(request_id, attempt, job_id, node_id, reason, exclude_node))


def on_cancelled(job: Release, released: Released, node_edge: str) -> Reply | None:
    """CancelJob for the node, if the attempt is not fenced and the node's edge is known."""
    if released.verdict == "fenced" or not node_edge:
        return None
    return Reply(
        node_edge,
        CancelJob(job_id=job.job_id, attempt=job.attempt, node_id=job.node_id, trace_id="", reason=job.reason),
    )
