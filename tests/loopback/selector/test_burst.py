"""Several selectors, each with its own view of the nodes, get a burst at the same moment; one real Redis decides."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lua.engine.runner import Runner
from lua.store import Store
from lua.store.types.jobs import Release
from mesh.config import Config
from mesh.config.jobs import JobConfig
from mesh.config.network import RedisConfig
from mesh.frames import Assign, Frame, Head, Refused, Waiting
from mesh.keys import Keys
from mesh.link.link import Received
from selector.context import SelectorContext
from selector.core.node_table import NodeTable
from selector.fleet.snapshot import Snapshot
from selector.metrics import SelectorMetrics
from selector.operators.decision_log import DecisionLog
from selector.placement.placer import Placer
from selector.placement.weights import CurrentWeights
from tests.support.builders.selector import CAPS, job
from tests.support.builders.store import beat
from tests.support.conditions import DEADLINE_S

NODES = 100
EDGE = "edge:b:1"


class Selecting:
    """A selector without its link: what it would send is kept."""

    def __init__(self, runner: Runner, config: Config) -> None:
        self.runner = runner
        self.sent: list[Frame] = []
        metrics = SelectorMetrics()
        store = Store(runner, Keys(), config)
        self.table = NodeTable(config.selector.nodes_max)
        self.snapshot = Snapshot(store, self.table, config, metrics, lambda *_: None, self._on_changed)
        self.decisions = DecisionLog(config)
        self.context = SelectorContext.of(store, config, metrics, self._send, self.table, self.snapshot)
        self.placer = Placer(self.context, CurrentWeights(store, config, metrics), self.decisions)

    def _on_changed(self) -> None:
        self.placer.wait_queue.slots_freed()

    def _send(self, to: str, cell: int, frame: Frame, *payload: bytes, **_: Any) -> str:
        self.sent.append(frame)
        return "broker"


@pytest.fixture(params=["server", "cluster"])
def config(request: pytest.FixtureRequest) -> Config:
    place = request.getfixturevalue(f"redis_{request.param}")
    return Config(
        redis=RedisConfig(url=place.url, cluster=request.param == "cluster", timeout_ms=10_000),
        job=JobConfig(pending_timeout_ms=60_000),
    )


@pytest.fixture
async def selectors(request: pytest.FixtureRequest, config: Config) -> AsyncIterator[list[Selecting]]:
    made = [Selecting(await Runner.connect(config.redis), config) for _ in range(request.param)]
    store = Store(made[0].runner, Keys(), config)
    await asyncio.gather(*(_make_ready(store, f"node-{index}") for index in range(NODES)))
    await asyncio.gather(*(one.snapshot.refresh() for one in made))
    assert all(len(one.table) == NODES for one in made)
    yield made
    await asyncio.gather(*(one.runner.close() for one in made))


async def _make_ready(store: Store, node_id: str) -> None:
    registered = await store.nodes.register(node_id, EDGE, CAPS, [])
    assert (await beat(store, node_id, registered.epoch, edge=EDGE)).status == "ready"


def dispatch(request_id: str, **changes: Any) -> Received:
    frame = job(request_id=request_id, session_id=f"s-{request_id}", deadline_ms=0, **changes)
    return Received(Head(1, "", 0, "edge:a:1", 0), frame, [b"work", b"audio"], "broker")


async def burst(selectors: list[Selecting], seed: int, jobs: int = NODES) -> Counter[str]:
    """All at once, dealt out as a broker might; who got how many."""
    hands: list[list[Received]] = [[] for _ in selectors]
    for number in range(jobs):
        hands[(number * 7 + seed) % len(selectors)].append(dispatch(f"r-{seed}-{number}"))
    await asyncio.gather(
        *(selector.placer.place(hand) for selector, hand in zip(selectors, hands, strict=True) if hand)
    )
    sent = [frame for selector in selectors for frame in selector.sent]
    assert not any(isinstance(frame, Refused | Waiting) for frame in sent)
    return Counter(frame.node_id for frame in sent if isinstance(frame, Assign))


async def clear(selectors: list[Selecting], config: Config) -> None:
    """All jobs end."""
    store = Store(selectors[0].runner, Keys(), config)
    for selector in selectors:
        for frame in selector.sent:
            if isinstance(frame, Assign):
                await store.jobs.release(Release(frame.job_id, frame.attempt, frame.node_id, "done"))
        selector.sent.clear()
    await asyncio.gather(*(selector.snapshot.refresh_anew() for selector in selectors))


@pytest.mark.parametrize("selectors", [1, 4, 8], indirect=True)
async def test_a_burst_gives_every_equal_node_one_job(selectors: list[Selecting], config: Config) -> None:
    for seed in range(5):
        placed = await burst(selectors, seed)
        assert placed.total() == NODES
        assert max(placed.values()) == 1, f"seed {seed}: {placed.most_common(5)}"
        await clear(selectors, config)


@pytest.mark.parametrize("selectors", [8], indirect=True)
async def test_three_bursts_on_one_another_fill_the_nodes_evenly(selectors: list[Selecting], config: Config) -> None:
    for seed in range(3):
        placed = await burst(selectors, seed)
        assert placed.total() == NODES * (seed + 1)
        assert max(placed.values()) <= 1.5 * (seed + 1)


@contextlib.asynccontextmanager
async def at_work(selectors: list[Selecting]) -> AsyncIterator[None]:
    """Their snapshots and lines are looked after."""
    work = [(one.snapshot.run(), one.placer.wait_queue.run()) for one in selectors]
    tasks = [asyncio.create_task(each) for both in work for each in both]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*tasks, return_exceptions=True)
        )


@pytest.mark.parametrize("selectors", [4], indirect=True)
async def test_many_more_jobs_than_slots_are_all_served_once(selectors: list[Selecting], config: Config) -> None:
    """All nodes but three are gone; each has four slots. Nobody is refused, nothing is sold twice."""
    store = Store(selectors[0].runner, Keys(), config)
    left = [f"node-{index}" for index in range(3)]
    for node_id in selectors[0].table.ids():
        if node_id not in left:
            facts = selectors[0].table.facts_of(node_id)
            assert facts is not None and await store.nodes.set_offline(node_id, facts.epoch, "test")
    await asyncio.gather(*(one.snapshot.refresh_anew() for one in selectors))
    jobs: dict[str, Assign] = {}
    running: set[str] = set()
    async with at_work(selectors), asyncio.timeout(DEADLINE_S):
        hands = [[dispatch(f"r-{hand}-{number}") for number in range(50)] for hand in range(4)]
        await asyncio.gather(*(one.placer.place(hand) for one, hand in zip(selectors, hands, strict=True)))
        while len(jobs) < 200:
            for one in selectors:
                sent, one.sent = one.sent, []
                assert not any(isinstance(frame, Refused) for frame in sent)
                for frame in sent:
                    if isinstance(frame, Assign) and frame.job_id not in jobs:
                        jobs[frame.job_id] = frame
                        running.add(frame.job_id)
            assert len(running) <= 12
            for job_id in list(running):
                frame = jobs[job_id]
                running.remove(job_id)
                await store.jobs.release(Release(frame.job_id, frame.attempt, frame.node_id, "done"))
            await asyncio.sleep(0.005)
    assert len({frame.request_id for frame in jobs.values()}) == 200
    assert not any(len(one.placer.wait_queue._queue) for one in selectors)
