"""Rooms in the session SDK, against scripted edges on real WebSockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from linguamesh.session import RoomError, Session, SessionError, Translation
from tests.support.conditions import DEADLINE_S
from tests.support.fakes.played_mesh import recv_close
from tests.support.fakes.scripted_server import Peer, ScriptedServer, scripted_server


@pytest.fixture
async def servers() -> AsyncIterator[tuple[ScriptedServer, ScriptedServer]]:
    async with scripted_server() as first, scripted_server() as second:
        yield first, second


async def accept(server: ScriptedServer, session_id: str = "s-1", **more: Any) -> Peer:
    peer = await server.peer()
    await peer.recv("session_init")
    await peer.send("session_init_ack", session_id=session_id, trace_id="t-1", resume_token="token", **more)
    return peer


async def opened(servers: tuple[ScriptedServer, ...], **options: Any) -> tuple[Session, Peer]:
    urls = [server.url for server in servers]
    session = Session(urls, src="en", tgt="es", reconnect_delay=lambda failures: 0.0, **options)
    entering = asyncio.create_task(session.__aenter__())
    peer = await accept(servers[0])
    return await entering, peer


async def closed(session: Session, peer: Peer) -> None:
    closing = asyncio.create_task(session.close())
    await recv_close(peer)
    await peer.send("session_close_ack", session_id=session.session_id)
    await closing


async def until(condition: Callable[[], object]) -> None:
    """Returns once it is so."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


def member(session_id: str, **more: Any) -> dict[str, Any]:
    return {"participant_id": session_id, "session_id": session_id, "joined_at": "2025-01-01T00:00:00Z", **more}


async def send_members(peer: Peer, *members: dict[str, Any], code: str = "123456") -> None:
    await peer.send("room_members", room_code=code, members=list(members))


async def joined(session: Session, peer: Peer, **fields: Any) -> None:
    joining = asyncio.create_task(session.join_room("123456", **fields))
    await peer.recv("room_join")
    await send_members(peer, member("s-9"), member("s-1"))
    await joining


def result(session_id: str, index: int, **more: Any) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "utterance_index": index,
        "job_id": "",
        "text_asr": f"{session_id}/{index}",
        "text_translated": "",
        "tts_audio": "",
        "tts_format": "pcm16",
        "trace_id": "t-1",
        **more,
    }


async def test_room_is_created_and_left(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    session, peer = await opened(servers)
    assert (session.room_code, session.members) == (None, [])
    creating = asyncio.create_task(session.create_room(display_name="Ann", preferred_lang="en"))
    request = await peer.recv("room_create")
    assert (request["display_name"], request["preferred_lang"]) == ("Ann", "en") and request["client_ts"] > 0
    await peer.send("room_create_ack", room_code="123456", room_id="room-1")
    await send_members(peer, member("s-1", display_name="Ann"))
    assert await creating == session.room_code == "123456"
    assert [one.display_name for one in session.members] == ["Ann"]
    await session.leave_room()
    assert (await peer.recv("room_leave"))["room_code"] == "123456"
    await send_members(peer, member("s-9"))  # sent before the mesh knew of the leave
    assert (session.room_code, session.members) == (None, [])
    with pytest.raises(RoomError, match="NOT_IN_ROOM"):
        await session.leave_room()
    await closed(session, peer)


async def test_join_returns_the_members(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    events: list[Any] = []
    session, peer = await opened(servers, on_event=events.append)
    joining = asyncio.create_task(session.join_room("123456", display_name="Bob", preferred_lang="es"))
    request = await peer.recv("room_join")
    assert (request["room_code"], request["display_name"], request["preferred_lang"]) == ("123456", "Bob", "es")
    await send_members(peer, member("s-9"), member("s-1"), code="999999")  # of another room
    await send_members(peer, member("s-9"))  # on its way before the request came
    await send_members(peer, member("s-9"), member("s-1"))
    assert [one.session_id for one in await joining] == ["s-9", "s-1"]
    await send_members(peer, member("s-9"), member("s-1"), member("s-7"))
    await peer.send("room_expired", room_code="123456", message="idle")
    await until(lambda: not session.room_code)
    assert [type(event).__name__ for event in events] == ["RoomMembers"] * 4 + ["RoomExpired"]
    assert session.members == []
    await closed(session, peer)


@pytest.mark.parametrize("code", ["ROOM_NOT_FOUND", "ROOM_FULL", "INVALID_ROOM_CODE", "ALREADY_IN_ROOM"])
async def test_refused_room_request_raises_and_the_session_stays_open(
    servers: tuple[ScriptedServer, ScriptedServer], code: str
) -> None:
    session, peer = await opened(servers)
    joining = asyncio.create_task(session.join_room("123456"))
    await peer.recv("room_join")
    await peer.send("room_error", code="RAW_VOICE_DECLINED")  # of a signal, which has no waiting caller
    await peer.send("room_error", code=code, message="no")
    with pytest.raises(RoomError, match=f"{code}: no") as refused:
        await joining
    assert isinstance(refused.value, SessionError) and refused.value.hint
    assert session.room_code is None
    await joined(session, peer)
    await closed(session, peer)


async def test_room_request_without_a_reply_times_out(
    servers: tuple[ScriptedServer, ScriptedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, peer = await opened(servers)
    monkeypatch.setattr("linguamesh.session.rooms.REPLY_TIMEOUT_S", 0.05)
    with pytest.raises(RoomError, match="no answer within"):
        await session.create_room()
    await closed(session, peer)


async def test_voice_preference_is_sent_and_confirmed(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    session, peer = await opened(servers)
    with pytest.raises(RoomError, match="NOT_IN_ROOM"):
        await session.set_raw_voice("s-9", False)
    await joined(session, peer)
    setting = asyncio.create_task(session.set_raw_voice("s-9", False))
    request = await peer.recv("room_raw_voice_preference")
    assert (request["target_session_id"], request["receive_raw_voice"]) == ("s-9", False)
    await send_members(peer, member("s-9"), member("s-1"))  # before it was carried out
    await send_members(peer, member("s-9"), member("s-1", raw_voice_preferences={"s-9": False}))
    await setting
    setting = asyncio.create_task(session.set_raw_voice("s-0", False))
    await peer.recv("room_raw_voice_preference")
    await peer.send("room_error", code="MEMBER_NOT_FOUND")
    with pytest.raises(RoomError, match="MEMBER_NOT_FOUND"):
        await setting
    await closed(session, peer)


@pytest.mark.parametrize(("kind", "field"), [("offer", "sdp"), ("answer", "sdp"), ("ice", "candidate")])
async def test_signals_are_relayed_both_ways(
    servers: tuple[ScriptedServer, ScriptedServer], kind: str, field: str
) -> None:
    events: list[Any] = []
    session, peer = await opened(servers, on_event=events.append)
    await joined(session, peer)
    await session.signal(kind, "s-9", {"any": ["thing"]})
    message = await peer.recv(f"webrtc_{kind}")
    assert (message["room_code"], message["to"], message[field]) == ("123456", "s-9", {"any": ["thing"]})
    with pytest.raises(ValueError, match="'bye'; it must be one of offer, answer, ice"):
        await session.signal("bye", "s-9", {})
    await peer.send(f"webrtc_{kind}", **{"room_code": "123456", "to": "s-9", field: "back"})
    await session.leave_room()
    await closed(session, peer)
    assert getattr(events[-2], field) == "back"


async def test_results_of_peers_are_in_order_and_once(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    session, peer = await opened(servers)
    await joined(session, peer)
    seen: list[Translation] = []

    async def listen() -> None:
        async for translation in session.heard():
            seen.append(translation)

    listening = asyncio.create_task(listen())
    await peer.send("translation_result", **result("s-9", 4))
    assert await peer.recv("result_ack") == {"type": "result_ack", "session_id": "s-9", "utterance_index": 4}
    await peer.send("translation_result", **result("s-8", 0))
    await peer.send("missing_result", session_id="s-9", utterance_index=5, reason="job_failed", created_at_ms=1)
    assert (await peer.recv("result_ack"))["session_id"] == "s-8"
    assert (await peer.recv("result_ack"))["utterance_index"] == 5
    peer.connection.transport.abort()
    peer = await accept(servers[1], resumed=True, room_code="123456")
    await peer.send("translation_result", **result("s-9", 4))  # a duplicate
    assert (await peer.recv("result_ack"))["utterance_index"] == 5
    await peer.send("translation_result", **result("s-9", 7))
    assert (await peer.recv("result_ack"))["utterance_index"] == 7
    assert session.room_code == "123456"
    await closed(session, peer)
    await listening
    assert [(one.speaker, one.utterance_index, one.text_asr) for one in seen] == [
        ("s-9", 4, "s-9/4"),
        ("s-8", 0, "s-8/0"),
        ("s-9", 5, ""),
        ("s-9", 7, "s-9/7"),
    ]
    assert [str(one.error) for one in seen if one.error] == ["MISSING_RESULT: job_failed"]


async def test_own_utterance_in_a_room_ends_without_texts(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    session, peer = await opened(servers)
    await joined(session, peer)
    translating = asyncio.create_task(session.translate(b"\1\0"))
    await peer.recv("utterance")
    await peer.send("utterance_ended", session_id="s-1", utterance_index=0)
    translation = await translating
    assert translation.for_room and translation.text_translated == ""
    assert (await peer.recv("result_ack"))["utterance_index"] == 0
    await closed(session, peer)


async def test_buffered_audio_is_sent_before_leave(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    session, peer = await opened(servers)
    await joined(session, peer)
    await session.speak(b"\1\0" * 4_000)
    await session.end_utterance()
    await session.leave_room()
    kinds = [json.loads(await peer.connection.recv())["type"] for _ in range(5)]
    assert kinds == ["audio_chunk"] * 4 + ["room_leave"]
    await closed(session, peer)


async def test_room_request_is_retried_after_a_reconnect(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    session, peer = await opened(servers)
    creating = asyncio.create_task(session.create_room())
    await peer.recv("room_create")
    peer.connection.transport.abort()
    peer = await accept(servers[1], resumed=True)
    await peer.recv("room_create")  # it did not get through
    peer.connection.transport.abort()
    peer = await accept(servers[0], resumed=True, room_code="123456")  # now it did
    assert await creating == "123456"
    peer.connection.transport.abort()
    peer = await accept(servers[1], resumed=True)  # it expired meanwhile
    await until(lambda: not session.room_code)
    joining = asyncio.create_task(session.join_room("654321"))
    await peer.recv("room_join")
    peer.connection.transport.abort()
    peer = await accept(servers[0], resumed=True, room_code="654321")
    assert await joining == []
    await closed(session, peer)


async def test_new_session_rejoins_the_room_before_it_sends_audio(
    servers: tuple[ScriptedServer, ScriptedServer],
) -> None:
    session, peer = await opened(servers)
    await joined(session, peer, display_name="Ann", preferred_lang="en")
    setting = asyncio.create_task(session.set_raw_voice("s-9", False))
    await peer.recv("room_raw_voice_preference")
    await send_members(peer, member("s-1", raw_voice_preferences={"s-9": False}))
    await setting
    await session.speak(b"\1\0")
    await peer.recv("audio_chunk")
    peer.connection.transport.abort()
    peer = await accept(servers[1], "s-2", resumed=False, lost=True)
    join = await peer.recv("room_join")
    assert (join["room_code"], join["display_name"], join["preferred_lang"]) == ("123456", "Ann", "en")
    assert (await peer.recv("room_raw_voice_preference"))["receive_raw_voice"] is False
    assert (await peer.recv("audio_chunk"))["session_id"] == "s-2"
    await send_members(peer, member("s-9"), member("s-2"))
    await until(lambda: session.members)
    peer.connection.transport.abort()
    peer = await accept(servers[0], "s-3", resumed=False, lost=True)
    await peer.recv("room_join")
    await peer.send("room_error", code="ROOM_NOT_FOUND")
    await until(lambda: not session.room_code)
    await closed(session, peer)


async def test_end_of_the_session_fails_its_room_requests(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    session, peer = await opened(servers)
    joining = asyncio.create_task(session.join_room("123456"))
    await peer.recv("room_join")
    await peer.send("error", code="SESSION_SUPERSEDED", message="")
    with pytest.raises(SessionError, match="SESSION_SUPERSEDED"):
        await joining
    with pytest.raises(SessionError, match="SESSION_SUPERSEDED"):
        await session.create_room()
    await session.close()
