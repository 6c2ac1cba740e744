"""Selectors with snapshots that lag behind commit batches against one truth; nothing may be sold twice, nor pile up."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from mesh.frames import Dispatch
from selector.core.kernel import NO_ROW
from selector.core.node_table import NodeTable
from tests.support.builders.selector import NOW_MS, facts, job, pick

SELECTORS, NODES, STEPS, BEST, ROUNDS = 3, 12, 120, 3, 4
ANY_USE = -1


@dataclass
class Asked:
    dispatch: Dispatch
    candidates: list[str]
    expected: list[int]


class Truth:
    """What Redis knows: who holds which slot, and a version that grows with every change."""

    def __init__(self, limits: dict[str, int]) -> None:
        self.limits = limits
        self.leases: dict[str, set[str]] = {node_id: set() for node_id in limits}
        self.bound: dict[str, str] = {}
        self.version = 1

    def commit(self, asked: Asked) -> tuple[str, int] | None:
        """The first candidate with a free slot that is used no more than the selector thought."""
        request_id = asked.dispatch.request_id
        if request_id in self.bound:
            return self.bound[request_id], 0
        for node_id, expected in zip(asked.candidates, asked.expected, strict=True):
            used = len(self.leases[node_id])
            if used < self.limits[node_id] and (expected == ANY_USE or used <= expected):
                self.leases[node_id].add(request_id)
                self.bound[request_id] = node_id
                self.version += 1
                return node_id, self.version
        return None

    def release(self, request_id: str) -> None:
        self.leases[self.bound[request_id]].discard(request_id)
        self.version += 1

    def refresh(self, table: NodeTable) -> None:
        for node_id, held in self.leases.items():
            table.apply(0, self.version, node_id, len(held), NOW_MS, None)

    def check(self) -> None:
        for node_id, held in self.leases.items():
            assert len(held) <= self.limits[node_id], f"{node_id} was sold {len(held)} of {self.limits[node_id]} slots"
        assert sum(map(len, self.leases.values())) <= len(self.bound)


def table_for(limits: dict[str, int]) -> NodeTable:
    table = NodeTable(nodes_max=len(limits))
    for node_id, limit in limits.items():
        table.apply(0, 1, node_id, 0, NOW_MS, facts(max_jobs=limit))
    return table


def choose(table: NodeTable, batch: list[Dispatch], is_last: bool) -> list[Asked]:
    choice = pick(table, *batch, best=BEST)
    asked = []
    for dispatch, rows, expected in zip(batch, choice.rows.tolist(), choice.expected.tolist(), strict=True):
        found = [row for row in rows if row != NO_ROW]
        assumed = [ANY_USE] * len(found) if is_last else expected[: len(found)]
        asked.append(Asked(dispatch, [table.id_of(row) for row in found], assumed))
    return asked


def place(truth: Truth, table: NodeTable, batch: list[Dispatch]) -> list[Dispatch]:
    """What selector/placement/placer.py does, without Redis; returns the requests that found no node."""
    for round_number in range(ROUNDS):
        again = []
        for asked in choose(table, batch, round_number == ROUNDS - 1):
            placed = truth.commit(asked)
            if placed is None:
                again.append(asked.dispatch)
            elif placed[1]:
                table.patch(placed[0], len(truth.leases[placed[0]]), placed[1])
        truth.check()
        batch = again
        if batch:
            truth.refresh(table)
    return batch


@pytest.mark.parametrize("seed", range(25))
def test_lagging_selectors_never_sell_a_slot_twice_and_find_every_free_one(seed: int) -> None:
    chance = random.Random(seed)
    limits = {f"n{index}": chance.randint(1, 4) for index in range(NODES)}
    truth = Truth(limits)
    tables = [table_for(limits) for _ in range(SELECTORS)]
    snapshots: list[list[tuple[int, dict[str, int]]]] = [[] for _ in tables]  # on their way, in any order
    asked: list[str] = []
    for step in range(STEPS):
        which = chance.randrange(SELECTORS)
        snapshots[which].append((truth.version, {node: len(held) for node, held in truth.leases.items()}))
        if chance.random() < 0.5:  # an answer arrives, perhaps an old one after a newer one
            version, used = snapshots[which].pop(chance.randrange(len(snapshots[which])))
            for node_id, count in used.items():
                tables[which].apply(0, version, node_id, count, NOW_MS, None)
        batch = [job(request_id=f"r{step}-{index}") for index in range(chance.randrange(6))]
        if asked and chance.random() < 0.3:
            batch.append(job(request_id=chance.choice(asked)))  # an edge repeats itself
        asked += [one.request_id for one in batch]
        place(truth, tables[which], batch)
        running = [request_id for request_id in truth.bound if request_id in truth.leases[truth.bound[request_id]]]
        for request_id in running:
            if chance.random() < 0.25:
                truth.release(request_id)
        truth.check()
        tables[which].check()
    # With a fresh snapshot exactly the free slots are sold, no more and no fewer.
    table = tables[0]
    truth.refresh(table)
    free = sum(limits.values()) - sum(map(len, truth.leases.values()))
    refused = place(truth, table, [job(request_id=f"last-{index}") for index in range(free + 5)])
    assert len(refused) == 5, f"seed {seed}"
    assert Counter({node: len(held) for node, held in truth.leases.items()}) == Counter(limits), f"seed {seed}"


@pytest.mark.parametrize("batch", [1, 7, 64, 100])
def test_a_burst_as_large_as_the_fleet_lands_once_on_each_node(batch: int) -> None:
    """A hundred jobs in a moment on a hundred equal nodes: no snapshot comes in between."""
    limits = {f"n{index}": 4 for index in range(100)}
    truth, table = Truth(limits), table_for(limits)
    burst = [job(request_id=f"r{index}") for index in range(100)]
    for start in range(0, 100, batch):
        assert not place(truth, table, burst[start : start + batch])
    assert {len(held) for held in truth.leases.values()} == {1}


@pytest.mark.parametrize("selectors", [1, 4, 8])
@pytest.mark.parametrize("seed", range(8))
def test_a_burst_does_not_pile_up_when_several_selectors_choose_at_once(selectors: int, seed: int) -> None:
    """All choose by the same snapshot before any commits; what Redis counts in between is told to them by "moved"."""
    chance = random.Random(seed)
    limits = {f"n{index}": 4 for index in range(100)}
    truth = Truth(limits)
    tables = [table_for(limits) for _ in range(selectors)]
    waiting = [[job(request_id=f"r{index}") for index in range(which, 100, selectors)] for which in range(selectors)]
    for round_number in range(ROUNDS):
        asked = [
            (which, one)
            for which in range(selectors)
            for one in choose(tables[which], waiting[which], round_number == ROUNDS - 1)
        ]
        chance.shuffle(asked)
        waiting = [[] for _ in range(selectors)]
        for which, one in asked:
            if truth.commit(one) is None:
                waiting[which].append(one.dispatch)
        for table in tables:
            truth.refresh(table)
    assert waiting == [[] for _ in range(selectors)], f"seed {seed}"
    assert {len(held) for held in truth.leases.values()} == {1}, f"seed {seed}"
