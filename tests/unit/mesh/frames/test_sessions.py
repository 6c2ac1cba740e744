from __future__ import annotations

import msgspec
import pytest

from mesh import frames
from mesh.frames.sessions import Post, SessionNote
from mesh.words import PostKind


@pytest.mark.parametrize("room", [None, "", "123456"])
def test_note_tells_an_unchanged_room_from_none(room: str | None) -> None:
    note = SessionNote("s", "edge:a", 1, room=room)
    again = frames.decode_frame(frames.encode(note))
    assert isinstance(again, SessionNote)
    assert again.room == room


def test_post_of_older_edge_is_not_parked() -> None:
    post = frames.decode_frame(msgspec.msgpack.encode(["Post", "r", "edge:a", "s", "signal", "k"]))
    assert post == Post("r", "edge:a", "s", PostKind.SIGNAL, "k", park=False)
