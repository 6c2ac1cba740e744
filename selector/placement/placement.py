"""A Dispatch on its way to a node: what the placer, the line and the decision records know of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from lua.store.types.commits import CommitRequest
from mesh.frames import Dispatch
from mesh.words import DispatchOutcome
from selector.core.pools import PoolOrder
from selector.operators.core.recorder import Batch


class PlacementRound(NamedTuple):
    """One choice for a request: its place in a recorded batch, the candidates, and what the commit said of them."""

    batch: Batch
    place: int
    pool: str
    candidates: list[str]
    reasons: tuple[str, ...] = ()
    seen: tuple[tuple[str, int, int], ...] = ()


@dataclass(slots=True, eq=False)
class Placement:
    """One attempt to place an utterance."""

    dispatch: Dispatch
    payload: list[bytes]
    #: The broker that brought it, and takes the answer.
    broker: str
    #: Part of the job id; the same in every round, so that a repeated commit is the same job.
    unique: str
    #: When it came, on our clock.
    since_ms: int
    #: What decides which nodes may take it; the same for requests that are alike.
    needs: tuple[object, ...]
    #: Where it may look; None without pools.
    pools: PoolOrder | None = None
    #: When it was sent, by its edge's clock.
    sent_us: int = 0
    # The last choice, per candidate: the node, its connection, slots that should be in use, when a result is late.
    candidates: list[str] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    expected: list[int] = field(default_factory=list)
    late_ms: list[int] = field(default_factory=list)
    #: So many of them are as good as the first, or nearly.
    equals: int = 0
    #: Nodes that each filter removed in the last choice.
    removed: list[int] = field(default_factory=list)
    #: No pool will ever take it.
    is_barred: bool = False
    #: Nodes that a commit found gone, not ready or full -> which of these; not tried again.
    tried: dict[str, str] = field(default_factory=dict)
    #: Candidates that a commit turned down, in all rounds.
    conflicts: int = 0
    #: The recorded choices of the try under way.
    rounds: list[PlacementRound] = field(default_factory=list)
    #: The commit's verdict; "" while there is no node for it.
    outcome: str = ""
    #: It stands in line, or stood there.
    has_waited: bool = False
    #: It stands in line and a commit is under way for it.
    is_being_tried: bool = False
    #: Its edge took it back while it stood in line.
    is_unwanted: bool = False

    @property
    def is_placed(self) -> bool:
        """True once it has a node, by us or by another selector."""
        return self.outcome in (DispatchOutcome.NEW, DispatchOutcome.BOUND)

    def waited_ms(self, now_ms: int) -> int:
        """How long it stood in line."""
        return max(0, now_ms - self.since_ms) if self.has_waited else 0

    def begin_try(self) -> None:
        """What was found taken a while ago may be free by now."""
        self.tried.clear()
        self.rounds.clear()
        self.conflicts = 0
        self.outcome = ""

    def commit(self, *, is_last: bool) -> CommitRequest:
        """What to ask of the store. `is_last`: take any candidate that has room, whatever else it has to do.

        Before that only those that are about as good as the best and have no more to do than was assumed: where others
        were faster, a second look finds a better one.
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
