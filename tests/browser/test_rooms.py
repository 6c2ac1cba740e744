"""Rooms in a page: create, join, results of peers, WebRTC messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import Page

from mesh.messages import client as wire
from tests.browser.session_page import js, opened, recorded, until
from tests.support.fakes.scripted_mesh import Client, ScriptedMesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOM = "123456"


async def say_members(client: Client, *session_ids: str, room: str = ROOM) -> None:
    members = [{"participant_id": one, "session_id": one, "joined_at": "2026-01-01T00:00:00Z"} for one in session_ids]
    await client.send("room_members", room_code=room, members=members)


async def in_room(page: Page, client: Client) -> None:
    joining = asyncio.ensure_future(js(page, "return session.joinRoom(given);", ROOM))
    await client.next(wire.RoomJoin)
    await say_members(client, "s-0", "s-1")
    assert [member["session_id"] for member in await joining] == ["s-0", "s-1"]


async def test_create_room_resolves_to_its_code(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    body = "return session.createRoom({ displayName: 'Ada', preferredLang: 'en' });"
    creating = asyncio.ensure_future(js(page, body))
    request = await client.next(wire.RoomCreate)
    assert (request.display_name, request.preferred_lang) == ("Ada", "en")
    await client.send("room_create_ack", room_code=ROOM)
    assert await creating == ROOM
    await say_members(client, "s-1")
    await say_members(client, "s-1", "s-2")
    await say_members(client, "s-9", room="999999")
    await until(page, "recorded.members.length === 2")
    assert await recorded(page, "members") == [["s-1"], ["s-1", "s-2"]]
    assert await js(page, "return [session.roomCode, session.members.length];") == [ROOM, 2]


async def test_join_of_unknown_room_is_rejected(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    joining = asyncio.ensure_future(js(page, "return outcome(() => session.joinRoom('000000'));"))
    await client.next(wire.RoomJoin)
    await client.send("room_error", code="ROOM_NOT_FOUND", message="no such room")
    assert (await joining)["error"]["code"] == "ROOM_NOT_FOUND"
    assert await js(page, "return session.roomCode;") == ""


async def test_second_room_request_is_rejected_while_one_is_pending(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    first = asyncio.ensure_future(js(page, "return outcome(() => session.createRoom());"))
    await client.next(wire.RoomCreate)
    second = await js(page, "return outcome(() => session.createRoom());")
    assert second["error"]["code"] == "SLOW_DOWN"
    client.abort()
    assert (await first)["error"]["code"] == "WS_DISCONNECTED"


async def test_peer_results_are_reported_once_and_acknowledged(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await in_room(page, client)
    for index in (4, 5, 5):
        await client.send_result(index, f"text {index}", session_id="s-0")
    missing: dict[str, Any] = {"session_id": "s-0", "utterance_index": 6, "reason": "job_failed", "created_at_ms": 1}
    await client.send("missing_result", **missing)
    acks = [await client.next(wire.ResultAckMessage) for _ in range(4)]
    assert [(ack.session_id, ack.utterance_index) for ack in acks] == [("s-0", index) for index in (4, 5, 5, 6)]
    await until(page, "recorded.heard.length === 3")
    heard = await recorded(page, "heard")
    assert [(one["index"], one["sessionId"], one["text"]) for one in heard] == [
        (4, "s-0", "text 4"),
        (5, "s-0", "text 5"),
        (6, "s-0", ""),
    ]
    assert heard[2]["error"]["code"] == "MISSING_RESULT"
    assert await recorded(page, "results") == []


async def test_utterance_ended_acknowledges_its_audio(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await in_room(page, client)
    await js(page, "session.speak(sound(100)); session.endUtterance();")
    await client.chunks(2)
    await client.send("utterance_ended", session_id="s-1", utterance_index=0, last_seq=1)
    # The page emits no event for it, but the next message's event shows that it was processed.
    await client.send("room_expired", room_code="999999", message="another room")
    await until(page, "recorded.events.length === 1")
    await js(page, "session.speak(sound(100));")
    await client.chunk()
    client.abort()
    again = await mesh.client()
    assert (again.init.last_index, again.init.last_seq) == (0, 1)
    await again.accept(resumed=True, resend_from_seq=0, room_code=ROOM)
    assert (await again.chunk()).seq == 2
    assert await js(page, "return [session.roomCode, session.members.length];") == [ROOM, 2]


async def test_room_messages_carry_the_room_code(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await in_room(page, client)
    body = """
      session.setRawVoice("s-0", false);
      session.signal("offer", "s-0", { sdp: "v=0" });
      session.signal("answer", "s-0", { sdp: "v=1" });
      session.signal("ice", "s-0", { candidate: "c" });
      session.leaveRoom();
    """
    await js(page, body)
    preference = await client.next(wire.RoomRawVoicePreference)
    assert (preference.room_code, preference.target_session_id, preference.receive_raw_voice) == (ROOM, "s-0", False)
    offer = await client.next(wire.WebrtcOffer)
    assert (offer.room_code, offer.to, offer.sdp) == (ROOM, "s-0", {"sdp": "v=0"})
    assert (await client.next(wire.WebrtcAnswer)).sdp == {"sdp": "v=1"}
    assert (await client.next(wire.WebrtcIce)).candidate == {"candidate": "c"}
    assert (await client.next(wire.RoomLeave)).room_code == ROOM
    refused = await js(page, "return outcome(() => session.signal('offer', 's-0', {}));")
    assert refused["error"]["code"] == "NOT_IN_ROOM"


async def test_webrtc_messages_and_room_expiry_are_events(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await in_room(page, client)
    await client.send("webrtc_offer", room_code=ROOM, to="s-0", sdp={"sdp": "v=0"})
    await client.send("room_error", code="MEMBER_NOT_FOUND", message="gone")
    await client.send("room_expired", room_code=ROOM, message="nobody spoke")
    await until(page, "recorded.events.length === 3")
    assert [event["type"] for event in await recorded(page, "events")] == ["webrtc_offer", "room_error", "room_expired"]
    assert await js(page, "return [session.roomCode, session.members];") == ["", []]
