from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from selector.placement.core.deadline_queue import DeadlineQueue, QueueEntry, is_too_late

FAR = 10_000_000


def entry(
    request_id: str, deadline_ms: int = FAR, attempt: int = 1, size_bytes: int = 10, needs: str = ""
) -> QueueEntry[str]:
    return QueueEntry(
        request_id, attempt, deadline_ms, 0, until_ms=1_000, size_bytes=size_bytes, needs=needs, item=request_id
    )


def queue_of(*entries: QueueEntry[str], count_max: int = 100, bytes_max: int = 1_000) -> DeadlineQueue[str]:
    queue = DeadlineQueue[str](count_max, bytes_max)
    for one in entries:
        assert queue.push(one) == []
    return queue


def names(queue: DeadlineQueue[str]) -> list[str]:
    queue.check()
    return [one.request_id for one in queue]


def test_earliest_deadline_is_first_and_equal_ones_are_in_order_of_arrival() -> None:
    queue = queue_of(entry("late", 300), entry("b", 200), entry("a", 200), entry("soon", 100))
    assert names(queue) == ["soon", "b", "a", "late"]
    assert [queue.ahead_of(one) for one in queue] == [0, 1, 2, 3]


def test_full_queue_evicts_the_latest_deadline() -> None:
    queue = queue_of(entry("soon", 100), entry("far", 300), count_max=2)
    assert [one.request_id for one in queue.push(entry("between", 200))] == ["far"]
    assert names(queue) == ["soon", "between"]
    assert [one.request_id for one in queue.push(entry("farther", 400))] == ["farther"]
    assert names(queue) == ["soon", "between"]


def test_queue_over_its_bytes_evicts_as_many_as_needed() -> None:
    queue = queue_of(*(entry(f"r{index}", 100 + index, size_bytes=300) for index in range(3)), bytes_max=1_000)
    assert [one.request_id for one in queue.push(entry("large", 50, size_bytes=700))] == ["r2", "r1"]
    assert names(queue) == ["large", "r0"]
    assert [one.request_id for one in queue.push(entry("huge", 1, size_bytes=2_000))] == ["r0", "large", "huge"]
    assert names(queue) == []


def test_higher_attempt_replaces_a_lower_one() -> None:
    first = entry("r", 100, attempt=1)
    queue = queue_of(first, entry("other", 50))
    second = entry("r", 20, attempt=2)
    assert queue.push(second) == []
    assert names(queue) == ["r", "other"]
    assert queue.by_request["r"] is second
    assert not queue.is_queued(first)
    assert not queue.remove(first)


def test_cancel_removes_this_attempt_and_older_ones_only() -> None:
    queue = queue_of(entry("r", attempt=2))
    assert queue.cancel("r", 1) is None
    assert queue.cancel("unheard of", 9) is None
    assert names(queue) == ["r"]
    forgotten = queue.cancel("r", 3)
    assert forgotten is not None
    assert names(queue) == []


def test_overdue_entries_are_listed_and_stay() -> None:
    queue = queue_of(entry("a"), entry("b"))
    assert queue.overdue(999) == []
    assert [one.request_id for one in queue.overdue(1_000)] == ["a", "b"]
    assert names(queue) == ["a", "b"]


def test_queue_may_change_during_an_iteration() -> None:
    queue = queue_of(*(entry(f"r{index}", index) for index in range(4)))
    for one in queue:
        assert queue.remove(one)
    assert len(queue) == 0


def test_entry_with_the_same_needs_is_found() -> None:
    queue = queue_of(entry("a", needs="x"), entry("b", needs="x"), entry("c", needs="y"))
    alike = queue.find_same_needs("x")
    assert alike is not None and alike.item in ("a", "b")
    assert queue.find_same_needs("z") is None
    queue.cancel("a", 1)
    alike = queue.find_same_needs("x")
    assert alike is not None and alike.item == "b"
    queue.cancel("b", 1)
    assert queue.find_same_needs("x") is None


steps = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(1, 3), st.integers(0, 5), st.integers(1, 60), st.booleans()),
    max_size=40,
)


@given(steps)
def test_queue_behaves_like_a_sorted_list(moves: list[tuple[str, int, int, int, bool]]) -> None:
    queue = DeadlineQueue[str](4, 100)
    model: dict[str, tuple[int, int, int, int]] = {}  # deadline, arrival, attempt, size
    for arrival, (name, attempt, deadline_ms, size, comes) in enumerate(moves):
        standing = queue.by_request.get(name)
        if comes and (standing is None or standing.attempt < attempt):
            evicted = queue.push(entry(name, deadline_ms, attempt, size, needs=name[0]))
            model[name] = (deadline_ms, arrival, attempt, size)
            gone = []
            while len(model) > 4 or sum(item[3] for item in model.values()) > 100:
                last = max(model, key=lambda one: model[one])
                gone.append(last)
                del model[last]
            assert [one.request_id for one in evicted] == gone
        elif not comes:
            queue.cancel(name, attempt)
            if name in model and model[name][2] <= attempt:
                del model[name]
        assert names(queue) == sorted(model, key=lambda one: model[one])


def test_result_after_its_deadline_is_too_late() -> None:
    assert not is_too_late(1_000, 500.0, 1_500)
    assert is_too_late(1_000, 501.0, 1_500)


def test_first_gives_so_many_of_each_needs_and_looks_no_further_than_it_must() -> None:
    queue = queue_of(
        *(entry(f"x{number}", 100 + number, needs="x") for number in range(4)), entry("y0", 500, needs="y")
    )
    found, is_all = queue.first(2, scan_max=100)
    assert ([one.request_id for one in found], is_all) == (["x0", "x1", "y0"], True)
    found, is_all = queue.first(2, scan_max=4)
    assert ([one.request_id for one in found], is_all) == (["x0", "x1"], False), "y is beyond the scan"
    assert queue.first(9, scan_max=100)[1], "needs with fewer entries are complete too"
    assert DeadlineQueue[str](1, 1).first(3, scan_max=100) == ([], True)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from("xyz")), max_size=30),
    st.integers(1, 5),
    st.integers(1, 40),
)
def test_first_is_the_beginning_of_every_needs(entries: list[tuple[int, str]], count: int, scan_max: int) -> None:
    queue = queue_of(*(entry(f"r{index}", due, needs=needs) for index, (due, needs) in enumerate(entries)))
    found, is_all = queue.first(count, scan_max)
    in_order = list(queue)
    assert [one for one in in_order if one in found] == found, "earliest deadline first"
    for needs in "xyz":
        own, taken = ([one for one in group if one.needs == needs] for group in (in_order, found))
        assert taken == own[: len(taken)] and len(taken) <= count
        assert not is_all or len(taken) == min(count, len(own))
