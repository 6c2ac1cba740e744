"""`Placement`: one attempt to place an utterance, shared by placer, wait queue and decision log. Decides nothing."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import msgspec

from lua.store.types.commits import CommitRequest
from mesh.frames import Dispatch
from mesh.link.link import Part
from mesh.words import DispatchOutcome
from selector.core.filters import Filter
from selector.core.pools import PoolOrder
from selector.operators.core.recorder import Batch
from selector.placement.core.replies import with_rejected


class PlacementRound(NamedTuple):
    """One choice for a placement: its index in a recorded batch, the candidates, and the commit's answer about them."""

    batch: Batch
    place: int
    pool: str
    candidates: list[str]
    reasons: tuple[str, ...] = ()
    seen: tuple[tuple[str, int, int], ...] = ()


class Placement(msgspec.Struct, eq=False):
    """One attempt to place an utterance."""

    dispatch: Dispatch
    payload: list[Part]
    #: The broker that delivered it, and gets the replies.
    broker: str
    #: Part of the job id; equal in every round, so that a retried commit creates the same job.
    unique: str
    #: When it arrived, on our clock.
    since_ms: int
    #: Decides which nodes may take it; equal for placements that can use the same nodes.
    needs: Hashable
    #: The pools that it may use; None without pools.
    pools: PoolOrder | None = None
    #: When it was sent, by its edge's clock.
    sent_us: int = 0
    #: When it arrived and when it was selected for, by the wall clock; duration of that selection and of its commit.
    arrived_us: int = 0
    selected_us: int = 0
    select_us: int = 0
    commit_us: int = 0
    # The last choice, per candidate: node id, connection epoch, slots expected in use, when a result is late.
    candidates: list[str] = []
    epochs: list[int] = []
    expected: list[int] = []
    late_ms: list[int] = []
    #: How many candidates are as good as the first, or nearly.
    equals: int = 0
    #: Nodes that each filter removed in the last choice.
    removed: list[int] = []
    #: No pool will ever take it.
    is_barred: bool = False
    #: Nodes that a commit found gone, stale, not ready or draining -> which of these; excluded from later rounds.
    rejected: dict[str, str] = {}
    #: How many of them the last choice counted under Filter.EXCLUDED: those rejected before it and still in the table.
    rejected_counted: int = 0
    #: Candidates that a commit rejected, in all rounds.
    conflicts: int = 0
    #: The recorded choices since the last `begin_retry`.
    rounds: list[PlacementRound] = []
    #: The commit's verdict; "" while it has no node.
    outcome: str = ""
    #: It is, or was, in the wait queue.
    has_waited: bool = False
    #: It is queued, and a commit for it is in progress.
    is_retrying: bool = False
    #: Its edge cancelled it while it was queued.
    is_cancelled: bool = False

    @property
    def is_placed(self) -> bool:
        """True once it has a node, by this selector or another."""
        return self.outcome in (DispatchOutcome.NEW, DispatchOutcome.BOUND)

    def waited_ms(self, now_ms: int) -> int:
        """Its time in the wait queue."""
        return max(0, now_ms - self.since_ms) if self.has_waited else 0

    def stages(self) -> list[int]:
        """Microseconds of mesh.words.LatencyStage EDGE_IN to COMMIT."""
        arrived_us = self.arrived_us
        return [
            max(0, self.sent_us - self.dispatch.arrived_us) if self.dispatch.arrived_us else 0,
            max(0, arrived_us - self.sent_us),
            max(0, self.selected_us - self.select_us - arrived_us),
            self.select_us,
            self.commit_us,
        ]

    def removed_counts(self) -> list[int]:
        """Nodes that each filter removed, with rejected ones under the filter of their reason. Not to be changed."""
        if not self.rejected:
            return self.removed
        return with_rejected(self.removed, self.rejected, self.rejected_counted)

    def count_full(self) -> None:
        """None of the candidates took it: count them as full, except those that are counted as rejected."""
        self.removed[Filter.SLOT] += sum(node_id not in self.rejected for node_id in self.candidates)

    def begin_retry(self) -> None:
        """Forget rejected nodes: they may be available by now."""
        if self.rejected:
            self.removed = self.removed_counts()
            self.rejected.clear()
            self.rejected_counted = 0
        self.rounds.clear()
        self.conflicts = 0
        self.outcome = ""

    def commit(self, *, is_last: bool) -> CommitRequest:
        """The request to the store. `is_last`: any candidate with a free slot will do, however busy.

        Earlier rounds accept only candidates that are about as good as the best and no busier than assumed: where
        another selector was faster, the next round finds a better one.
        """
        dispatch = self.dispatch
        return CommitRequest(
            request_id=dispatch.request_id,
            session_id=dispatch.session_id,
            edge=dispatch.edge,
            utterance_index=dispatch.utterance_index,
            attempt=dispatch.attempt,
            unique=self.unique,
            candidates=self.candidates if is_last else self.candidates[: self.equals],
            deadline_ms=dispatch.deadline_ms,
            trace_id=dispatch.trace_id,
            expected=() if is_last else self.expected[: self.equals],
        )
