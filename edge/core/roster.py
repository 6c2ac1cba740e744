"""The list of members that a client has of its room. Pure.

Lists come from several edges, so a later one may come first: the room's version tells. Codes are used again, ids of
rooms are not.
"""

from __future__ import annotations


class Roster:
    """Which list the client has."""

    __slots__ = ("_room_id", "_version")

    def __init__(self) -> None:
        self._room_id = ""
        self._version = 0

    def take(self, room_id: str, version: int) -> bool:
        """A list came: True if the client is to have it, which is then the one that it has."""
        if room_id == self._room_id and version <= self._version:
            return False
        self._room_id, self._version = room_id, version
        return True
