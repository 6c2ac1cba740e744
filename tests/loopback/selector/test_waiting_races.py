"""Requests that wait while slots come free by other ways: none is refused for good, and none waits beside a free slot.

A pass of the wait queue would find them after 250 ms in any case; here it must be woken at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from lua.engine.runner import Runner
from lua.store.types.jobs import Advance, Release
from mesh.config import Config
from mesh.frames import Assign, Refused, Undone
from tests.loopback.selector.test_burst import EDGE, Selecting, config, dispatch
from tests.loopback.selector.test_turnover import World, world
from tests.support.builders.selector import CAPS
from tests.support.builders.store import beat

__all__ = ["config", "world"]


def is_woken(world: World) -> bool:
    return world.selecting.placer.wait_queue._wake.is_set()


def refusals(world: World) -> list[Refused]:
    return [frame for frame in world.selecting.sent if isinstance(frame, Refused)]


def answer_late(world: World, before: Callable[[], Awaitable[Any]] | None, after: Callable[[], Awaitable[Any]]) -> None:
    """Have something happen before Redis commits, or before its answer is known."""
    commits = world.selecting.context.store.commits
    commit = commits.commit

    async def slower(requests: Any) -> Any:
        if before is not None:
            await before()
        answers = await commit(requests)
        await after()
        return answers

    commits.commit = slower  # type: ignore[method-assign]


async def nothing() -> None:
    """Nothing happens."""


async def add_node(world: World, node_id: str, **caps: Any) -> int:
    registered = await world.store.nodes.register(node_id, EDGE, msgspec.structs.replace(CAPS, **caps), [])
    await beat(world.store, node_id, registered.epoch, edge=EDGE)
    return registered.epoch


async def add_node_of_another_language(world: World) -> None:
    """None of these requests can ever use it: where all nodes are like it, waiting is hopeless."""
    await add_node(world, "node-x", asr_langs=["ja"], semantic_langs=["ja"])
    await world.selecting.snapshot.refresh_anew()


@asynccontextmanager
async def another_selector(config: Config) -> AsyncIterator[Selecting]:
    other = Selecting(await Runner.connect(config.redis), config)
    try:
        await other.snapshot.refresh()
        yield other
    finally:
        await other.runner.close()


async def end(world: World, job: Assign) -> None:
    """End a job past the selector, as another one does."""
    await world.store.jobs.advance([Advance(job.job_id, 1, job.node_id, "finish release")])


# --- refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [(1,)], indirect=True)
async def test_request_whose_slot_another_selector_took_goes_on_waiting(world: World, config: Config) -> None:
    await add_node_of_another_language(world)
    await world.place("r-1")
    [running] = world.assigned()
    await world.place("w-1")
    async with another_selector(config) as other:
        await end(world, running)
        await other.snapshot.refresh_anew()
        await other.placer.place([dispatch("x-1")])
        assert [frame.request_id for frame in other.sent if isinstance(frame, Assign)] == ["x-1"]
    await world.finish(running)
    assert (refusals(world), world.waiting) == ([], ["w-1"])


@pytest.mark.parametrize("world", [(1,)], indirect=True)
async def test_request_that_redis_gave_no_answer_for_goes_on_waiting(world: World) -> None:
    await add_node_of_another_language(world)
    await world.place("r-1")
    [running] = world.assigned()
    await world.place("w-1")
    await world.selecting.runner.close()
    await world.finish(running)
    assert (refusals(world), world.waiting) == ([], ["w-1"])


@pytest.mark.parametrize("world", [(1,)], indirect=True)
async def test_request_behind_one_that_redis_gave_no_answer_for_waits_too(world: World) -> None:
    await add_node_of_another_language(world)
    await world.place("r-1")
    [running] = world.assigned()
    await world.place("w-1")
    await end(world, running)
    await world.selecting.snapshot.refresh_anew()
    await world.selecting.runner.close()
    await world.selecting.placer.wait_queue._pass()
    await world.place("w-2")
    assert (refusals(world), world.waiting) == ([], ["w-1", "w-2"])


@pytest.mark.parametrize("world", [(1, 1)], indirect=True)
async def test_request_that_is_chosen_for_and_has_no_call_goes_on_waiting(world: World) -> None:
    await add_node_of_another_language(world)
    await world.place("r-1", "r-2")
    one, other = world.assigned()
    await world.place("w-1")
    await world.place("w-2", excluded=["node-z"])
    await end(world, other)
    await world.selecting.snapshot.refresh_anew()
    await world.finish(one)
    assert refusals(world) == []


@pytest.mark.parametrize("world", [(1,)], indirect=True)
async def test_request_that_arrives_during_a_turnover_waits(world: World) -> None:
    await add_node_of_another_language(world)
    await world.place("r-1")
    [running] = world.assigned()
    await world.place("w-1")
    await asyncio.gather(world.finish(running), world.place("w-2"))
    assert (refusals(world), world.waiting) == ([], ["w-2"])


@pytest.mark.parametrize("world", [(1, 1)], indirect=True)
async def test_request_behind_one_that_is_placed_before_it_enters_waits(world: World) -> None:
    await world.place("r-1", excluded=["node-1"])
    [running] = world.assigned()
    await world.place("w-1", excluded=["node-1"])
    ended = asyncio.create_task(world.finish(running))
    await asyncio.sleep(0)  # the turnover is under way

    async def wait_for_the_turnover() -> None:
        if asyncio.current_task() is not ended:  # on a cluster the turnover commits by a call of its own
            await ended

    answer_late(world, wait_for_the_turnover, nothing)
    await world.selecting.placer.place([dispatch("x-1", excluded=["node-0"]), dispatch("w-2", excluded=["node-1"])])
    assert (refusals(world), world.waiting) == ([], ["w-2"])


# --- slots ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [(1,)], indirect=True)
async def test_slot_of_a_request_that_is_bound_elsewhere_wakes_the_next(world: World, config: Config) -> None:
    await world.place("r-1")
    [running] = world.assigned()
    await world.place("w-1", "w-2")
    await add_node(world, "node-9")
    async with another_selector(config) as other:
        await other.placer.place([dispatch("w-1", resend=1)])
        assert [frame.request_id for frame in other.sent if isinstance(frame, Assign)] == ["w-1"]
    world.selecting.placer.wait_queue._wake.clear()
    await world.finish(running)
    assert world.waiting == ["w-2"] and world.used()["node-0"] == 0 and is_woken(world)


@pytest.mark.parametrize("world", [(1, 1)], indirect=True)
async def test_two_turnovers_at_once_leave_nobody_waiting(world: World) -> None:
    await world.place("r-1", "r-2")
    one, other = world.assigned()
    await world.place("w-1", "w-2")
    world.selecting.placer.wait_queue._wake.clear()
    await asyncio.gather(world.finish(one), world.finish(other))
    assert not world.waiting or is_woken(world)


@pytest.mark.parametrize("world", [(1,)], indirect=True)
async def test_slot_of_a_request_that_is_cancelled_in_a_turnover_wakes_the_next(world: World) -> None:
    await world.place("r-1")
    [running] = world.assigned()
    await world.place("w-1", "w-2")
    world.selecting.placer.wait_queue._wake.clear()
    ended = asyncio.create_task(world.finish(running))
    await asyncio.sleep(0)
    world.selecting.placer.cancel("w-1", 1, 10**18)
    await ended
    assert world.waiting == ["w-2"] and world.used()["node-0"] == 0 and is_woken(world)


@pytest.mark.parametrize("world", [(1, 1, 1)], indirect=True)
async def test_slot_that_comes_free_between_choice_and_entry_wakes_the_queue(world: World) -> None:
    await world.place("r-0", excluded=["node-1", "node-2"])
    await world.place("r-1", excluded=["node-0", "node-2"])
    _, running = world.assigned()
    await world.place("w-0", excluded=["node-1", "node-2"])
    world.selecting.placer.wait_queue._wake.clear()
    answer_late(world, None, lambda: world.finish(running))
    batch = [dispatch("x-1", excluded=["node-0", "node-1"]), dispatch("w-1", excluded=["node-0", "node-2"])]
    await world.selecting.placer.place(batch)
    assert world.waiting == ["w-0", "w-1"] and world.used()["node-1"] == 0 and is_woken(world)


@pytest.mark.parametrize("world", [(1,)], indirect=True)
async def test_resend_of_a_waiting_request_is_looked_up(world: World, config: Config) -> None:
    """Another selector placed it and released it again: its edge must begin the next attempt."""
    await world.place("r-1")
    world.assigned()
    await world.place("w-1")
    epoch = await add_node(world, "node-9")
    async with another_selector(config) as other:
        await other.placer.place([dispatch("w-1", resend=1)])
        [placed] = [frame for frame in other.sent if isinstance(frame, Assign)]
        await other.context.store.jobs.release(Release(placed.job_id, 1, placed.node_id, "unroutable"))
        await world.store.nodes.set_offline("node-9", epoch, "gone")
    await world.place("w-1", resend=2)
    assert any(isinstance(frame, Undone) for frame in world.selecting.sent)


# --- loads ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [(2, 1)], indirect=True)
async def test_two_ends_of_one_job_release_one_slot(world: World) -> None:
    await world.place("r-0", excluded=["node-0"])
    await world.place("r-1", "r-2", excluded=["node-1"])
    _, one, _ = world.assigned()
    await world.place("other", excluded=["node-0"])
    await world.finish(one, one)
    assert world.used() == {"node-0": 1, "node-1": 1}
    await world.check_ledger()
    await world.place("new", excluded=["node-1"])
    assert "new" not in world.waiting


@pytest.mark.parametrize("world", [(2, 1)], indirect=True)
async def test_repeated_end_during_a_snapshot_leaves_no_wrong_load(world: World) -> None:
    await world.place("r-0", excluded=["node-0"])
    await world.place("r-1", "r-2", excluded=["node-1"])
    _, one, other = world.assigned()
    await world.place("other", excluded=["node-0"])
    await world.finish(one)
    await end(world, other)
    refresh = asyncio.create_task(world.selecting.snapshot.refresh())
    for _ in range(3):
        await asyncio.sleep(0)  # the snapshot is under way
    await asyncio.gather(refresh, world.finish(one))
    await world.selecting.snapshot.refresh_anew()
    assert world.used() == {"node-0": 0, "node-1": 1}
