"""Turnover: the end of a job gives its slot to a waiting placement, by one call of the store for a whole batch."""

from __future__ import annotations

from collections.abc import Sequence

from lua.store.types.commits import CommitRequest, Committed
from lua.store.types.jobs import Advance, Advanced
from lua.store.types.turnovers import TurnedOver, Turnover
from mesh import clock
from mesh.errors import StoreError
from selector.context import SelectorContext
from selector.placement.core.slot_pairing import Pairing, pair
from selector.placement.placement import Placement
from selector.placement.placer import Placer

#: The answer about the end of a job.
EndAnswer = Advanced | StoreError


class SlotTurnover:
    """Ends jobs. Owns the slots that they free until a placement has them or the store has counted them."""

    def __init__(self, context: SelectorContext, placer: Placer) -> None:
        self._store = context.store
        self._table = context.table
        self._metrics = context.metrics
        self._placer = placer
        self._selection = placer.selection
        self._queue = placer.wait_queue

    async def finish(self, ends: Sequence[Advance]) -> list[EndAnswer]:
        """Finish jobs and release their slots; the answers, which the node table has already. An error per failure."""
        if not self._queue.queued:
            finished = await self._store.jobs.advance(ends)
            for end, answer in zip(ends, finished, strict=True):
                self._patch(end, answer)
            if any(isinstance(one, Advanced) for one in finished):
                self._queue.slots_freed()  # a placement may have entered meanwhile
            return finished
        return await self._turn_over(ends)

    async def _turn_over(self, ends: Sequence[Advance]) -> list[EndAnswer]:
        """Choose as if all slots were free already, then end the jobs and commit the placements in the same calls."""
        expected = [self._table.expect_release(end.node_id) for end in ends]
        taken = self._queue.take(len(ends))
        chosen: list[Placement] = []
        is_settled = False
        try:
            chosen = self._choose([entry.item for entry in taken.entries])
            pairing = pair([end.node_id for end in ends], [placement.candidates[0] for placement in chosen])
            started_us = clock.wall_us()
            turned = await self._store.turnovers.turn_over(
                [
                    Turnover(end, None if request is None else _request(chosen[request], later))
                    for end, request, later in zip(ends, pairing.requests, pairing.freed_later, strict=True)
                ]
            )
            for end, is_expected, answer in zip(ends, expected, turned, strict=True):
                self._patch(end, answer.finished, is_expected=is_expected)
            is_settled = True
            await self._settle(chosen, pairing, turned, clock.wall_us() - started_us)
            return [answer.finished for answer in turned]
        finally:
            if not is_settled:
                for end, is_expected in zip(ends, expected, strict=True):
                    self._patch(end, StoreError("not answered"), is_expected=is_expected)
            for placement in chosen:
                if not placement.outcome:
                    placement.count_full()
            placed = sum(entry.item.is_placed for entry in taken.entries)
            self._queue.put_back(taken, has_spare=placed < len(ends))

    def _choose(self, placements: list[Placement]) -> list[Placement]:
        """Those of the placements that have a candidate."""
        if not placements:
            return []
        selected = self._selection.choose(placements)
        chosen = [placement for placement in placements if placement.candidates]
        if chosen:
            self._selection.record(placements, selected)
        return chosen

    def _patch(self, end: Advance, answer: EndAnswer, *, is_expected: bool = False) -> None:
        """Apply the node's load after the end of a job. A release that was expected and did not happen is undone."""
        if isinstance(answer, Advanced) and answer.used >= 0:
            self._table.patch(end.node_id, answer.used, answer.version)
        elif is_expected:
            self._table.undo_release(end.node_id)

    async def _settle(
        self, chosen: list[Placement], pairing: Pairing, turned: list[TurnedOver], commit_us: int
    ) -> None:
        """Complete the placements that have a slot now; the others stay in the queue."""
        placements: list[Placement] = []
        answers: list[Committed] = []
        for request, answer in zip(pairing.requests, turned, strict=True):
            if request is not None and answer.committed is not None:
                placements.append(chosen[request])
                answers.append(answer.committed)
        if placements:
            self._metrics.commit_seconds.observe(commit_us / 1e6)
        without = await self._placer.settle(placements, answers, commit_us)
        if without or pairing.left:
            self._queue.slots_freed()  # another selector was faster, or other slots are free as well


def _request(placement: Placement, freed_later: int) -> CommitRequest:
    """The commit in the call that frees its slot: slots that later calls free are still in use then."""
    request = placement.commit(is_last=False)
    if not freed_later or not request.expected:
        return request
    return request._replace(expected=[request.expected[0] + freed_later, *request.expected[1:]])
