from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from mesh.frames import Frame, Head, JobEvent
from mesh.frames import Lane as WireLane
from mesh.link.link import Received
from selector.lanes import TaskLane
from tests.support.conditions import DEADLINE_S


def message(number: int) -> Received:
    head = Head(WireLane.WORK, "", 0, "edge:a:1", 0)
    frame: Frame = JobEvent(f"job-00-{number}", 1, "n", "start")
    return Received(head, frame, [], "broker")


async def until_idle(lane: TaskLane, work: asyncio.Task[None]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await lane.idle.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_lane_handles_batches_in_order_and_returns_every_message() -> None:
    batches: list[list[Received]] = []
    given_back: list[Received] = []

    async def handle(batch: list[Received]) -> None:
        batches.append(batch)

    def done(messages: Iterable[Received]) -> None:
        given_back.extend(messages)

    lane = TaskLane("test", handle, done, batch=4, bound=100)
    messages = [message(number) for number in range(10)]
    assert all(lane.put(one, arrived_us) for arrived_us, one in enumerate(messages))
    assert not lane.idle.is_set()
    await until_idle(lane, asyncio.create_task(lane.run()))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert [one for batch in batches for one in batch] == messages == given_back


async def test_full_lane_refuses_messages() -> None:
    async def handle(batch: list[Received]) -> None:
        raise AssertionError("never runs")

    lane = TaskLane("test", handle, lambda _: None, batch=4, bound=2)
    assert [lane.put(message(number), 0) for number in range(4)] == [True, True, False, False]


async def test_messages_that_arrive_during_a_call_are_the_next_batch() -> None:
    gate = asyncio.Event()
    sizes: list[int] = []

    async def handle(batch: list[Received]) -> None:
        sizes.append(len(batch))
        await gate.wait()

    lane = TaskLane("test", handle, lambda _: None, batch=64, bound=100)
    work = asyncio.create_task(lane.run())
    lane.put(message(0), 0)
    await asyncio.sleep(0)
    for number in range(1, 9):
        lane.put(message(number), 0)
    gate.set()
    await until_idle(lane, work)
    assert sizes == [1, 8]
