"""A table that never stands still, and what is chosen from it: for tests of recordings and of running them again."""

from __future__ import annotations

import random

from mesh.config.scheduler import PoolsConfig
from mesh.config.weights import Weights
from mesh.frames import Dispatch, NodeLoad
from mesh.states.speed import Speed
from selector.core.job_rows import job_rows
from selector.core.kernel import NO_ROW, Choice, Rules, choose
from selector.core.node_table import NodeTable
from selector.core.pools import PoolPlan
from selector.operators.core.recorder import Batch, Recorder, Recording
from tests.support.builders.selector import NOW_MS, caps, facts, job

PLENTY = 1 << 40
PLAN = PoolPlan(PoolsConfig(enabled=True, pool_count=4))
PLAN_ANYWHERE = PoolPlan(PoolsConfig())
LANGUAGES = ["en", "zh", "es", "de", "fr"]


def rules_at(now_ms: int, weights: Weights) -> Rules:
    return Rules.of(
        weights,
        now_ms=now_ms,
        heartbeat_timeout_ms=45_000,
        heartbeat_interval_ms=15_000,
        running_fresh_ms=2_000,
        resource_threshold_percent=85.0,
        reconnect_grace_ms=3_000,
        compared_max=32,
    )


class World:
    """A table that changes by itself, and a recorder that listens to what is chosen."""

    def __init__(self, seed: int, *, jobs_max: int = 1_000_000, bytes_max: int = PLENTY) -> None:
        self.chance = random.Random(seed)
        self.table = NodeTable(nodes_max=200)
        self.recorder = Recorder(jobs_max, bytes_max)
        self.choices: list[Choice] = []
        self.now_ms = NOW_MS
        self.version = 1
        self.names = 0
        self.weights = Weights()
        for _ in range(40):
            self._join()

    def _join(self) -> None:
        node_id = f"n-{self.names}"
        self.names += 1
        self._say(node_id)

    def _say(self, node_id: str) -> None:
        chance = self.chance
        its_caps = caps(max_jobs=chance.randint(1, 6), asr_langs=chance.sample(LANGUAGES, 3), semantic_langs=LANGUAGES)
        load = NodeLoad(chance.uniform(0, 95), chance.uniform(0, 60), chance.uniform(0, 60), chance.randint(0, 2))
        its_facts = facts(status=chance.choice(["ready"] * 8 + ["draining", "degraded"]), load=load)
        its_facts = its_facts._replace(
            caps=its_caps,
            pools=PLAN.home_of(node_id, its_caps),
            detached_ms=chance.choice([0] * 9 + [self.now_ms - 500]),
        )
        self.version += 1
        used = chance.randint(0, 3)
        self.table.apply(0, self.version, node_id, used, self.now_ms - chance.randint(0, 20_000), its_facts)

    def live(self) -> None:
        """Something happens to some node."""
        chance, table = self.chance, self.table
        self.now_ms += chance.randint(1, 200)
        self.version += 1
        node_id = chance.choice(table.ids())
        event = chance.randrange(9)
        if event == 0:
            self._join()
        elif event == 1 and len(table) > 20:
            table.apply(0, self.version, node_id, -1, 0, None)
        elif event == 2:
            self._say(node_id)
        elif event == 3:
            table.patch(node_id, chance.randint(0, 4), self.version)
        elif event == 4:
            pairs = ["*", "en>es", "zh>de", "fr>en"]
            table.set_speeds(node_id, {pair: Speed(chance.uniform(0.1, 2), 0.1, 5, self.now_ms) for pair in pairs})
        elif event == 5:
            table.set_marks(node_id, {"asr": self.now_ms + 300})
        elif event == 6:
            table.expire_marks(self.now_ms)
        elif event == 7:
            speed = Speed(chance.uniform(0.1, 2), 0.1, 5, self.now_ms)
            table.learn_speeds(node_id, {"*": speed, chance.choice(["en>es", "de>en"]): speed})
        else:
            table.avoid_edge("edge:b:1" if chance.random() < 0.1 else "edge:c:1", self.now_ms + 100)

    def jobs(self, count: int) -> list[Dispatch]:
        chance, ids = self.chance, self.table.ids()
        return [
            job(
                request_id=f"r-{chance.getrandbits(48)}",
                session_id=f"s-{chance.randrange(100)}",
                src_lang=chance.choice([*LANGUAGES, "auto"]),
                tgt_lang=chance.choice(LANGUAGES),
                audio_ms=chance.randint(100, 8_000),
                excluded=chance.sample(ids, chance.randint(0, 2)),
                warm_node=chance.choice(ids),
                preferred_node=chance.choice(["", *ids]),
            )
            for _ in range(count)
        ]

    def choose(self, count: int) -> Batch:
        table, rules = self.table, rules_at(self.now_ms, self.weights)
        for node_id in self.chance.sample(table.ids(), 18):  # jobs end
            self.version += 1
            table.patch(node_id, self.chance.randint(0, 2), self.version)
        rows, prior = job_rows(self.jobs(count), table, PLAN), table.speeds.prior()
        choice = choose(table.columns, table.index(), rows, prior, rules, 3)
        self.choices.append(choice)
        batch = self.recorder.note(
            table, rows, prior, rules, choice, at_ms=self.now_ms, weights=self.weights, weights_version=7
        )
        for row in choice.rows[:, 0].tolist():  # what the commits say
            if row != NO_ROW:
                self.version += 1
                table.patch(table.id_of(row), int(table.columns.used[row]) + 1, self.version)
        return batch

    def taken(self) -> Recording:
        recording = self.recorder.taken()
        assert recording is not None
        return recording


def lived(seed: int, batches: int, per_batch: int, **bounds: int) -> World:
    world = World(seed, **bounds)
    for _ in range(batches):
        for _ in range(world.chance.randint(0, 4)):
            world.live()
        world.choose(per_batch)
        world.recorder.trim()
    world.table.check()
    return world
