"""Result of the scripts that change rooms. Plain values, no Redis: cores may import them."""

from __future__ import annotations

from typing import Literal, NamedTuple

from mesh.frames import RoomMember


class Room(NamedTuple):
    """What became of a request about a room, and who is in it now, in the order in which they came.

    "gone": there is no such room. "taken", "crowded": none can be made under this code, or in its cell. "outsider": who
    asked is not in it. "stranger": the one whom it is about is not. "ended": it was silent for long; "same": not so.
    """

    verdict: Literal["ok", "gone", "full", "taken", "crowded", "outsider", "stranger", "ended", "same"]
    room_id: str = ""
    members: tuple[RoomMember, ...] = ()
    #: Grows with every change of its members.
    version: int = 0
