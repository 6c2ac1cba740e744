"""Timers and memory against their obvious twins."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.core.recent_keys import RecentKeys
from edge.core.timers import EARLY_TRIES, Timers, back_off_ms, earliest, resend_wait_ms

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


def test_moving_one_timer_for_ever_does_not_grow_the_heap() -> None:
    timers: Timers[str] = Timers()
    for time in range(10_000):
        timers.set("one", time)
    assert len(timers._heap) < 200
    assert timers.pop_due(10_000) == ["one"]


def test_back_off_doubles_up_to_its_bound() -> None:
    assert [back_off_ms(400, tries, 5_000) for tries in range(6)] == [400, 800, 1_600, 3_200, 5_000, 5_000]
    assert back_off_ms(400, 10**9, 5_000) == 5_000


def test_first_repeats_stay_close_together_until_a_hanging_peer_must_have_been_noticed() -> None:
    waits = [resend_wait_ms(400, tries, 1_500, 5_000) for tries in range(8)]
    assert waits == [400, 800, 1_500, 1_500, 1_500, 1_500, 5_000, 5_000]
    dead_ms = 3_000
    assert sum(waits[:EARLY_TRIES]) >= 2 * dead_ms
    assert resend_wait_ms(400, 2, 1_500, 1_000) == 1_000


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8).map(str), st.integers(0, 5)), max_size=100))
def test_memory_is_bounded_by_number_and_age(keys: list[tuple[str, int]]) -> None:
    memory = RecentKeys(kept_max=4, kept_ms=10)
    now = 0
    last: dict[str, int] = {}
    for key, wait in keys:
        now += wait
        memory.add(key, now)
        last[key] = now
        assert key in memory and len(memory) <= 4
        assert all(now - last[old] < 10 for old in last if old in memory)


def test_earliest_of_several_due_times() -> None:
    assert earliest([]) is None and earliest([None, None]) is None
    assert earliest([None, 7, 3, None, 5]) == 3 and earliest([0, None]) == 0
