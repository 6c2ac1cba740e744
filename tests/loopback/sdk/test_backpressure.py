"""Backpressure of the mesh and the bound of the send buffer, over a real WebSocket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from linguamesh.session import Session, SessionError, Translation
from tests.loopback.sdk.test_stream import PACKET, SOUND, closed, opened, recv_utterance, result, sizes, sound_of
from tests.support.conditions import DEADLINE_S
from tests.support.fakes.scripted_server import Peer, ScriptedServer, scripted_server


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as scripted:
        yield scripted


async def test_speak_waits_while_the_send_buffer_is_full(server: ScriptedServer) -> None:
    session, peer = await opened(server, kept_bytes_max=2 * PACKET)
    await session.speak(SOUND[:PACKET])
    speaking = asyncio.create_task(session.speak(SOUND[:PACKET]))
    await peer.recv("audio_chunk")
    await session.tts_started(Translation(0))  # goes out behind all sound that may
    assert (await next_message(peer))["type"] == "tts_started"
    assert not speaking.done()
    await peer.send("translation_result", **result(0, last_seq=0))
    assert (await peer.recv("audio_chunk"))["seq"] == 1
    await speaking
    await closed(session, peer)


async def next_message(peer: Peer) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE_S):
        message: dict[str, Any] = json.loads(await peer.connection.recv())
        return message


async def test_slow_down_makes_chunks_fewer_and_larger(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    await peer.send("backpressure", action="PAUSE", resume_after_ms=50)
    await peer.send("backpressure", action="SLOW_DOWN", resume_after_ms=60_000)
    await received_all(session, peer)
    for start in range(0, 7 * PACKET, PACKET):
        await session.speak((SOUND * 4)[start : start + PACKET])
    await session.end_utterance()
    chunks = await recv_utterance(peer)
    assert sizes(chunks) == [5 * PACKET, 2 * PACKET]
    assert sound_of(chunks) == (SOUND * 4)[: 7 * PACKET]
    assert [chunk["seq"] for chunk in chunks] == [0, 1]
    await closed(session, peer)


async def test_rejected_chunk_is_retried_after_the_pause(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    for _ in range(3):
        await session.speak(SOUND[:64])
    chunks = [await peer.recv("audio_chunk") for _ in range(3)]
    await peer.send("backpressure", action="BUSY", resume_after_ms=20)
    await peer.send("error", code="SLOW_DOWN", message="later", details={"seq": 1})
    assert await peer.recv("audio_chunk") == chunks[1]
    await session.end_utterance()
    assert (await peer.recv("audio_chunk"))["seq"] == 3
    await peer.send("translation_result", **result(0, last_seq=3))
    translating = asyncio.create_task(session.translate(SOUND[:2]))
    utterance = await peer.recv("utterance")
    await peer.send("error", code="SLOW_DOWN", message="later", details={"utterance_index": 1})
    await peer.send("backpressure", action="BUSY", resume_after_ms=20)
    assert await peer.recv("utterance") == utterance
    await peer.send("translation_result", **result(1))
    assert (await translating).utterance_index == 1
    await closed(session, peer)


async def test_slow_down_without_an_item_fails_no_utterance(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    translating = asyncio.create_task(session.translate(SOUND[:2]))
    await peer.recv("utterance")
    await peer.send("error", code="SLOW_DOWN", message="later", details={"number": 502})
    await peer.send("error", code="INVALID_AUDIO", message="a chunk was bad", details={"seq": 5})
    await peer.send("translation_result", **result(0))
    assert (await translating).text_asr == "heard 0"
    await closed(session, peer)


async def test_index_of_an_unaccepted_utterance_is_reused(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    translating = asyncio.create_task(session.translate(b""))
    await peer.recv("utterance")
    await peer.send("error", code="INVALID_AUDIO", message="empty", details={"utterance_index": 0})
    with pytest.raises(SessionError, match="INVALID_AUDIO"):
        await translating
    translating = asyncio.create_task(session.translate(SOUND[:2]))
    assert (await peer.recv("utterance"))["utterance_index"] == 0, "or the mesh would wait for the one before"
    await peer.send("translation_result", **result(0))
    assert (await translating).utterance_index == 1
    await closed(session, peer)


async def received_all(session: Session, peer: Peer) -> None:
    """Returns once the session has received all messages sent to it."""
    translating = asyncio.create_task(session.translate(SOUND[:2], timeout=DEADLINE_S))
    await peer.recv("utterance")
    await peer.send("error", code="INVALID_AUDIO", message="", details={"utterance_index": 0})
    with pytest.raises(SessionError):
        await translating
