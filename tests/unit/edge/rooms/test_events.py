"""Keys of numbered messages, and the defaults of a call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.rooms.core.events import MOVED, RoomCall, numbered_key, read_key
from mesh.words import PostFailure, PostVerdict, RoomAction


@given(st.text(min_size=1), st.integers(0, 2**53))
def test_key_has_both_its_parts(of: str, number: int) -> None:
    assert read_key(numbered_key(of, number)) == (of, number)


def test_keys_of_one_speaker_differ_by_number() -> None:
    assert numbered_key("s-1", 1) != numbered_key("s-1", 11) != numbered_key("s-11", 1)


@pytest.mark.parametrize("key", ["", "s-1", "s-1/", "s-1/x"])
def test_key_without_a_number_is_an_error(key: str) -> None:
    with pytest.raises(ValueError, match="int"):
        read_key(key)


def test_moved_is_no_verdict_of_the_mesh() -> None:
    assert MOVED not in {*PostVerdict, *PostFailure}


def test_call_is_for_the_session_itself_by_default() -> None:
    assert RoomCall(RoomAction.LOOK, "123456") == (RoomAction.LOOK, "123456", "", "", "", "", True)
