"""Requests and results of a commit: one request placed on one node. Plain values, no Redis: cores may import them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

#: Also the label values of a metric.
CommitVerdict = Literal["new", "bound", "full", "unavailable", "unknown"]
#: Redis refused every candidate.
PASSED_OVER: Final[tuple[CommitVerdict, ...]] = ("full", "unavailable")


class CommitRequest(NamedTuple):
    """One request to be placed on the first candidate with a free slot. `unique`: random_ids.new_job_unique."""

    request_id: str
    session_id: str
    edge: str
    utterance_index: int
    attempt: int
    unique: str
    candidates: list[str]
    deadline_ms: int
    trace_id: str
    #: Per candidate: slots in use assumed by the selection, -1 = any. Candidates with more are skipped. Empty: any.
    expected: Sequence[int] = ()


class Committed(NamedTuple):
    """Result of a CommitRequest.

    "new": this call placed it. "bound": it was placed before, perhaps by a higher `attempt`; `state` and `finished` are
    those of its job. "full": no candidate was accepted, at least one for lack of a free slot. "unavailable": none was
    accepted, and slots are not the reason: there was no candidate, or Redis lost their records. `reasons`: one per
    candidate (gone: no record | not_ready | draining | stale | full | moved: more slots in use than expected).
    "unknown": Redis could not be used; retry with the same request id.
    `used` and `version` are the node's after a "new".
    """

    verdict: CommitVerdict
    job_id: str = ""
    node_id: str = ""
    node_edge: str = ""
    node_epoch: int = 0
    attempt: int = 0
    state: str = ""
    finished: bool = False
    used: int = 0
    version: int = 0
    reasons: tuple[str, ...] = ()
    #: Node, slots in use and version of candidates that were skipped for their slots.
    seen: tuple[tuple[str, int, int], ...] = ()
    #: If "bound": time since the job finished, by Redis's clock (-1: unknown), and the edge that made the request.
    ended_for_ms: int = -1
    asked_by: str = ""


class Bound(NamedTuple):
    """Binding of a request: its job, node and attempt, in the order of Committed."""

    job_id: str
    node_id: str
    node_edge: str
    node_epoch: int
    attempt: int
