"""Result of the scripts that change rooms. Plain values, no Redis: cores may import them."""

from __future__ import annotations

from typing import Literal, NamedTuple

from mesh.frames import RoomMember


class Room(NamedTuple):
    """Result of a change of a room, with its members in the order in which they joined.

    "gone": no such room. "taken": the code is in use. "crowded": the cell has its maximum of rooms. "outsider": the
    caller is no member. "stranger": the target is no member. "ended": deleted by the idle timeout; "same": not idle.
    """

    verdict: Literal["ok", "gone", "full", "taken", "crowded", "outsider", "stranger", "ended", "same"]
    room_id: str = ""
    members: tuple[RoomMember, ...] = ()
    #: Increases with every change of the members.
    version: int = 0
