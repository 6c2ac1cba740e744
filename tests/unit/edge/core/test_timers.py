"""Timers against a dict that is searched."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.core.timers import Schedule, Tick, Timers, earliest

Step = tuple[str, int, int]
ACTIONS = st.sampled_from(["set", "drop", "pop"])
STEPS = st.lists(st.tuples(ACTIONS, st.integers(0, 5), st.integers(0, 50)), max_size=200)


@settings(deadline=None)
@given(STEPS)
def test_timers_equal_a_dict_that_is_searched(steps: list[Step]) -> None:
    announced: list[int] = []
    timers: Timers[int] = Timers(announced.append)
    naive: dict[int, int] = {}
    for action, key, time in steps:
        if action == "set":
            timers.set(key, time)
            naive[key] = time
        elif action == "drop":
            timers.drop(key)
            naive.pop(key, None)
        else:
            announced.clear()
            due = {key for key, when in naive.items() if when <= time}
            popped = timers.pop_due(time)
            assert set(popped) == due and len(popped) == len(due)
            assert [naive[key] for key in popped] == sorted(naive[key] for key in popped)
            for key in due:
                del naive[key]
        assert len(timers) == len(naive)
        assert timers.next_due_ms() == min(naive.values(), default=None)
        assert not naive or announced[-1] <= min(naive.values()), "whoever waits for the announced time misses none"
        assert announced == sorted(set(announced), reverse=True), "only an earlier time is announced"
        timers.check()


def test_timer_that_is_moved_often_does_not_grow_the_heap() -> None:
    timers: Timers[str] = Timers()
    for time in range(10_000):
        timers.set("one", time)
    assert len(timers._heap) < 200
    assert timers.pop_due(10_000) == ["one"]


def test_earliest_of_several_due_times() -> None:
    assert earliest([]) is None and earliest([None, None]) is None
    assert earliest([None, 7, 3, None, 5]) == 3 and earliest([0, None]) == 0


class Component:
    """Two sets of timers under one tick, as the parts of a core have them."""

    def __init__(self, schedule: Schedule) -> None:
        self.parts: tuple[Timers[int], ...] = tuple(Timers(schedule.waker(self.tick)) for _ in range(2))
        self.ran: list[tuple[int, int, int]] = []

    def tick(self, now_ms: int) -> None:
        self.ran += [(now_ms, part, key) for part, timers in enumerate(self.parts) for key in timers.pop_due(now_ms)]


PLACES = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 3))


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["set", "drop", "wait"]), PLACES, st.integers(0, 20)), max_size=100))
def test_every_timer_of_every_component_runs_at_its_time(
    steps: list[tuple[str, tuple[int, int, int], int]],
) -> None:
    armed: list[int] = []
    schedule = Schedule(armed.append)
    components = (Component(schedule), Component(schedule))
    naive: dict[tuple[int, int, int], int] = {}
    now = 0

    def wait_until(end: int) -> None:
        nonlocal now
        while armed and armed[-1] <= end:  # the process's clock knows the announced time only
            now = max(now, armed[-1])
            armed.clear()
            for tick in schedule.pop_due(now):
                tick(now)
        now = end

    for action, place, time in steps:
        number, part, key = place
        timers = components[number].parts[part]
        if action == "set":
            timers.set(key, now + time)
            naive[place] = now + time
        elif action == "drop":
            timers.drop(key)
            naive.pop(place, None)
        else:
            due = sorted((when, *place) for place, when in naive.items() if when <= now + time)
            wait_until(now + time)
            ran = [(when, n, *rest) for n, component in enumerate(components) for when, *rest in component.ran]
            assert sorted(ran) == due
            for component in components:
                component.ran.clear()
            for _, *ended in due:
                del naive[ended[0], ended[1], ended[2]]
        schedule.check()


def test_tick_is_only_brought_forward() -> None:
    armed: list[int] = []
    schedule, ticks = Schedule(armed.append), Component(Schedule())
    tick: Tick = ticks.tick
    for due_ms in (50, 70, 30, 40):
        schedule.bring_forward(tick, due_ms)
    assert armed == [50, 30] and schedule.next_due_ms() == 30
    assert schedule.pop_due(29) == [] and schedule.pop_due(30) == [tick] and schedule.next_due_ms() is None
