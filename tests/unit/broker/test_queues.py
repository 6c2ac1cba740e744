from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.queues import Envelope, Lanes
from mesh.frames import FRAME_VERSION, Head, Lane


def mail(lane: Lane, *, credited: bool = False) -> Envelope:
    return Envelope([b"", b"", b""], Head(FRAME_VERSION, lane, "", 0, "x", 0), 0, None, credited=credited)


def test_control_comes_first_and_each_lane_keeps_its_order() -> None:
    lanes = Lanes(5)
    work, control = [mail(Lane.WORK) for _ in range(2)], [mail(Lane.CONTROL) for _ in range(2)]
    for one in (work[0], control[0], work[1], control[1]):
        lanes.put(one)
    assert [lanes.pop() for _ in range(5)] == [*control, *work, None]


def test_each_lane_has_its_own_bound() -> None:
    lanes = Lanes(1)
    lanes.put(mail(Lane.WORK))
    assert not lanes.has_room(Lane.WORK)
    assert lanes.has_room(Lane.CONTROL)
    with pytest.raises(AssertionError, match="has_room"):
        lanes.put(mail(Lane.WORK))


@given(st.lists(st.sampled_from(["work", "control", "pop", "back"]), max_size=40))
def test_the_count_of_held_credit_is_always_right(steps: list[str]) -> None:
    lanes = Lanes(4)
    for step in steps:
        if step == "pop":
            lanes.pop()
        elif step == "back":
            if (last := lanes.pop()) is not None:
                lanes.put_back(last)
        else:
            one = mail(Lane[step.upper()], credited=step == "work")
            if lanes.has_room(one.head.lane):
                lanes.put(one)
        lanes.check()
