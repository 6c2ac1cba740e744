"""Gathered acknowledgements: every one leaves exactly once, soon, and in a bounded batch."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.frames import ResultAck
from mesh.link.gathered import Gathered

DELAY_MS = 5


def ack(number: int) -> ResultAck:
    return ResultAck("n", f"job-00-{number}", 1, "delivered")


def numbers(acks: list[ResultAck]) -> list[int]:
    return [int(one.job_id.rpartition("-")[2]) for one in acks]


@pytest.mark.parametrize(
    ("batch_max", "edges", "at_once", "left"),
    [
        (3, "", [], {}),
        (3, "b", [], {"b": [0]}),
        (3, "bcb", [], {"b": [0, 2], "c": [1]}),
        (3, "bbb", [("b", [0, 1, 2])], {}),
        (3, "bcbcb", [("b", [0, 2, 4])], {"c": [1, 3]}),
        (2, "bbbbb", [("b", [0, 1]), ("b", [2, 3])], {"b": [4]}),
        (1, "bc", [("b", [0]), ("c", [1])], {}),
    ],
)
def test_acknowledgements_are_gathered_by_edge_up_to_a_batch(
    batch_max: int, edges: str, at_once: list[tuple[str, list[int]]], left: dict[str, list[int]]
) -> None:
    gathered = Gathered[ResultAck](batch_max, DELAY_MS, lambda _: None)
    sent = [(edge, gathered.add(edge, ack(number), 0)) for number, edge in enumerate(edges)]
    assert [(edge, numbers(frame)) for edge, frame in sent if frame is not None] == at_once
    assert len(gathered) == sum(map(len, left.values())) and bool(gathered) == bool(left)
    assert {edge: numbers(frame) for edge, frame in gathered.pop_all()} == left
    assert len(gathered) == 0 and not gathered and gathered.pop_all() == []


def test_first_one_wakes_after_the_delay_and_those_after_it_ride_along() -> None:
    woken: list[int] = []
    gathered = Gathered[ResultAck](3, DELAY_MS, woken.append)
    for number, now_ms in enumerate((100, 101, 104)):
        gathered.add("bc"[number % 2], ack(number), now_ms)
    assert woken == [105]
    gathered.pop_all()
    gathered.add("b", ack(3), 106)
    assert woken == [105, 111]


def test_full_batch_that_leaves_nothing_pending_makes_the_next_one_the_first() -> None:
    woken: list[int] = []
    gathered = Gathered[ResultAck](2, DELAY_MS, woken.append)
    gathered.add("b", ack(0), 0)
    assert gathered.add("b", ack(1), 1) is not None
    gathered.add("b", ack(2), 3)
    assert woken == [5, 8]


ADD = st.tuples(st.just("add"), st.integers(0, 3))
STEPS = st.lists(ADD | st.tuples(st.sampled_from(["wait", "pop"]), st.integers(0, 9)), max_size=60)


@given(st.integers(1, 4), STEPS)
def test_every_acknowledgement_leaves_once_and_in_time(batch_max: int, steps: list[tuple[str, int]]) -> None:
    wakes: list[int] = []
    gathered = Gathered[ResultAck](batch_max, DELAY_MS, wakes.append)
    added: dict[int, tuple[str, int]] = {}
    left: Counter[int] = Counter()
    now_ms = 0

    def leave(edge: str, acks: list[ResultAck]) -> None:
        assert 0 < len(acks) <= batch_max
        for number in numbers(acks):
            left[number] += 1
            assert added[number][0] == edge and now_ms - added[number][1] <= DELAY_MS

    def pop() -> None:
        for edge, acks in gathered.pop_all():
            leave(edge, acks)
        assert not gathered

    for kind, number in steps:
        if kind == "add":
            edge = f"edge-{number}"
            added[len(added)] = (edge, now_ms)
            full = gathered.add(edge, ack(len(added) - 1), now_ms)
            if full is not None:
                leave(edge, full)
        elif kind == "pop":
            pop()
        else:
            end_ms = now_ms + number
            for due_ms in sorted(due for due in wakes if due <= end_ms):
                now_ms = max(now_ms, due_ms)
                pop()
            wakes[:] = [due for due in wakes if due > end_ms]
            now_ms = end_ms
        assert len(gathered) == len(added) - left.total()
    pop()
    assert left == Counter(added.keys()), "each once"
