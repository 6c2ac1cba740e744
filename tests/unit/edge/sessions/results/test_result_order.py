"""Results in order: alone, against an obvious twin, and against what the original system got wrong."""

from __future__ import annotations

import sys
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.sessions.core.results.result_order import Missing, Release, Released, ResultOrder, ResultOrderLimits
from mesh.config.sessions import SessionConfig
from mesh.errors import ErrorCode, PeerError
from mesh.words import MissingReason

GAP_MS = 1_000
LIMITS = ResultOrderLimits(gap_ms=GAP_MS, pending_max=4)


def released(index: int, item: object) -> Release:
    return Release(index, item)


def expecting(*indices: int, limits: ResultOrderLimits = LIMITS) -> ResultOrder:
    order = ResultOrder(limits)
    for index in indices:
        order.expect(index, 0)
    return order


def refusal(order: ResultOrder, index: int) -> ErrorCode:
    with pytest.raises(PeerError) as caught:
        order.expect(index, 0)
    return caught.value.code


# --- in order ---------------------------------------------------------------------------------------


def test_results_that_come_in_order_are_released_at_once() -> None:
    order = expecting(0, 1)
    assert order.arrive(0, "a", 0) == [released(0, "a")]
    assert order.arrive(1, "b", 5) == [released(1, "b")]
    assert order.next_index == 2 and order.next_due_ms is None


def test_results_that_come_in_any_order_are_released_in_order() -> None:
    order = expecting(0, 1, 2)
    assert order.arrive(2, "c", 0) == [] and order.arrive(1, "b", 1) == []
    assert order.arrive(0, "a", 2) == [released(0, "a"), released(1, "b"), released(2, "c")]
    order.check()


def test_an_order_may_begin_where_another_ended() -> None:
    order = ResultOrder(LIMITS, next_index=7)
    assert order.arrive(6, "old", 0) == []
    assert order.arrive(7, "h", 0) == [released(7, "h")]


def test_a_result_that_nobody_expected_here_is_told_in_its_turn() -> None:
    order = ResultOrder(LIMITS)
    assert order.arrive(1, "b", 0) == []
    assert order.arrive(0, "a", 1) == [released(0, "a"), released(1, "b")]


def test_a_skipped_index_ends_silently() -> None:
    order = expecting(1)
    assert order.skip(0, 0) == [] and order.next_index == 1
    assert order.skip(2, 0) == [] and order.next_index == 1
    assert order.arrive(1, "b", 0) == [released(1, "b")] and order.next_index == 3
    assert refusal(order, 2) is ErrorCode.UTTERANCE_ENDED


def test_skipping_drops_what_waits_of_that_index() -> None:
    order = expecting(0, 1)
    order.arrive(1, "b", 0)
    assert order.skip(1, 0) == [] and order.arrive(0, "a", 0) == [released(0, "a")]
    assert order.next_index == 2
    assert order.skip(0, 0) == [], "what has ended cannot be skipped"
    order.check()


def test_has_ended_is_true_below_the_head_only() -> None:
    order = expecting(0, 1, 2)
    order.arrive(0, "a", 0)
    order.arrive(2, "c", 0)
    assert [order.has_ended(index) for index in range(4)] == [True, False, False, False]


def test_limits_are_those_of_the_configuration() -> None:
    assert ResultOrderLimits.of(SessionConfig()) == (10_000, 200)


def test_an_order_may_begin_anywhere() -> None:
    order = ResultOrder(LIMITS, None)
    order.expect(700, 0)
    order.check()
    assert order.arrive(700, "a", 0) == [released(700, "a")] and order.next_index == 701
    assert refusal(order, 699) is ErrorCode.UTTERANCE_ENDED


def test_an_order_that_may_begin_anywhere_begins_with_the_lowest_index_before_any_has_ended() -> None:
    order = ResultOrder(LIMITS, None)
    for index in (12, 11, 10):
        order.expect(index, 0)
        order.check()
    order.arrive(12, "c", 0)
    assert order.next_due_ms == GAP_MS
    order.expect(9, 1)
    order.check()
    assert refusal(order, 8) is ErrorCode.UTTERANCE_ENDED, "12 would be too far ahead of it"
    assert refusal(order, 13) is ErrorCode.TOO_MANY_UTTERANCES
    assert [order.arrive(index, index, 2) for index in (9, 10)] == [[released(9, 9)], [released(10, 10)]]
    assert order.arrive(11, 11, 2) == [released(11, 11), released(12, "c")]


@pytest.mark.parametrize("how", ["arrived", "failed", "skipped"])
def test_an_order_begins_with_whatever_it_hears_of_first(how: str) -> None:
    order = ResultOrder(LIMITS, None)
    said = {
        "arrived": lambda: order.arrive(700, "a", 0),
        "failed": lambda: order.fail(700, "job_failed", 0),
        "skipped": lambda: order.skip(700, 0),
    }[how]()
    assert said == {"arrived": [released(700, "a")], "failed": [Missing(700, "job_failed")], "skipped": []}[how]
    assert order.next_index == 701 and order.next_due_ms is None
    assert refusal(order, 700) is ErrorCode.UTTERANCE_ENDED
    order.check()


def test_an_order_that_has_begun_stays_where_it_is() -> None:
    order = ResultOrder(LIMITS, None)
    order.expect(5, 0)
    order.expect(5, 0)
    order.arrive(5, "a1", 0)
    assert refusal(order, 4) is ErrorCode.UTTERANCE_ENDED, "something of 5 was told"
    order.arrive(5, "a2", 0)
    assert refusal(order, 4) is ErrorCode.UTTERANCE_ENDED, "nothing is under way, but it has begun"
    assert refusal(order, 100) is ErrorCode.TOO_MANY_UTTERANCES
    order.check()


def test_it_says_where_all_that_it_knows_of_ends() -> None:
    order = ResultOrder(LIMITS, 3)
    assert order.end == 3
    order.expect(5, 0)
    assert order.end == 6


# --- refusals and repeats ---------------------------------------------------------------------------


def test_an_index_that_has_ended_is_not_expected_again() -> None:
    order = expecting(0)
    order.arrive(0, "a", 0)
    assert refusal(order, 0) is ErrorCode.UTTERANCE_ENDED


def test_an_index_may_not_be_too_far_ahead() -> None:
    order = expecting(0, 3)
    assert refusal(order, 4) is ErrorCode.TOO_MANY_UTTERANCES
    order.arrive(0, "a", 0)
    order.expect(4, 0)


def test_duplicate_result_is_dropped() -> None:
    order = expecting(0, 1)
    order.arrive(1, "b", 0)
    assert order.arrive(1, "b", 1) == [] and order.arrive(0, "a", 2) == [released(0, "a"), released(1, "b")]
    assert order.arrive(0, "a", 3) == order.arrive(1, "b", 3) == []
    assert order.next_index == 2


def test_a_failure_after_the_end_says_nothing() -> None:
    order = expecting(0)
    order.arrive(0, "a", 0)
    assert order.fail(0, "job_failed", 1) == [] and order.next_index == 1


def test_a_failed_index_that_is_tried_again_before_its_turn_may_still_have_its_result() -> None:
    order = expecting(0, 1)
    order.fail(1, "job_failed", 0)
    assert order.next_due_ms == GAP_MS
    order.expect(1, 1)
    assert order.next_due_ms is None, "nothing later waits any more"
    order.arrive(1, "b", 2)
    assert order.arrive(0, "a", 3) == [released(0, "a"), released(1, "b")]


# --- windows ----------------------------------------------------------------------------------------


def test_without_anything_later_there_is_no_window() -> None:
    order = expecting(0, 1)
    assert order.next_due_ms is None and order.tick(10**9) == []
    assert order.arrive(0, "a", 10**9) == [released(0, "a")]


def test_the_window_opens_with_the_first_later_one_and_not_with_the_second() -> None:
    order = expecting(0, 1, 2)
    order.arrive(2, "c", 100)
    order.arrive(1, "b", 900)
    assert order.next_due_ms == 100 + GAP_MS and order.tick(99 + GAP_MS) == []
    assert order.tick(100 + GAP_MS) == [Missing(0, MissingReason.GAP_TIMEOUT), released(1, "b"), released(2, "c")]
    assert order.next_due_ms is None


def test_inside_its_window_a_late_result_is_released_and_after_it_dropped() -> None:
    order = expecting(0, 1, 2, 3)
    order.arrive(1, "b", 0)
    assert order.arrive(0, "a", GAP_MS - 1) == [released(0, "a"), released(1, "b")]
    order.arrive(3, "d", GAP_MS)
    assert order.tick(2 * GAP_MS) == [Missing(2, MissingReason.GAP_TIMEOUT), released(3, "d")]
    assert order.arrive(2, "c", 2 * GAP_MS) == []


def test_each_index_has_its_own_window() -> None:
    order = expecting(0, 1, 2, 3)
    order.arrive(1, "b", 0)
    order.arrive(3, "d", 600)
    assert order.tick(GAP_MS) == [Missing(0, MissingReason.GAP_TIMEOUT), released(1, "b")]
    assert order.next_due_ms == 600 + GAP_MS
    assert order.tick(600 + GAP_MS) == [Missing(2, MissingReason.GAP_TIMEOUT), released(3, "d")]


def test_several_indices_that_hold_up_the_same_one_are_abandoned_together() -> None:
    order = ResultOrder(LIMITS)
    order.arrive(3, "d", 0)
    assert order.tick(GAP_MS) == [
        Missing(0, MissingReason.GAP_TIMEOUT),
        Missing(1, MissingReason.GAP_TIMEOUT),
        Missing(2, MissingReason.GAP_TIMEOUT),
        released(3, "d"),
    ]


@pytest.mark.parametrize("how", ["failed", "skipped"])
def test_a_failed_or_skipped_index_opens_the_window_too(how: str) -> None:
    order = expecting(0, 1)
    assert (order.fail(1, "job_failed", 5) if how == "failed" else order.skip(1, 5)) == []
    expected = [Missing(0, MissingReason.GAP_TIMEOUT)] + ([Missing(1, "job_failed")] if how == "failed" else [])
    assert order.tick(5 + GAP_MS) == expected and order.next_index == 2


# --- several jobs of one index ----------------------------------------------------------------------


def test_an_index_with_two_jobs_is_told_as_they_come_and_ends_with_the_second() -> None:
    order = expecting(0, 0, 1)
    assert order.arrive(0, "a1", 0) == [released(0, "a1")]
    assert order.arrive(1, "b", 1) == [] and order.next_index == 0
    assert order.arrive(0, "a2", 2) == [released(0, "a2"), released(1, "b")]


def test_two_results_that_waited_are_told_together() -> None:
    order = expecting(0, 1, 1)
    order.arrive(1, "b1", 0)
    order.arrive(1, "b2", 0)
    assert order.arrive(0, "a", 1) == [released(0, "a"), released(1, "b1"), released(1, "b2")]


@pytest.mark.parametrize("failed_first", [True, False])
def test_one_failure_of_two_is_not_missing(failed_first: bool) -> None:
    order = expecting(0, 0)
    if failed_first:
        assert order.fail(0, "job_failed", 0) == [] and order.next_index == 0
        assert order.arrive(0, "a", 1) == [released(0, "a")]
    else:
        assert order.arrive(0, "a", 0) == [released(0, "a")]
        assert order.fail(0, "job_failed", 1) == []
    assert order.next_index == 1


def test_one_failure_of_two_before_their_turn_is_not_missing() -> None:
    order = expecting(0, 1, 1)
    order.arrive(1, "b", 0)
    order.fail(1, "job_failed", 0)
    assert order.arrive(0, "a", 1) == [released(0, "a"), released(1, "b")]


def test_a_partly_told_index_that_nothing_waits_for_has_no_window() -> None:
    order = expecting(0, 0)
    order.arrive(0, "a1", 0)
    assert order.next_due_ms is None
    order.check()


def test_an_index_of_which_all_jobs_fail_is_missing_once() -> None:
    order = expecting(0, 0)
    assert order.fail(0, "job_failed", 0) == []
    assert order.fail(0, "silence_detected", 1) == [Missing(0, "silence_detected")]


def test_a_partly_told_index_whose_window_runs_out_ends_silently() -> None:
    order = expecting(0, 0, 1)
    order.arrive(0, "a1", 0)
    order.arrive(1, "b", 10)
    assert order.tick(10 + GAP_MS) == [released(1, "b")] and order.next_index == 2
    assert order.arrive(0, "a2", 10 + GAP_MS) == []


def test_a_partly_told_index_that_is_skipped_ends_silently() -> None:
    order = expecting(0, 0)
    order.arrive(0, "a1", 0)
    assert order.skip(0, 1) == [] and order.next_index == 1


# --- bounds -----------------------------------------------------------------------------------------


def test_too_many_waiting_results_cost_the_farthest_one() -> None:
    order = expecting(0)
    for index in (1, 2, 6, 3):
        assert order.arrive(index, str(index), 0) == []
    assert order.arrive(4, "4", 0) == [] and order.has_ended(6), "the farthest one is evicted"
    assert order.arrive(6, "6", 0) == [], "an evicted index takes nothing more"
    order.check()
    assert order.arrive(0, "0", 1) == [released(index, str(index)) for index in range(5)]
    order.skip(5, 2)
    assert order.next_index == 7


def test_an_evicted_index_is_not_expected_again() -> None:
    order = expecting(0, 3, 3, 3, 3, 3)
    for _ in range(5):
        order.arrive(3, "d", 0)
    assert refusal(order, 3) is ErrorCode.UTTERANCE_ENDED
    order.check()


def test_what_nobody_expected_and_is_out_of_reach_is_dropped() -> None:
    order = ResultOrder(LIMITS)
    assert order.arrive(8, "far", 0) == [] and order.end == 0
    assert order.fail(10**15, "job_failed", 0) == order.skip(10**15, 0) == []
    assert order.next_due_ms is None and order.tick(10**9) == []
    order.check()


def test_an_order_with_nothing_under_way_costs_no_more_than_a_new_one() -> None:
    def bytes_of(order: ResultOrder) -> int:
        return sum(map(sys.getsizeof, (order, order._slots)))

    order = ResultOrder(ResultOrderLimits(GAP_MS, 200))
    new = bytes_of(order)
    for index in range(199, -1, -1):
        order.expect(index, 0)
        order.arrive(index, index, 0)
    assert order.next_index == 200 and bytes_of(order) == new < 512


# --- head-of-line timeout ---------------------------------------------------------------------------


def test_timeout_releases_the_ready_index_and_leaves_later_ones_pending() -> None:
    order = expecting(0, 2, 3)
    order.arrive(2, "c", 0)
    gaps = [Missing(index, MissingReason.GAP_TIMEOUT) for index in (0, 1)]
    assert order.tick(GAP_MS) == [*gaps, released(2, "c")]
    assert order.next_index == 3 and order.next_due_ms is None
    assert order.arrive(3, "d", GAP_MS) == [released(3, "d")]
    order.check()


def test_timeout_of_an_order_without_ready_indices_releases_nothing() -> None:
    order = expecting(0, 0, 1)
    order.arrive(0, "a1", 0)
    assert order.tick(10**9) == [] and order.next_index == 0
    assert ResultOrder(LIMITS).tick(10**9) == []


# --- what the original system got wrong -------------------------------------------------------------


def test_defect_10_the_position_is_not_forgotten_when_nothing_waits() -> None:
    order = ResultOrder(LIMITS)
    for index in range(1_000):
        order.expect(index, index)
        assert order.arrive(index, index, index) == [released(index, index)]
        order.check()
    assert order.next_index == 1_000
    assert order.arrive(0, 0, 1_000) == [], "it does not begin anew"


def test_defect_12_a_failed_job_leaves_no_hole() -> None:
    order = expecting(0, 1, 2)
    assert order.fail(1, "job_failed", 0) == []
    assert order.fail(2, "silence_detected", 0) == []
    assert order.arrive(0, "a", 1) == [released(0, "a"), Missing(1, "job_failed"), Missing(2, "silence_detected")]


def test_defect_12_an_index_that_never_comes_is_told_as_gap_timeout() -> None:
    order = expecting(0)
    order.arrive(0, "a", 0)
    order.expect(2, 0)
    order.arrive(2, "c", 0)
    assert order.tick(GAP_MS) == [Missing(1, MissingReason.GAP_TIMEOUT), released(2, "c")], "1 was never even sent"


def test_defect_12_an_evicted_result_is_told_as_missing() -> None:
    order = expecting(0)
    for index in range(1, 6):
        order.arrive(index, index, 0)
    assert order.arrive(0, 0, 1)[-2:] == [released(4, 4), Missing(5, MissingReason.PENDING_OVERFLOW_EVICT)]


def test_defect_12_a_result_after_its_missing_result_reaches_nobody() -> None:
    order = expecting(0, 1)
    assert order.fail(0, "job_failed", 0) == [Missing(0, "job_failed")]
    assert order.arrive(0, "a", 1) == []


# --- against the obvious twin -----------------------------------------------------------------------


class Naive:
    """The rules word by word: every index has its own due time, set by whoever first waits behind it."""

    def __init__(self, limits: ResultOrderLimits) -> None:
        self.limits = limits
        self.next = 0
        self.open: dict[int, int] = defaultdict(int)
        self.items: dict[int, list[object]] = defaultdict(list)
        self.ends: dict[int, str] = {}  # resolved -> why it would be missing; "" = it would not
        self.partly: set[int] = set()
        self.due: dict[int, int] = {}

    def wants(self, index: int) -> bool:
        return self.next <= index < self.next + 2 * self.limits.pending_max and index not in self.ends

    def resolve(self, index: int, item: object, reason: str, now_ms: int) -> Released:
        if not self.wants(index):
            return []
        self.open[index] = max(0, self.open[index] - 1)
        if item is not None:
            self.items[index].append(item)
        has_some = bool(self.items[index]) or index in self.partly
        if not self.open[index]:
            self.ends[index] = "" if has_some else reason
        if self.items[index] or index in self.ends:
            self.hold_up(index, now_ms)
        return self.say()

    def skip(self, index: int, now_ms: int) -> Released:
        if self.next <= index < self.next + 2 * self.limits.pending_max:
            self.items[index].clear()
            self.ends[index] = ""
            self.hold_up(index, now_ms)
        return self.say()

    def hold_up(self, index: int, now_ms: int) -> None:
        for earlier in range(self.next, index):
            self.due.setdefault(earlier, now_ms + self.limits.gap_ms)

    def say(self) -> Released:
        said: Released = []
        while True:
            index, items = self.next, self.items[self.next]
            ended = index in self.ends
            for item in items:
                said.append(Release(index, item))
                self.partly.add(index)
            self.items[index] = []
            if not ended:
                break
            if self.ends[index]:
                said.append(Missing(index, self.ends[index]))
            self.next += 1
        if sum(map(len, self.items.values())) > self.limits.pending_max:
            farthest = max(index for index, items in self.items.items() if items)
            self.items[farthest].clear()
            self.ends[farthest] = MissingReason.PENDING_OVERFLOW_EVICT
        return said

    def tick(self, now_ms: int) -> Released:
        said: Released = []
        while self.next in self.due and self.due[self.next] <= now_ms:
            self.ends[self.next] = "" if self.next in self.partly else MissingReason.GAP_TIMEOUT
            said += self.say()
        return said


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["expect", "expect", "arrive", "arrive", "arrive", "fail", "skip", "tick"]),
        st.sampled_from([0, 1, 1, 2, 2, 2, 3, 3, 4, 9]),
        st.integers(0, 600),
    ),
    min_size=10,
    max_size=80,
)


def step(
    order: ResultOrder, naive: Naive, action: str, index: int, item: int, now_ms: int
) -> tuple[Released, Released]:
    """One step of both; what each said."""
    if action == "arrive":
        return order.arrive(index, item, now_ms), naive.resolve(index, item, "", now_ms)
    if action == "fail":
        return order.fail(index, "job_failed", now_ms), naive.resolve(index, None, "job_failed", now_ms)
    if action == "skip":
        return order.skip(index, now_ms), naive.skip(index, now_ms)
    if action == "tick":
        return order.tick(now_ms), naive.tick(now_ms)
    if naive.ends.get(index) == "job_failed" and index >= naive.next:
        return [], []  # tried again before its turn: the twin does not take a failure back
    try:
        order.expect(index, now_ms)
    except PeerError:
        assert index in naive.ends or index < naive.next or index >= naive.next + naive.limits.pending_max
    else:
        naive.open[index] += 1
        naive.ends.pop(index, None)
    return [], []


@settings(deadline=None, max_examples=500)
@given(STEPS, st.integers(1, 4))
def test_it_says_what_its_obvious_twin_says(steps: list[tuple[str, int, int]], pending_max: int) -> None:
    limits = ResultOrderLimits(GAP_MS, pending_max)
    order, naive, now_ms = ResultOrder(limits), Naive(limits), 0
    for number, (action, ahead, later_ms) in enumerate(steps):
        now_ms += later_ms
        index = max(0, order.next_index - 1) + ahead
        said, expected = step(order, naive, action, index, number + 1, now_ms)
        assert said == expected and order.next_index == naive.next
        order.check()
    order.tick(now_ms + GAP_MS)
    order.check()


# --- whatever happens -------------------------------------------------------------------------------

ARRIVALS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "arrive", "fail", "tick", "nothing"]), st.integers(0, 11), st.integers(0, 700)
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=300)
@given(ARRIVALS)
def test_every_index_is_released_or_missing_once_and_in_order(steps: list[tuple[str, int, int]]) -> None:
    limits = ResultOrderLimits(GAP_MS, 12)
    order, now_ms, said = ResultOrder(limits), 0, []
    accepted: set[int] = set()
    resolved: set[int] = set()
    for index in range(12):
        order.expect(index, 0)
    for action, index, later_ms in steps:
        now_ms += later_ms
        if action in ("arrive", "fail"):
            if action == "arrive" and index not in resolved and not order.has_ended(index):
                accepted.add(index)
            resolved.add(index)
            arrived = action == "arrive"
            said += order.arrive(index, index, now_ms) if arrived else order.fail(index, "job_failed", now_ms)
        elif action == "tick":
            said += order.tick(now_ms)
        order.check()
    said += order.tick(now_ms + GAP_MS)
    assert [one.index for one in said] == list(range(max(resolved, default=-1) + 1))
    assert all(one.item == one.index for one in said if isinstance(one, Release))
    assert {one.index for one in said if isinstance(one, Release)} == accepted, "an accepted result is released"
