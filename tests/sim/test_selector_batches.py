"""Several selectors with snapshots that lag behind commit batches against one truth; nothing may be sold twice."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from mesh.frames import Dispatch
from selector.core.columns import NodeTable
from selector.core.kernel import NO_ROW, choose
from selector.core.requests import job_rows
from tests.unit.selector_samples import NOW_MS, RULES, facts, job

SELECTORS, NODES, STEPS, BEST, ROUNDS = 3, 12, 120, 3, 3


class Truth:
    """What Redis knows: who holds which slot, and a version that grows with every change."""

    def __init__(self, limits: dict[str, int]) -> None:
        self.limits = limits
        self.leases: dict[str, set[str]] = {node_id: set() for node_id in limits}
        self.bound: dict[str, str] = {}
        self.version = 1

    def commit(self, request_id: str, candidates: list[str]) -> tuple[str, int] | None:
        if request_id in self.bound:
            return self.bound[request_id], 0
        for node_id in candidates:
            if len(self.leases[node_id]) < self.limits[node_id]:
                self.leases[node_id].add(request_id)
                self.bound[request_id] = node_id
                self.version += 1
                return node_id, self.version
        return None

    def release(self, request_id: str) -> None:
        self.leases[self.bound[request_id]].discard(request_id)
        self.version += 1

    def check(self) -> None:
        for node_id, held in self.leases.items():
            assert len(held) <= self.limits[node_id], f"{node_id} was sold {len(held)} of {self.limits[node_id]} slots"
        assert sum(map(len, self.leases.values())) <= len(self.bound)


def place(truth: Truth, table: NodeTable, batch: list[Dispatch]) -> list[Dispatch]:
    """What selector/placing.py does, without Redis; returns the requests that found no node."""
    tried: dict[str, set[str]] = {}
    for _ in range(ROUNDS):
        rows, excluded = job_rows(batch, table, tried)
        choice = choose(table.columns, len(table), rows, excluded, RULES, BEST)
        again = []
        for asked, its_rows in zip(batch, choice.rows.tolist(), strict=True):
            candidates = [table.id_of(row) for row in its_rows if row != NO_ROW]
            placed = truth.commit(asked.request_id, candidates)
            if placed is None:
                for node_id in candidates:
                    table.saturate(node_id)
                tried.setdefault(asked.request_id, set()).update(candidates)
                again.append(asked)
            elif placed[1]:
                table.patch(placed[0], len(truth.leases[placed[0]]), placed[1])
        batch = again
        truth.check()
    return batch


@pytest.mark.parametrize("seed", range(25))
def test_lagging_selectors_never_sell_a_slot_twice_and_find_every_free_one(seed: int) -> None:
    chance = random.Random(seed)
    limits = {f"n{index}": chance.randint(1, 4) for index in range(NODES)}
    truth = Truth(limits)
    tables = [NodeTable(nodes_max=NODES) for _ in range(SELECTORS)]
    snapshots: list[list[tuple[int, dict[str, int]]]] = [[] for _ in tables]  # on their way, in any order
    for table in tables:
        for node_id, limit in limits.items():
            table.apply(0, 1, node_id, 0, NOW_MS, facts(max_jobs=limit))
    asked: list[str] = []
    running: list[str] = []
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
    for node_id, held in truth.leases.items():
        table.apply(0, truth.version, node_id, len(held), NOW_MS, None)
    free = sum(limits.values()) - sum(map(len, truth.leases.values()))
    refused = place(truth, table, [job(request_id=f"last-{index}") for index in range(free + 5)])
    assert len(refused) == 5, f"seed {seed}"
    assert Counter({node: len(held) for node, held in truth.leases.items()}) == Counter(limits), f"seed {seed}"
