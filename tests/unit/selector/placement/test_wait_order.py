from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from selector.placement.core.wait_order import Waiter, WaitOrder, is_too_late, release_forecast_ms

FAR = 10_000_000


def waiter(
    request_id: str, deadline_ms: int = FAR, attempt: int = 1, size_bytes: int = 10, kind: str = ""
) -> Waiter[str]:
    return Waiter(
        request_id, attempt, deadline_ms, 0, until_ms=1_000, size_bytes=size_bytes, kind=kind, item=request_id
    )


def line_of(*waiters: Waiter[str], count_max: int = 100, bytes_max: int = 1_000) -> WaitOrder[str]:
    line = WaitOrder[str](count_max, bytes_max)
    for one in waiters:
        assert line.push(one) == []
    return line


def names(line: WaitOrder[str]) -> list[str]:
    line.check()
    return [one.request_id for one in line]


def test_the_nearest_deadline_is_first_and_equals_stand_as_they_came() -> None:
    line = line_of(waiter("late", 300), waiter("b", 200), waiter("a", 200), waiter("soon", 100))
    assert names(line) == ["soon", "b", "a", "late"]
    assert [line.ahead_of(one) for one in line] == [0, 1, 2, 3]


def test_a_full_line_loses_the_one_with_most_time() -> None:
    line = line_of(waiter("soon", 100), waiter("far", 300), count_max=2)
    assert [one.request_id for one in line.push(waiter("between", 200))] == ["far"]
    assert names(line) == ["soon", "between"]
    assert [one.request_id for one in line.push(waiter("farther", 400))] == ["farther"]
    assert names(line) == ["soon", "between"]


def test_bytes_count_too_and_a_large_one_displaces_several() -> None:
    line = line_of(*(waiter(f"r{index}", 100 + index, size_bytes=300) for index in range(3)), bytes_max=1_000)
    assert [one.request_id for one in line.push(waiter("large", 50, size_bytes=700))] == ["r2", "r1"]
    assert names(line) == ["large", "r0"]
    assert [one.request_id for one in line.push(waiter("huge", 1, size_bytes=2_000))] == ["r0", "large", "huge"]
    assert names(line) == []


def test_a_higher_attempt_takes_the_place_of_a_lower_one() -> None:
    first = waiter("r", 100, attempt=1)
    line = line_of(first, waiter("other", 50))
    second = waiter("r", 20, attempt=2)
    assert line.push(second) == []
    assert names(line) == ["r", "other"]
    assert line.find("r") is second
    assert not line.stands(first)
    assert not line.remove(first)


def test_what_nobody_wants_leaves_with_its_older_attempts_only() -> None:
    line = line_of(waiter("r", attempt=2))
    assert line.forget("r", 1) is None
    assert line.forget("unheard of", 9) is None
    assert names(line) == ["r"]
    forgotten = line.forget("r", 3)
    assert forgotten is not None
    assert names(line) == []


def test_those_who_stand_too_long_are_found_and_stay() -> None:
    line = line_of(waiter("a"), waiter("b"))
    assert line.overdue(999) == []
    assert [one.request_id for one in line.overdue(1_000)] == ["a", "b"]
    assert names(line) == ["a", "b"]


def test_the_line_may_change_while_it_is_walked() -> None:
    line = line_of(*(waiter(f"r{index}", index) for index in range(4)))
    for one in line:
        assert line.remove(one)
    assert len(line) == 0


def test_those_of_a_kind_are_found() -> None:
    line = line_of(waiter("a", kind="x"), waiter("b", kind="x"), waiter("c", kind="y"))
    alike = line.like("x")
    assert alike is not None and alike.item in ("a", "b")
    assert line.like("z") is None
    line.forget("a", 1)
    alike = line.like("x")
    assert alike is not None and alike.item == "b"
    line.forget("b", 1)
    assert line.like("x") is None


steps = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(1, 3), st.integers(0, 5), st.integers(1, 60), st.booleans()),
    max_size=40,
)


@given(steps)
def test_the_line_is_what_a_plain_list_would_be(moves: list[tuple[str, int, int, int, bool]]) -> None:
    line = WaitOrder[str](4, 100)
    model: dict[str, tuple[int, int, int, int]] = {}  # deadline, arrival, attempt, size
    for arrival, (name, attempt, deadline_ms, size, comes) in enumerate(moves):
        standing = line.find(name)
        if comes and (standing is None or standing.attempt < attempt):
            evicted = line.push(waiter(name, deadline_ms, attempt, size, kind=name[0]))
            model[name] = (deadline_ms, arrival, attempt, size)
            gone = []
            while len(model) > 4 or sum(entry[3] for entry in model.values()) > 100:
                last = max(model, key=lambda one: model[one])
                gone.append(last)
                del model[last]
            assert [one.request_id for one in evicted] == gone
        elif not comes:
            line.forget(name, attempt)
            if name in model and model[name][2] <= attempt:
                del model[name]
        assert names(line) == sorted(model, key=lambda one: model[one])


def test_a_result_that_must_come_late_is_not_waited_for() -> None:
    assert not is_too_late(1_000, 500.0, 1_500)
    assert is_too_late(1_000, 501.0, 1_500)


def test_slots_come_free_at_an_even_pace() -> None:
    assert release_forecast_ms(1_000.0, 10, ahead=0, least_ms=50, most_ms=10_000) == 100
    assert release_forecast_ms(1_000.0, 10, ahead=9, least_ms=50, most_ms=10_000) == 1_000
    assert release_forecast_ms(1_000.0, 1_000, ahead=0, least_ms=50, most_ms=10_000) == 50
    assert release_forecast_ms(1_000.0, 1, ahead=99, least_ms=50, most_ms=10_000) == 10_000
    assert release_forecast_ms(1_000.0, 0, ahead=5, least_ms=50, most_ms=10_000) == 50
