"""The room of a session: requests, retries after a reconnect, and the rejoin in a new session."""

from __future__ import annotations

import asyncio

import pytest

from linguamesh.errors import RoomError, SessionError
from linguamesh.session.rooms import Rooms
from mesh.messages import client as wire


def ack(session_id: str, *, resumed: bool = False, room_code: str | None = None) -> wire.SessionInitAck:
    return wire.SessionInitAck(session_id=session_id, trace_id="t-1", resumed=resumed, room_code=room_code)


def members(code: str, *session_ids: str) -> wire.RoomMembers:
    participants = [
        wire.Participant(participant_id=one, session_id=one, joined_at="2026-01-01T00:00:00Z") for one in session_ids
    ]
    return wire.RoomMembers(room_code=code, members=participants)


class Room:
    """Rooms of the open session s-1, and its sent messages."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[wire.ClientMessage] = asyncio.Queue()
        self.rooms = Rooms(self._send)
        assert self.rooms.on_session_init_ack(ack("s-1"), is_first=True) == []

    async def _send(self, message: wire.ClientMessage) -> None:
        await self.sent.put(message)

    async def join(self, code: str) -> asyncio.Task[list[wire.Participant]]:
        """A join that is sent."""
        joining = asyncio.create_task(self.rooms.join(code, "Ann", "en"))
        assert isinstance(await self.sent.get(), wire.RoomJoin)
        return joining


async def test_join_ends_with_the_members_that_include_the_session() -> None:
    room = Room()
    joining = await room.join("123456")
    room.rooms.on_members(members("123456", "s-2"))
    room.rooms.on_members(members("999999", "s-1"))
    await asyncio.sleep(0)
    assert not joining.done()
    room.rooms.on_members(members("123456", "s-2", "s-1"))
    assert [one.session_id for one in await joining] == ["s-2", "s-1"]
    assert room.rooms.code == "123456"


async def test_refused_join_raises_its_code() -> None:
    room = Room()
    joining = await room.join("123456")
    room.rooms.on_error(wire.RoomErrorMessage(code="ROOM_FULL", message="8 members"))
    with pytest.raises(RoomError, match="ROOM_FULL"):
        await joining
    assert room.rooms.code is None


async def test_join_without_effect_is_retried_after_a_resume() -> None:
    room = Room()
    joining = await room.join("123456")
    room.rooms.on_session_init_ack(ack("s-1", resumed=True), is_first=False)
    retried = await room.sent.get()
    assert isinstance(retried, wire.RoomJoin) and retried.room_code == "123456"
    room.rooms.on_members(members("123456", "s-1"))
    await joining


async def test_join_with_effect_is_not_retried_after_a_resume() -> None:
    room = Room()
    joining = await room.join("123456")
    room.rooms.on_session_init_ack(ack("s-1", resumed=True, room_code="123456"), is_first=False)
    await joining
    assert room.sent.empty() and room.rooms.code == "123456"


async def test_new_session_begins_with_a_rejoin_and_its_refusal_leaves_the_room() -> None:
    room = Room()
    joining = await room.join("123456")
    room.rooms.on_members(members("123456", "s-1"))
    await joining
    first = room.rooms.on_session_init_ack(ack("s-2"), is_first=False)
    assert first == [wire.RoomJoin(room_code="123456", display_name="Ann", preferred_lang="en")]
    room.rooms.on_error(wire.RoomErrorMessage(code="ROOM_NOT_FOUND", message=""))
    assert room.rooms.code is None


async def test_close_fails_the_pending_request_and_later_ones() -> None:
    room = Room()
    joining = await room.join("123456")
    room.rooms.close(SessionError("SESSION_CLOSED", "the session was closed"))
    with pytest.raises(SessionError, match="SESSION_CLOSED"):
        await joining
    with pytest.raises(SessionError, match="SESSION_CLOSED"):
        await room.rooms.create(None, None)


async def test_signal_outside_a_room_is_refused() -> None:
    with pytest.raises(RoomError, match="NOT_IN_ROOM"):
        await Room().rooms.signal("offer", "s-2", "sdp")
