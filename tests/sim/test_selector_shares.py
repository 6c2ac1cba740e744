"""Who gets how much of a steady stream of jobs, in simulated time: slow nodes, recovered ones, frozen heartbeats."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, deque

import pytest

from mesh.config.scheduler import SpeedConfig
from mesh.config.weights import Weights
from mesh.states.speed import ANY_PAIR, Speed, observe, ratio_of
from selector.core.kernel import NO_ROW
from selector.core.node_table import NodeTable
from tests.support.builders.selector import facts, job, pick, rules_of

SLOTS, AUDIO_MS, USUAL, JOBS_REMEMBERED = 4, 3_000, 0.3, 8
BEAT_MS = 5_000
SPEED, FAILS_AFTER_MS = SpeedConfig(), 20
PAIR = "en>es"


class Fleet:
    """Nodes that take `speed` times the audio for each job, and a selector that learns of it."""

    def __init__(self, nodes: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_ms = self.beaten_ms = 1_000_000
        self.table = NodeTable(nodes_max=nodes)
        self.speed = {f"n{index}": USUAL for index in range(nodes)}
        #: Nodes whose heartbeats are not heard any more.
        self.frozen: set[str] = set()
        #: Nodes that fail at once, whatever they are given.
        self.failing: set[str] = set()
        self.used = Counter[str]()
        self.ends: list[tuple[int, str, float]] = []
        self.known: dict[str, dict[str, Speed]] = {node_id: {} for node_id in self.speed}
        self.version = 1
        self.asked = 0
        for node_id in self.speed:
            self.table.apply(0, 1, node_id, 0, self.now_ms, facts(max_jobs=SLOTS))

    def _beat(self) -> None:
        self.beaten_ms = self.now_ms
        for node_id in self.speed:
            if node_id not in self.frozen:
                self.version += 1
                self.table.apply(0, self.version, node_id, self.used[node_id], self.now_ms, None)

    def job(self, gap_ms: float) -> str | None:
        """The next job, about so long after the last one; returns the node that got it."""
        self.now_ms += max(1, round(self.chance.expovariate(1 / gap_ms)))
        if self.now_ms - self.beaten_ms >= BEAT_MS:
            self._beat()
        while self.ends and self.ends[0][0] <= self.now_ms:
            self._end(*heapq.heappop(self.ends))
        self.asked += 1
        asked = job(request_id=f"r{self.asked}", audio_ms=AUDIO_MS)
        row = int(pick(self.table, asked, rules=rules_of(Weights(), self.now_ms), best=1).rows[0, 0])
        if row == NO_ROW:
            return None
        node_id = self.table.id_of(row)
        ratio = self.speed[node_id] * self.chance.uniform(0.8, 1.2)
        ends_ms = self.now_ms + round(ratio * AUDIO_MS)
        if node_id in self.failing:
            ends_ms = self.now_ms + FAILS_AFTER_MS
            ratio = ratio_of(FAILS_AFTER_MS, AUDIO_MS, SPEED.audio_ms_min, failed_ms=SPEED.failed_ms)
        heapq.heappush(self.ends, (ends_ms, node_id, ratio))
        self._use(node_id, 1)
        return node_id

    def _end(self, at_ms: int, node_id: str, ratio: float) -> None:
        self._use(node_id, -1)
        known = self.known[node_id]
        for pair in (PAIR, ANY_PAIR):
            known[pair] = observe(known.get(pair), ratio, at_ms, JOBS_REMEMBERED)
        self.table.set_speeds(node_id, known)

    def _use(self, node_id: str, change: int) -> None:
        self.used[node_id] += change
        self.version += 1
        self.table.patch(node_id, self.used[node_id], self.version)


def gap_for(nodes: int, part_used: float) -> float:
    """Between two jobs, so that this part of all slots is in use."""
    return USUAL * AUDIO_MS / (nodes * SLOTS * part_used)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("part_used", [0.1, 0.3, 0.6])
def test_a_node_three_times_slower_loses_its_share_within_twenty_jobs_and_gets_it_back(
    seed: int, part_used: float
) -> None:
    fleet = Fleet(nodes=8, seed=seed)
    gap_ms, window = gap_for(8, part_used), 160

    def shares(jobs: int) -> float:
        """Node n0's part of so many jobs, in units of a fair share."""
        got = Counter(fleet.job(gap_ms) for _ in range(jobs))
        return got["n0"] / jobs * 8

    for _ in range(5):
        shares(window)
    assert 0.6 < shares(400) < 1.4, f"seed {seed}: as much as anyone"

    fleet.speed["n0"] = 3 * USUAL
    slow_jobs, recent = 0, deque[bool](maxlen=window)
    while len(recent) < window or sum(recent) * 8 > window / 4:
        recent.append(fleet.job(gap_ms) == "n0")
        slow_jobs += recent[-1]
        assert slow_jobs <= 20, f"seed {seed}: still {sum(recent)} of the last {len(recent)}"
    for _ in range(5):
        assert shares(window) < 0.5, f"seed {seed}: it stays away"

    fleet.speed["n0"] = USUAL
    recovered_ms = fleet.now_ms
    while shares(window) < 0.6:
        assert fleet.now_ms - recovered_ms < 600_000, f"seed {seed}: not back after ten minutes"
    assert shares(400) > 0.6, f"seed {seed}: and stays"


@pytest.mark.parametrize("part_used", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_fails_at_once_does_not_draw_the_work_because_it_is_idle(seed: int, part_used: float) -> None:
    fleet = Fleet(nodes=8, seed=seed)
    gap_ms = gap_for(8, part_used)
    for _ in range(500):
        fleet.job(gap_ms)
    fleet.failing = {"n0"}
    got = Counter(fleet.job(gap_ms) for _ in range(800))
    assert got["n0"] < 40, f"seed {seed}: {got['n0']} of 800, a fair share is 100"
    fleet.failing = set()
    recovered_ms = fleet.now_ms
    while Counter(fleet.job(gap_ms) for _ in range(160))["n0"] < 12:
        assert fleet.now_ms - recovered_ms < 600_000, f"seed {seed}: not back after ten minutes"


@pytest.mark.parametrize("part_used", [0.3, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_frozen_heartbeats_of_half_the_fleet_shift_the_traffic_smoothly(seed: int, part_used: float) -> None:
    """Nothing new is heard of the frozen half: its share falls step by step, and every job finds a node."""
    fleet = Fleet(nodes=40, seed=seed)
    gap_ms, step_ms = gap_for(40, part_used), 2_000
    for _ in range(500):
        fleet.job(gap_ms)
    fleet.frozen = {f"n{index}" for index in range(20)}
    last_heard_ms = fleet.beaten_ms
    shares: list[float] = []
    while fleet.now_ms + step_ms < last_heard_ms + 45_000:
        until_ms = fleet.now_ms + step_ms
        got = Counter[bool]()
        while fleet.now_ms < until_ms:
            node_id = fleet.job(gap_ms)
            assert node_id is not None, f"seed {seed}: there are free slots"
            got[node_id in fleet.frozen] += 1
        shares.append(got[True] / got.total())
    first, last = sum(shares[:6]) / 6, sum(shares[-6:]) / 6
    assert 0.45 < first < 0.55 and 0.2 < last < first - 0.02, f"seed {seed}: {shares}"
    steps = [after - before for before, after in itertools.pairwise(shares)]
    assert all(abs(step) < 0.2 for step in steps), f"seed {seed}: no cliff in {shares}"
    # After the heartbeat time-out the frozen half is out of the game, and the other half takes it all.
    fleet.now_ms = max(fleet.now_ms, last_heard_ms + 45_000)
    taken = {fleet.job(gap_ms) for _ in range(100)}
    assert not taken & fleet.frozen and taken - {None}
