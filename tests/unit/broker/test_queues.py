from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.queues import Envelope, LaneQueues
from mesh.frames import Goodbye, Head, Lane
from mesh.frames.packets import seal

BYTES_MAX = 1_000


def envelope(lane: Lane, *blobs: bytes, credited: bool = False) -> Envelope:
    entry = seal(Head(lane, "", 0, "x", 0), Goodbye(), blobs=len(blobs))
    return Envelope(entry, None, list(blobs), credited=credited)


def test_control_is_popped_before_work_and_each_lane_is_fifo() -> None:
    queues = LaneQueues(5, BYTES_MAX)
    work, control = [envelope(Lane.WORK) for _ in range(2)], [envelope(Lane.CONTROL) for _ in range(2)]
    for one in (work[0], control[0], work[1], control[1]):
        queues.put(one)
    assert [queues.pop() for _ in range(5)] == [*control, *work, None]


def test_each_lane_is_bounded_separately() -> None:
    queues = LaneQueues(1, BYTES_MAX)
    queues.put(envelope(Lane.WORK))
    assert not queues.has_capacity(envelope(Lane.WORK))
    assert queues.has_capacity(envelope(Lane.CONTROL))
    with pytest.raises(AssertionError, match="has_capacity"):
        queues.put(envelope(Lane.WORK))


def test_each_lane_is_bounded_in_bytes_but_takes_one_frame_of_any_size() -> None:
    queues = LaneQueues(9, BYTES_MAX)
    queues.put(envelope(Lane.WORK, bytes(2 * BYTES_MAX)))
    assert not queues.has_capacity(envelope(Lane.WORK))
    assert queues.has_capacity(envelope(Lane.CONTROL, bytes(500)))
    queues.put(envelope(Lane.CONTROL, bytes(500)))
    assert not queues.has_capacity(envelope(Lane.CONTROL, bytes(500)))
    queues.check()
    assert queues.pop() is not None
    assert queues.has_capacity(envelope(Lane.CONTROL, bytes(500)))
    queues.check()


def test_next_is_what_pop_returns() -> None:
    queues = LaneQueues(9, BYTES_MAX)
    assert queues.next() is None
    for lane in (Lane.WORK, Lane.CONTROL):
        queues.put(envelope(lane))
    assert [queues.next() is queues.pop() for _ in range(2)] == [True, True]


@given(st.lists(st.sampled_from(["work", "control", "pop", "back"]), max_size=40))
def test_credited_matches_the_queued_messages_after_any_steps(steps: list[str]) -> None:
    queues = LaneQueues(4, BYTES_MAX)
    for step in steps:
        if step == "pop":
            queues.pop()
        elif step == "back":
            if (last := queues.pop()) is not None:
                queues.put_back(last)
        else:
            one = envelope(Lane[step.upper()], credited=step == "work")
            if queues.has_capacity(one):
                queues.put(one)
        queues.check()
