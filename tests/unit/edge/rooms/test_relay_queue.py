"""What waits between a speaker and a listener: order, kept places and bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.rooms.core.relay_queue import RelayLimits, RelayMessage, RelayQueue
from mesh.words import PostKind

LIMITS = RelayLimits(messages_max=4, bytes_max=100)


def message(key: str, size: int = 10, listener: str = "l", kind: str = "result") -> RelayMessage:
    return RelayMessage(listener, kind, key, b"x" * size, "123456", True)


def keys(queue: RelayQueue, speaker: str = "s", listener: str = "l") -> list[str]:
    """All that can leave, in order."""
    left: list[str] = []
    while (first := queue.first(speaker, listener)) is not None:
        left.append(first.key)
        queue.pop(speaker, listener)
        queue.check()
    return left


def test_messages_leave_in_the_order_of_their_places() -> None:
    queue = RelayQueue(LIMITS)
    queue.reserve("s", "l", "0")
    queue.reserve("s", "l", "1")
    assert queue.put("s", message("1")) and queue.first("s", "l") is None, "the first one is yet to come"
    assert queue.put("s", message("2")) and queue.put("s", message("0"))
    assert len(queue) == 3 and keys(queue) == ["0", "1", "2"] and len(queue) == 0
    queue.check()


def test_places_of_a_speaker_that_left_block_nothing() -> None:
    queue = RelayQueue(LIMITS)
    queue.reserve("s", "l", "0")
    queue.reserve("s", "m", "0")
    queue.put("s", message("1"))
    queue.put("t", message("9"))
    assert queue.forget("s") == ["l"] and queue.forget("u") == []
    assert keys(queue) == ["1"] and keys(queue, "t") == ["9"]
    queue.check()


def test_too_many_or_too_large_messages_are_refused() -> None:
    queue = RelayQueue(LIMITS)
    for number in range(4):
        assert queue.put("s", message(str(number)))
    assert not queue.put("s", message("4")) and queue.put("s", message("4", listener="m")), "others have room"
    assert keys(queue) == ["0", "1", "2", "3"]
    queue.reserve("s", "l", "5")
    assert queue.put("s", message("6", 90)) and not queue.put("s", message("5", 20)), "its place is cancelled too"
    assert keys(queue) == ["6"]
    assert queue.put("s", message("7", 1_000)), "a large one alone"
    assert not queue.put("s", message("8", 1))
    queue.check()


def test_list_of_members_replaces_the_one_that_waits_but_not_the_one_in_flight() -> None:
    queue = RelayQueue(LIMITS)
    for number in range(9):
        assert queue.put("s", message(str(number), 60 if number else 1, kind=PostKind.ROOM_MEMBERS))
        queue.check()
    assert keys(queue) == ["0", "8"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reserve", "put", "pop", "forget", "members"]), st.integers(0, 9), st.integers(0, 60)
        ),
        max_size=60,
    )
)
def test_whatever_happens_the_bounds_hold(steps: list[tuple[str, int, int]]) -> None:
    queue = RelayQueue(LIMITS)
    for step, number, size in steps:
        speaker, listener = "st"[number % 2], "lm"[number // 2 % 2]
        if step == "reserve":
            queue.reserve(speaker, listener, str(number))
        elif step == "put":
            queue.put(speaker, message(str(number), size, listener))
        elif step == "members":
            queue.put(speaker, message(str(number), size, listener, PostKind.ROOM_MEMBERS))
        elif step == "forget":
            queue.forget(speaker)
        elif queue.first(speaker, listener) is not None:
            queue.pop(speaker, listener)
        queue.check()
    for speaker in "st":
        for listener in queue.forget(speaker):
            keys(queue, speaker, listener)
    assert len(queue) == 0 and not queue._queues
