from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.queues import Envelope, LaneQueues
from mesh.frames import FRAME_VERSION, Head, Lane


def envelope(lane: Lane, *, credited: bool = False) -> Envelope:
    return Envelope([b"", b"", b""], Head(FRAME_VERSION, lane, "", 0, "x", 0), 0, None, credited=credited)


def test_control_is_popped_before_work_and_each_lane_is_fifo() -> None:
    queues = LaneQueues(5)
    work, control = [envelope(Lane.WORK) for _ in range(2)], [envelope(Lane.CONTROL) for _ in range(2)]
    for one in (work[0], control[0], work[1], control[1]):
        queues.put(one)
    assert [queues.pop() for _ in range(5)] == [*control, *work, None]


def test_each_lane_is_bounded_separately() -> None:
    queues = LaneQueues(1)
    queues.put(envelope(Lane.WORK))
    assert not queues.has_capacity(Lane.WORK)
    assert queues.has_capacity(Lane.CONTROL)
    with pytest.raises(AssertionError, match="has_capacity"):
        queues.put(envelope(Lane.WORK))


@given(st.lists(st.sampled_from(["work", "control", "pop", "back"]), max_size=40))
def test_credited_matches_the_queued_messages_after_any_steps(steps: list[str]) -> None:
    queues = LaneQueues(4)
    for step in steps:
        if step == "pop":
            queues.pop()
        elif step == "back":
            if (last := queues.pop()) is not None:
                queues.put_back(last)
        else:
            one = envelope(Lane[step.upper()], credited=step == "work")
            if queues.has_capacity(one.head.lane):
                queues.put(one)
        queues.check()
