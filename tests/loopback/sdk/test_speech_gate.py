"""The speech gate in front of a session, over a real WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from linguamesh.session import SessionError
from linguamesh.speech_gate import speech_of
from tests.loopback.sdk.test_stream import closed, opened, recv_utterance
from tests.loopback.sdk.test_stream import sound_of as sound_in
from tests.support.builders.speech import QUIET, RATE, VOICE, sound_of
from tests.support.fakes.scripted_server import ScriptedServer, scripted_server

#: Bytes of one millisecond, at 16 kHz.
MS = RATE * 2 // 1_000
TWO = [(500, QUIET), (200, VOICE), (1_000, QUIET), (200, VOICE), (1_000, QUIET)]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as scripted:
        yield scripted


async def microphone(sound: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(sound), 999):
        yield sound[start : start + 999]


async def test_pauses_of_a_microphone_separate_utterances(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    sound = sound_of(TWO)
    await session.stream(speech_of(microphone(sound)))
    first, second = await recv_utterance(peer), await recv_utterance(peer)
    assert sound_in(first) == sound[200 * MS : 1_000 * MS]
    assert sound_in(second) == sound[1_400 * MS : 2_200 * MS]
    assert [chunk["seq"] for chunk in [*first, *second]] == list(range(len(first) + len(second)))
    await closed(session, peer)


async def test_none_in_a_source_ends_the_utterance_once(server: ScriptedServer) -> None:
    def pieces() -> Iterator[bytes | None]:
        yield from (None, b"one ", b"more", None, None, b"last")

    session, peer = await opened(server)
    await session.stream(pieces())
    assert [sound_in(await recv_utterance(peer)), sound_in(await recv_utterance(peer))] == [b"one more", b"last"]
    await closed(session, peer)


async def test_stream_of_silence_ends_with_its_session(server: ScriptedServer) -> None:
    listening = asyncio.Event()

    async def silence() -> AsyncIterator[bytes]:
        while True:
            yield bytes(3_200)
            listening.set()
            await asyncio.sleep(0)

    session, peer = await opened(server)
    streaming = asyncio.create_task(session.stream(speech_of(silence())))
    await listening.wait()
    await peer.send("error", code="SESSION_SUPERSEDED", message="taken over")
    with pytest.raises(SessionError, match="SESSION_SUPERSEDED"):
        await streaming
    await session.close()
