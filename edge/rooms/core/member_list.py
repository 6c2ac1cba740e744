"""The list of members that a client has of its room. Pure.

Lists arrive from several edges and may overtake each other: the room's version orders them. Codes are reused, ids of
rooms are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from mesh.frames import RoomMember, RoomState
from mesh.messages.client import Participant, RoomMembers


class MemberList:
    """Room and version of the list that the client has."""

    __slots__ = ("_room_id", "_version")

    def __init__(self) -> None:
        self._room_id = ""
        self._version = 0

    def take(self, room_id: str, version: int) -> bool:
        """Record a newer list; False if the client has this one or a later one."""
        if room_id == self._room_id and version <= self._version:
            return False
        self._room_id, self._version = room_id, version
        return True

    def is_older(self, room_id: str, version: int) -> bool:
        """True if the client has a later list of that room."""
        return room_id == self._room_id and version < self._version


def members_of(state: RoomState) -> RoomMembers:
    """The room as its members see it."""
    return RoomMembers(room_code=state.room_code, members=list(_participants(state.members)))


def _participants(members: Iterable[RoomMember]) -> Iterable[Participant]:
    for member in members:
        joined = datetime.fromtimestamp(member.joined_ms / 1_000, UTC)
        yield Participant(
            participant_id=member.session_id,
            session_id=member.session_id,
            display_name=member.display_name or None,
            preferred_lang=member.preferred_lang or None,
            raw_voice_preferences=dict(member.voices),
            joined_at=joined.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        )
