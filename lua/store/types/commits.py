"""Requests and results of a commit: one request placed on one node. Plain values, no Redis: cores may import them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

#: Also the label values of a metric.
CommitVerdict = Literal["new", "bound", "full", "unavailable", "unknown"]


class CommitRequest(NamedTuple):
    """One utterance to be placed on the first candidate that has room. `unique` is from mesh.ids.new_job_unique."""

    request_id: str
    session_id: str
    edge: str
    utterance_index: int
    attempt: int
    unique: str
    candidates: list[str]
    deadline_ms: int
    trace_id: str
    #: Per candidate: slots in use that the choice assumed, -1 = any. One with more is passed over. Empty: any.
    expected: Sequence[int] = ()


class Committed(NamedTuple):
    """What became of a CommitRequest.

    "new": this call placed it. "bound": it was placed before, perhaps by a higher `attempt`; `state` and `finished`
    tell how far it is. "full": no candidate was taken, at least one for lack of a free slot. "unavailable": none was
    taken, and slots are not the reason: there was no candidate, or Redis lost their records. `reasons` has a word for
    each candidate (gone: no record | not_ready | draining | stale | full | moved: more slots are in use than expected).
    "unknown": Redis could not be used; repeat with the same request id.
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
    #: Node, slots in use and version of candidates that were passed over because of those.
    seen: tuple[tuple[str, int, int], ...] = ()
    #: Of a "bound" one: time since it finished, by Redis's clock (-1: not known), and the edge that it was placed for.
    ended_for_ms: int = -1
    asked_by: str = ""

    @property
    def is_passed_over(self) -> bool:
        """True if Redis was asked and no candidate was taken."""
        return self.verdict in ("full", "unavailable")


class Bound(NamedTuple):
    """Where a request is bound."""

    attempt: int
    job_id: str
    node_id: str
    node_edge: str
    node_epoch: int
