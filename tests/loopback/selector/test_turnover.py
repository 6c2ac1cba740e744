"""The end of a job gives its slot to a waiting request: in one call of a real Redis, in order, and never twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from lua.engine.runner import Runner
from lua.store import Store
from lua.store.types.jobs import Advance
from mesh.config import Config
from mesh.errors import StoreError
from mesh.frames import Assign
from mesh.keys import Keys
from selector.placement.turnover import SlotTurnover
from tests.loopback.selector.test_burst import EDGE, Selecting, config, dispatch
from tests.support.builders.selector import CAPS
from tests.support.builders.store import beat

__all__ = ["config"]


class World:
    """A selector with few slots, its turnover, and the scripts that it called."""

    def __init__(self, selecting: Selecting, store: Store, settings: Config) -> None:
        self.selecting = selecting
        self.store = store
        self.turnover = SlotTurnover(selecting.context, selecting.placer)
        self.scripts: list[str] = []
        call_many = selecting.runner.call_many

        async def noted(script: str, calls: list[Any]) -> list[Any]:
            self.scripts.append(script)
            return await call_many(script, calls)

        selecting.runner.call_many = noted  # type: ignore[method-assign,assignment]

    @property
    def waiting(self) -> list[str]:
        return list(self.selecting.placer.wait_queue.queued)

    def used(self) -> dict[str, int]:
        table = self.selecting.table
        return {node_id: table.used_of(node_id) for node_id in sorted(table.ids())}

    async def place(self, *requests: str, **changes: Any) -> None:
        await self.selecting.placer.place([dispatch(request, **changes) for request in requests])

    def assigned(self) -> list[Assign]:
        found = [frame for frame in self.selecting.sent if isinstance(frame, Assign)]
        self.selecting.sent.clear()
        self.scripts.clear()
        return found

    async def finish(self, *jobs: Assign, attempt: int = 1) -> list[Any]:
        ends = [Advance(job.job_id, attempt, job.node_id, "finish release") for job in jobs]
        return await self.turnover.finish(ends)

    async def check_ledger(self) -> None:
        """The table is what Redis says."""
        before = self.used()
        await self.selecting.snapshot.refresh_anew()
        assert self.used() == before


@pytest.fixture
async def world(request: pytest.FixtureRequest, config: Config) -> AsyncIterator[World]:
    """`request.param`: slots of each node."""
    selecting = Selecting(await Runner.connect(config.redis), config)
    store = Store(selecting.runner, Keys(), config)
    for number, slots in enumerate(request.param):
        node_id = f"node-{number}"
        caps = msgspec.structs.replace(CAPS, max_jobs=slots)
        registered = await store.nodes.register(node_id, EDGE, caps, [])
        assert (await beat(store, node_id, registered.epoch, edge=EDGE)).status == "ready"
    await selecting.snapshot.refresh()
    yield World(selecting, store, config)
    await selecting.runner.close()


@pytest.mark.parametrize("world", [(1, 1)], indirect=True)
async def test_freed_slots_go_to_the_waiting_in_order_and_in_the_same_call(world: World, config: Config) -> None:
    await world.place("r-1", "r-2")
    running = world.assigned()
    await world.place("r-3", "r-4", "r-5")
    assert world.waiting == ["r-3", "r-4", "r-5"] and world.scripts == [], "no selector can have placed them"
    await world.finish(*running)
    if not config.redis.cluster:
        assert world.scripts == ["job_turnover"]
    placed = world.assigned()
    assert {one.request_id for one in placed} == {"r-3", "r-4"}
    assert {one.node_id for one in placed} == {"node-0", "node-1"}
    assert world.waiting == ["r-5"] and world.used() == {"node-0": 1, "node-1": 1}
    await world.finish(placed[0])
    [last] = world.assigned()
    assert (last.request_id, last.node_id, world.waiting) == ("r-5", placed[0].node_id, [])
    await world.check_ledger()


@pytest.mark.parametrize("world", [(4,)], indirect=True)
async def test_several_slots_of_one_node_turn_over_at_once(world: World) -> None:
    await world.place(*(f"r-{number}" for number in range(4)))
    running = world.assigned()
    await world.place(*(f"w-{number}" for number in range(4)))
    await world.finish(*running[:3])
    placed = [one.request_id for one in world.assigned()]
    assert placed == ["w-0", "w-1", "w-2"] and world.waiting == ["w-3"] and world.used() == {"node-0": 4}
    await world.check_ledger()


@pytest.mark.parametrize("world", [(1,)], indirect=True)
async def test_fenced_end_frees_no_slot(world: World) -> None:
    await world.place("r-1")
    [running] = world.assigned()
    await world.place("r-2")
    [answer] = await world.finish(running, attempt=7)
    assert answer.verdict == "fenced"
    assert world.assigned() == [] and world.waiting == ["r-2"] and world.used() == {"node-0": 1}
    await world.check_ledger()
    await world.finish(running)
    assert [one.request_id for one in world.assigned()] == ["r-2"]


@pytest.mark.parametrize("world", [(1,)], indirect=True)
async def test_repeated_end_sells_the_slot_once(world: World) -> None:
    await world.place("r-1")
    [running] = world.assigned()
    await world.place("r-2", "r-3")
    await asyncio.gather(world.finish(running), world.finish(running))
    assert [one.request_id for one in world.assigned()] == ["r-2"]
    assert world.waiting == ["r-3"] and world.used() == {"node-0": 1}
    await world.check_ledger()


@pytest.mark.parametrize("world", [(1, 1)], indirect=True)
async def test_slot_that_another_selector_took_leaves_the_request_waiting(world: World, config: Config) -> None:
    await world.place("r-1", "r-2")
    running = world.assigned()
    await world.place("r-3")
    other = Selecting(await Runner.connect(config.redis), config)
    try:
        await other.snapshot.refresh()
        assert not isinstance(
            (
                await other.context.store.jobs.advance(
                    [Advance(running[0].job_id, 1, running[0].node_id, "finish release")]
                )
            )[0],
            StoreError,
        )
        await other.snapshot.refresh_anew()
        await other.placer.place([dispatch("x-1")])
        assert [frame.request_id for frame in other.sent if isinstance(frame, Assign)] == ["x-1"]
        await world.finish(running[0])
        assert world.assigned() == [] and world.waiting == ["r-3"]
    finally:
        await other.runner.close()
    await world.finish(running[1])
    assert [one.request_id for one in world.assigned()] == ["r-3"]


@pytest.mark.parametrize("world", [(1,)], indirect=True)
async def test_request_that_the_node_cannot_do_keeps_nobody_from_the_slot(world: World) -> None:
    await world.place("r-1")
    [running] = world.assigned()
    await world.place("other", excluded=["node-0"], tenant_id="t")
    await world.place("r-2")
    await world.finish(running)
    assert [one.request_id for one in world.assigned()] == ["r-2"]


@pytest.mark.parametrize("world", [(1,)], indirect=True)
async def test_without_redis_the_slot_stays_in_use_and_the_request_waits(world: World) -> None:
    await world.place("r-1")
    [running] = world.assigned()
    await world.place("r-2")
    await world.selecting.runner.close()
    [answer] = await world.finish(running)
    assert isinstance(answer, StoreError)
    assert world.assigned() == [] and world.waiting == ["r-2"] and world.used() == {"node-0": 1}
