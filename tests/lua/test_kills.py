"""A thousand processes die in the middle of jobs, at any call to Redis, before or after it arrives.

Nodes, and the edges that hold their sockets, know what runs; heartbeats say so. While processes die no slot is sold
twice. After them, two heartbeats set every slot right.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pytest

from lua.engine.batch import Answer
from lua.engine.runner import Call, Runner
from lua.store import Store
from lua.store.types.commits import Committed
from lua.store.types.jobs import Release
from lua.store.types.nodes import Heartbeat, HeartbeatReply
from mesh.cells import cell_of
from mesh.config import Config
from mesh.config.jobs import JobConfig, NodeConfig
from mesh.config.network import RedisConfig
from mesh.frames import NodeLoad
from mesh.keys import Keys, lease_member
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS, EDGE, advance_job, node_changes, register, request, sampled
from tests.support.reference.redis_time import pass_time

KILLS = 1_000
ROUNDS = 20
PROCESSES = 8
MAX_JOBS = 3
NODES = [f"node-{n}" for n in range(20)]
#: Longer than a round takes on a busy machine: no slot lapses in the middle of one.
PROVISIONAL_MS = 100_000
#: Longer than any slot is young or provisional.
LATER_MS = PROVISIONAL_MS + 1_000
SEED = 20_261_116


class Killed(Exception):
    """The process is dead; whatever it was about to do is not done."""


class MortalRunner:
    """A process's way to Redis. It may die at any call: the call is lost, or its answer is."""

    def __init__(self, runner: Runner, dice: random.Random, chance: float) -> None:
        self._runner, self._dice, self._chance = runner, dice, chance
        self.is_cluster = runner.is_cluster
        self.same_slot = runner.same_slot
        self.check_order = runner.check_order

    async def call(self, script: str, keys: list[str], args: dict[str, Any]) -> list[Any]:
        [answer] = await self.call_many(script, [Call(keys, args)])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def call_many(self, script: str, calls: list[Call]) -> list[Answer]:
        dies = self._dice.random() < self._chance
        if dies and self._dice.random() < 0.5:
            raise Killed
        answers = await self._runner.call_many(script, calls)
        if dies:
            raise Killed
        return answers


class World:
    """What truly runs, and who is in force."""

    def __init__(self) -> None:
        self.running: dict[str, set[str]] = {node_id: set() for node_id in NODES}
        self.epochs: dict[str, int] = {}
        self.kills = 0
        self.placed = 0
        self.names = iter(range(1_000_000))

    def start(self, job: Committed) -> str:
        member = lease_member(job.job_id, job.attempt)
        self.running[job.node_id].add(member)
        assert len(self.running[job.node_id]) <= MAX_JOBS, "a slot was sold twice"
        return member


async def live(store: Store, world: World, dice: random.Random) -> None:
    """One process and the jobs that it places, until it is killed."""
    while True:
        name = f"r-{next(world.names)}"
        asked = request(name, dice.sample(NODES, 3), session_id=f"s-{name}")
        [job] = await store.commits.commit([asked._replace(expected=[dice.choice([-1, 0, 1]) for _ in range(3)])])
        if job.verdict != "new":
            assert job.verdict == "full", job
            await heartbeats(store, world, dice.sample(NODES, 2))
            continue
        world.placed += 1
        member = world.start(job)
        if dice.random() < 0.5:
            await advance_job(store, job.job_id, 1, job.node_id, "dispatch accept start")
        if dice.random() < 0.2:
            continue  # it runs on
        world.running[job.node_id].discard(member)
        if dice.random() < 0.5:
            await advance_job(store, job.job_id, 1, job.node_id, "finish release")
        else:
            await store.jobs.release(Release(job.job_id, 1, job.node_id, "cancelled"))


async def heartbeats(store: Store, world: World, nodes: list[str]) -> list[HeartbeatReply]:
    beats = [
        Heartbeat(node, EDGE, world.epochs[node], NodeLoad(), True, tuple(sorted(world.running[node])))
        for node in nodes
    ]
    beaten = await store.nodes.heartbeat_many(beats)
    assert all(isinstance(one, HeartbeatReply) and one.verdict == "ok" for one in beaten), beaten
    return cast(list[HeartbeatReply], beaten)


async def a_round(runner: Runner, keys: Keys, config: Config, world: World, number: int) -> None:
    async def process(place: int) -> None:
        dice = random.Random(SEED + 1_000 * number + place)
        mine = Store(cast(Runner, MortalRunner(runner, dice, 0.1)), keys, config)
        while world.kills < (number + 1) * KILLS // ROUNDS:
            try:
                await live(mine, world, dice)
            except Killed:
                world.kills += 1

    await asyncio.gather(*(process(place) for place in range(PROCESSES)))


def leases_of(raw: RedisClient, keys: Keys, node_id: str) -> set[str]:
    return {member.decode() for member in raw.zrange(keys.leases(cell_of(node_id, CELLS), node_id), 0, -1)}


@pytest.fixture
def config(redis_config: RedisConfig) -> Config:
    job = JobConfig(lease_ms=4 * PROVISIONAL_MS, provisional_lease_ms=PROVISIONAL_MS)
    return Config(redis=redis_config, node=NodeConfig(heartbeat_timeout_ms=4 * PROVISIONAL_MS), job=job)


async def test_a_thousand_kills_leak_nothing(
    runner: Runner, store: Store, config: Config, raw: RedisClient, keys: Keys
) -> None:
    world, dice = World(), random.Random(SEED)
    for node_id in NODES:
        world.epochs[node_id] = (await register(store, node_id, MAX_JOBS)).epoch
    drift = missing = 0
    for number in range(ROUNDS):
        with sampled(raw, keys, NODES) as seen:
            await a_round(runner, keys, config, world, number)
        assert seen[1] and seen[0] <= MAX_JOBS, "used <= max at all times"
        for node_id in dice.sample(NODES, 5):  # nodes and their edges die too, some with their jobs
            if dice.random() < 0.5:
                world.running[node_id].clear()
            world.epochs[node_id] = (await register(store, node_id, MAX_JOBS)).epoch
        drift += sum(len(leases_of(raw, keys, node_id) ^ world.running[node_id]) for node_id in NODES)
        for _ in range(2):
            for node_id in NODES:
                pass_time(raw, keys, node_id, LATER_MS)
            for beaten in await heartbeats(store, world, NODES):
                assert beaten.used <= MAX_JOBS
                missing += beaten.missing
        for node_id in NODES:
            assert leases_of(raw, keys, node_id) == world.running[node_id], f"drift after round {number}"
        for node_id in NODES:  # what runs on finishes, or the next round finds no room
            for member in sorted(world.running[node_id]):
                job_id, _, attempt = member.rpartition("#")
                await advance_job(store, job_id, int(attempt), node_id, "finish release")
            world.running[node_id].clear()
    assert world.kills >= KILLS and world.placed > KILLS
    assert drift > KILLS / 5, "there was something to repair"
    if config.redis.cluster:
        assert missing > 0, "both ways"
    for cell in range(CELLS):
        assert all(row.used == 0 for row in (await node_changes(store, cell, 0, 1_000)).rows)
