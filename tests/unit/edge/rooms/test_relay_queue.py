"""What waits between a speaker and a listener: order, kept places and bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.rooms.core.relay_queue import RelayLimits, RelayMessage, RelayQueue
from mesh.words import PostKind

LIMITS = RelayLimits(letters_max=4, bytes_max=100)


def letter(key: str, size: int = 10, listener: str = "l", kind: str = "result") -> RelayMessage:
    return RelayMessage(listener, kind, key, b"x" * size, "123456", True)


def keys(letters: RelayQueue, speaker: str = "s", listener: str = "l") -> list[str]:
    """All that can leave, in order."""
    left: list[str] = []
    while (first := letters.first(speaker, listener)) is not None:
        left.append(first.key)
        letters.pop(speaker, listener)
        letters.check()
    return left


def test_letters_leave_in_the_order_of_their_places() -> None:
    letters = RelayQueue(LIMITS)
    letters.reserve("s", "l", "0")
    letters.reserve("s", "l", "1")
    assert letters.put("s", letter("1")) and letters.first("s", "l") is None, "the first one is yet to come"
    assert letters.put("s", letter("2")) and letters.put("s", letter("0"))
    assert len(letters) == 3 and keys(letters) == ["0", "1", "2"] and len(letters) == 0
    letters.check()


def test_places_of_a_speaker_who_is_gone_hold_up_nothing() -> None:
    letters = RelayQueue(LIMITS)
    letters.reserve("s", "l", "0")
    letters.reserve("s", "m", "0")
    letters.put("s", letter("1"))
    letters.put("t", letter("9"))
    assert letters.forget("s") == ["l"] and letters.forget("u") == []
    assert keys(letters) == ["1"] and keys(letters, "t") == ["9"]
    letters.check()


def test_too_many_or_too_large_letters_are_not_taken() -> None:
    letters = RelayQueue(LIMITS)
    for number in range(4):
        assert letters.put("s", letter(str(number)))
    assert not letters.put("s", letter("4")) and letters.put("s", letter("4", listener="m")), "others have room"
    assert keys(letters) == ["0", "1", "2", "3"]
    letters.reserve("s", "l", "5")
    assert letters.put("s", letter("6", 90)) and not letters.put("s", letter("5", 20)), "its place is given up too"
    assert keys(letters) == ["6"]
    assert letters.put("s", letter("7", 1_000)), "a large one alone"
    assert not letters.put("s", letter("8", 1))
    letters.check()


def test_list_of_members_replaces_the_one_that_waits_but_not_the_one_on_its_way() -> None:
    letters = RelayQueue(LIMITS)
    for number in range(9):
        assert letters.put("s", letter(str(number), 60 if number else 1, kind=PostKind.ROOM_MEMBERS))
        letters.check()
    assert keys(letters) == ["0", "8"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reserve", "put", "pop", "forget", "members"]), st.integers(0, 9), st.integers(0, 60)
        ),
        max_size=60,
    )
)
def test_whatever_happens_the_bounds_hold(steps: list[tuple[str, int, int]]) -> None:
    letters = RelayQueue(LIMITS)
    for step, number, size in steps:
        speaker, listener = "st"[number % 2], "lm"[number // 2 % 2]
        if step == "reserve":
            letters.reserve(speaker, listener, str(number))
        elif step == "put":
            letters.put(speaker, letter(str(number), size, listener))
        elif step == "members":
            letters.put(speaker, letter(str(number), size, listener, PostKind.ROOM_MEMBERS))
        elif step == "forget":
            letters.forget(speaker)
        elif letters.first(speaker, listener) is not None:
            letters.pop(speaker, listener)
        letters.check()
    for speaker in "st":
        for listener in letters.forget(speaker):
            keys(letters, speaker, listener)
    assert len(letters) == 0 and not letters._lines
