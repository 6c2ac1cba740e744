"""What a client was told and has not acknowledged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.sessions.core.results.unacked import Unacked
from mesh.frames import Push


def push(number: int, attempt: int = 1) -> Push:
    return Push(f"job-00-{number}", attempt, "n", "edge-b", f"r{number}", "s-1", number)


def test_keeper_waits_until_the_client_has_it() -> None:
    acks = Unacked()
    for index in range(3):
        acks.add(index, push(index))
        acks.sent(index, b"result %d" % index)
    acks.add(1, push(1))  # the keeper asked again
    assert acks.has(push(1)) and not acks.has(push(1, attempt=2)) and len(acks) == 3
    assert acks.ack(1) == [push(0), push(1)], "everything up to that index, once"
    assert acks.ack(1) == [] and not acks.has(push(0)) and acks.has(push(2))
    acks.check()


def test_next_connection_is_told_what_the_last_one_may_not_have_got() -> None:
    acks = Unacked()
    for index in (2, 0, 1):
        acks.sent(index, b"%d" % index, b"sound" if index == 1 else None)
    assert acks.after(-1) == [(b"0", None), (b"1", b"sound"), (b"2", None)] and acks.bytes == 8
    assert acks.after(1) == [(b"2", None)] and acks.after(5) == []
    acks.check()


def test_in_a_room_the_keeper_waits_for_every_listener_whatever_the_speaker_says() -> None:
    acks = Unacked()
    acks.add(0, push(0))
    assert acks.add_listeners(0, 2) == [] and acks.ack(9) == []
    assert acks.add_listeners(0, -1) == [] and acks.add_listeners(0, -1) == [push(0)]
    assert len(acks) == 0
    acks.check()


def test_end_of_the_session_lets_everything_go() -> None:
    acks = Unacked()
    acks.add(0, push(0))
    acks.add_listeners(0, 1)
    acks.add(1, push(1))
    assert acks.end() == [push(0), push(1)] and len(acks) == 0
    acks.check()


@given(
    st.lists(
        st.tuples(st.sampled_from(["keep", "told", "ack", "listens"]), st.integers(0, 5), st.integers(0, 9)),
        max_size=60,
    )
)
def test_every_result_is_let_go_once(steps: list[tuple[str, int, int]]) -> None:
    acks, kept, released = Unacked(), set(), []
    listeners: dict[int, int] = {}
    for what, index, number in steps:
        if what == "keep" and number not in kept:
            kept.add(number)
            acks.add(index, push(number))
        elif what == "told":
            acks.sent(index, b"x")
        elif what == "ack":
            released += acks.ack(index)
        elif what == "listens":
            more = -1 if listeners.get(index) else 1
            listeners[index] = listeners.get(index, 0) + more
            released += acks.add_listeners(index, more)
        acks.check()
    released += acks.end()
    assert sorted(released, key=lambda one: one.job_id) == sorted(map(push, kept), key=lambda one: one.job_id)
