"""Timers against a dict that is searched."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.core.timers import Timers, earliest

Step = tuple[str, int, int]
ACTIONS = st.sampled_from(["set", "drop", "pop"])
STEPS = st.lists(st.tuples(ACTIONS, st.integers(0, 5), st.integers(0, 50)), max_size=200)


@settings(deadline=None)
@given(STEPS)
def test_timers_equal_a_dict_that_is_searched(steps: list[Step]) -> None:
    timers: Timers[int] = Timers()
    naive: dict[int, int] = {}
    for action, key, time in steps:
        if action == "set":
            timers.set(key, time)
            naive[key] = time
        elif action == "drop":
            timers.drop(key)
            naive.pop(key, None)
        else:
            due = {key for key, when in naive.items() if when <= time}
            popped = timers.pop_due(time)
            assert set(popped) == due and len(popped) == len(due)
            assert [naive[key] for key in popped] == sorted(naive[key] for key in popped)
            for key in due:
                del naive[key]
        assert len(timers) == len(naive)
        assert timers.next_due_ms() == min(naive.values(), default=None)


def test_timer_that_is_moved_often_does_not_grow_the_heap() -> None:
    timers: Timers[str] = Timers()
    for time in range(10_000):
        timers.set("one", time)
    assert len(timers._heap) < 200
    assert timers.pop_due(10_000) == ["one"]


def test_earliest_of_several_due_times() -> None:
    assert earliest([]) is None and earliest([None, None]) is None
    assert earliest([None, 7, 3, None, 5]) == 3 and earliest([0, None]) == 0
