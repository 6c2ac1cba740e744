"""The wait queue without a kernel and without Redis; with both: tests/loopback/selector/test_placement.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from prometheus_client import CollectorRegistry

from mesh import clock
from mesh.config import Config
from mesh.config.jobs import JobConfig
from mesh.frames import Frame, Waiting
from mesh.words import DispatchOutcome, RefusalReason
from selector.core.filters import Filter
from selector.metrics import SelectorMetrics
from selector.placement.core.forecast import Forecast
from selector.placement.placement import Placement
from selector.placement.wait_queue import WaitQueue
from tests.support.builders.selector import job
from tests.support.conditions import until


@dataclass
class World:
    """A wait queue whose surroundings only take notes."""

    waiting_max: int = 10
    hopeless: set[str] = field(default_factory=set)
    #: Requests that a lookup finds placed by another selector.
    placed_elsewhere: set[str] = field(default_factory=set)
    sent: list[Frame] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.metrics = SelectorMetrics(CollectorRegistry())
        config = Config(job=JobConfig(waiting_max=self.waiting_max, waiting_notice_ms=1))
        context = SimpleNamespace(config=config, metrics=self.metrics, send=self._send)
        self.queue = WaitQueue(cast(Any, context), cast(Any, self), self._retry, self._look_up)

    def _send(self, to: str, cell: int, frame: Frame, **_: Any) -> str:
        self.sent.append(frame)
        return "broker"

    async def _retry(self, placements: list[Placement]) -> None:
        raise AssertionError("no retry without `run`")

    async def _look_up(self, placements: list[Placement]) -> None:
        for placement in placements:
            if placement.dispatch.request_id in self.placed_elsewhere:
                placement.outcome = DispatchOutcome.BOUND

    # The refusals:

    def is_worth_waiting(self, placement: Placement) -> bool:
        return placement.dispatch.request_id not in self.hopeless

    def forecast(self, placement: Placement) -> Forecast:
        return Forecast()

    def refuse(self, placement: Placement, *, reason: str = "", ahead: int = 0) -> None:
        self.refused.append((placement.dispatch.request_id, reason))

    @property
    def waiting(self) -> float:
        return float(self.metrics.waiting.value)


def placement(request_id: str, attempt: int = 1, *, left_ms: int = 60_000, needs: str = "") -> Placement:
    dispatch = job(request_id=request_id, attempt=attempt, deadline_ms=clock.wall_ms() + left_ms)
    made = Placement(dispatch, [b"audio"], "broker", "u", clock.now_ms(), needs=(needs,))
    made.removed = [0] * len(Filter)
    made.removed[Filter.SLOT] = 1
    return made


async def test_placement_without_a_node_is_queued_and_its_edge_notified() -> None:
    world = World()
    one = placement("r-1")
    await world.queue.enter([one])
    assert world.sent == [], "most get a slot before"
    await until(lambda: world.sent, "Waiting")
    [frame] = world.sent
    assert isinstance(frame, Waiting) and (frame.request_id, frame.reason) == ("r-1", "capacity_exceeded")
    assert (one.has_waited, world.waiting, world.refused) == (True, 1, [])


async def test_hopeless_or_overdue_placement_is_refused_at_once() -> None:
    world = World(hopeless={"r-1"})
    await world.queue.enter([placement("r-1"), placement("r-2", left_ms=-1)])
    assert world.refused == [("r-1", ""), ("r-2", RefusalReason.TOO_LATE)]
    assert (world.waiting, world.sent) == (0, [])


async def test_placement_behind_others_waits_without_a_check_but_a_hedge_is_checked() -> None:
    world = World()
    await world.queue.enter([placement("r-1", needs="x")])
    world.hopeless = {"r-2", "r-3"}
    hedge = placement("r-3", needs="x")
    hedge.dispatch = msgspec.structs.replace(hedge.dispatch, beside=True)
    await world.queue.enter([placement("r-2", needs="x"), hedge])
    assert (world.waiting, world.refused) == (2, [("r-3", "")])


async def test_full_queue_refuses_the_latest_deadline_unless_another_selector_placed_it() -> None:
    world = World(waiting_max=1)
    await world.queue.enter([placement("r-1", left_ms=30_000)])
    await world.queue.enter([placement("r-2", left_ms=40_000)])
    assert world.refused == [("r-2", RefusalReason.WAIT_QUEUE_FULL)]
    world.placed_elsewhere = {"r-3"}
    await world.queue.enter([placement("r-3", left_ms=50_000)])
    assert len(world.refused) == 1


async def test_request_with_the_same_needs_queues_behind_and_takes_over_the_corrected_counts() -> None:
    world = World()
    first = placement("r-1", needs="x")
    first.rejected, first.rejected_counted = {"n": "draining"}, 1
    first.removed[Filter.EXCLUDED] = 1
    await world.queue.enter([first])
    second, other = placement("r-2", needs="x"), placement("r-3", needs="y")
    assert (world.queue.is_behind(second), world.queue.is_behind(other)) == (True, False)
    assert (second.removed[Filter.EXCLUDED], second.removed[Filter.DRAINING]) == (0, 1), "n is not excluded for it"


async def test_retried_dispatch_reuses_its_placement_and_a_later_attempt_replaces_it() -> None:
    world = World()
    one = placement("r-1", attempt=2)
    assert world.queue.on_dispatch("r-1", 2) == (True, None)
    await world.queue.enter([one])
    assert world.queue.on_dispatch("r-1", 1) == (False, None), "outdated"
    assert world.queue.on_dispatch("r-1", 2) == (True, one)
    assert world.waiting == 0, "it left the queue for another try"
    await world.queue.enter([one])
    assert world.queue.on_dispatch("r-1", 3) == (True, None)
    assert (one.is_cancelled, world.waiting) == (True, 0)


async def test_retried_dispatch_is_ignored_during_its_commit() -> None:
    world = World()
    one = placement("r-1")
    await world.queue.enter([one])
    one.is_retrying = True
    assert world.queue.on_dispatch("r-1", 1) == (False, None)
    assert [type(frame) for frame in world.sent] == [Waiting], "at once: its edge asked"
    assert world.waiting == 1


async def test_cancelled_attempt_leaves_the_queue() -> None:
    world = World()
    one = placement("r-1", attempt=2)
    await world.queue.enter([one])
    world.queue.cancel("r-1", 1)
    assert (one.is_cancelled, world.waiting) == (False, 1)
    world.queue.cancel("r-1", 2)
    assert (one.is_cancelled, world.waiting) == (True, 0)


async def test_edge_of_a_placement_that_left_in_time_gets_no_waiting() -> None:
    world = World()
    await world.queue.enter([placement("r-1"), placement("r-2")])
    world.queue.cancel("r-1", 1)
    await until(lambda: world.sent, "Waiting")
    assert [frame.request_id for frame in world.sent if isinstance(frame, Waiting)] == ["r-2"]


async def test_freed_slots_go_to_the_earliest_deadlines_of_each_needs() -> None:
    world = World()
    late, early, soon, other = (
        placement("r-1", left_ms=30_000, needs="x"),
        placement("r-2", left_ms=10_000, needs="x"),
        placement("r-3", left_ms=20_000, needs="x"),
        placement("r-4", left_ms=40_000, needs="y"),
    )
    await world.queue.enter([late, early, soon, other])
    taken = world.queue.take(2)
    assert [entry.item for entry in taken.entries] == [early, soon, other] and taken.is_all
    assert [one.is_retrying for one in (late, early, soon, other)] == [False, True, True, True]
    assert world.queue.take(1).entries == [], "none is taken twice, and none overtakes"
    early.outcome = DispatchOutcome.NEW
    world.queue.put_back(taken, has_spare=False)
    assert (world.waiting, [one.is_retrying for one in (late, early, soon, other)]) == (3, [False] * 4)


async def test_spare_slot_wakes_a_pass_only_if_some_entry_was_not_tried() -> None:
    world = World()
    await world.queue.enter([placement("r-1", needs="x")])
    world.queue._wake.clear()
    taken = world.queue.take(1)
    world.queue.put_back(taken, has_spare=True)
    assert not world.queue._wake.is_set(), "its needs were tried"
    taken = world.queue.take(1)
    await world.queue.enter([placement("r-2", needs="y")])
    world.queue.put_back(taken, has_spare=True)
    assert world.queue._wake.is_set(), "it entered meanwhile"


async def test_spare_slot_wakes_a_pass_if_another_retry_held_an_entry() -> None:
    world = World()
    await world.queue.enter([placement("r-1", needs="x")])
    held = world.queue.take(1)
    world.queue._wake.clear()
    other = world.queue.take(1)
    assert (other.entries, other.is_all) == ([], False)
    world.queue.put_back(held, has_spare=False)
    assert not world.queue._wake.is_set()
    world.queue.put_back(other, has_spare=True)
    assert world.queue._wake.is_set(), "the slot of the second is free, and the entry of the first has no node"
