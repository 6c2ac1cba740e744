"""SDK sessions whose connection is lost: against a played mesh, and against scripted edges."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator
from typing import Any

import pytest

from linguamesh.session import Session, SessionError, Translation
from tests.support.conditions import DEADLINE_S
from tests.support.fakes.played_mesh import played_mesh, recv_close
from tests.support.fakes.scripted_server import Peer, ScriptedServer, scripted_server

AUDIO = b"\x01\x00" * 160


def samples(first: int, count: int) -> bytes:
    """Sound of which every sample is known by its number."""
    return array("h", range(first, first + count)).tobytes()


def numbers(translations: list[Translation]) -> list[int]:
    return [int(number) for translation in translations for number in translation.text_asr.split()]


def no_delay(failures: int) -> float:
    """Reconnect without backoff."""
    return 0.0


async def collect(session: Session) -> list[Translation]:
    return [translation async for translation in session.results()]


# --- a played mesh ------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("seed", range(12))
async def test_all_audio_is_translated_once_and_in_order_across_lost_connections(seed: int, binary: bool) -> None:
    async with asyncio.timeout(DEADLINE_S), played_mesh(3, seed=seed, cuts=12, binary=binary) as mesh:
        mesh.is_busy = seed % 2 == 0
        session = Session(mesh.urls, src="en", tgt="es", reconnect_delay=no_delay, close_timeout=DEADLINE_S)
        async with session:
            reading = asyncio.create_task(collect(session))
            first, whole = 0, 0
            for round_ in range(12):
                for _ in range(3):
                    await session.speak(samples(first, 10))
                    first += 10
                if round_ % 3 == 2:
                    await session.end_utterance()
                    index = await session.send(samples(first, 1))
                    first, whole = first + 1, whole + 1
                    assert index >= whole
        translations = await reading
    assert all(translation.error is None for translation in translations)
    assert [translation.utterance_index for translation in translations] == list(range(len(translations)))
    assert numbers(translations) == list(range(first))
    assert b"".join(translation.tts_audio for translation in translations) == samples(0, first)
    assert (mesh.cuts, session.lost) == (0, False)
    assert session.reconnects and len(set(mesh.dialled)) == 3


@pytest.mark.parametrize("seed", range(8))
async def test_pending_audio_is_retried_in_a_session_that_replaces_a_lost_one(seed: int) -> None:
    async with asyncio.timeout(DEADLINE_S), played_mesh(2, seed=seed, cuts=12, forgets=True) as mesh:
        session = Session(mesh.urls, src="en", tgt="es", reconnect_delay=no_delay, close_timeout=DEADLINE_S)
        async with session:
            reading = asyncio.create_task(collect(session))
            for round_ in range(12):
                await session.speak(samples(30 * round_, 30))
                if round_ % 2:
                    await session.end_utterance()
            # A session that is closing is not replaced: wait until all utterances have ended.
            last = await session.translate(samples(360, 1))
        translations = await reading
    assert [translation.utterance_index for translation in translations] == list(range(last.utterance_index))
    assert set(numbers(translations)) == set(range(360)) and numbers([last]) == [360]
    assert session.lost == (mesh.sessions > 1)


async def test_translate_succeeds_across_lost_connections() -> None:
    async with asyncio.timeout(DEADLINE_S), played_mesh(2, seed=3, cuts=10) as mesh:
        session = Session(mesh.urls, src="en", tgt="es", reconnect_delay=no_delay, close_timeout=DEADLINE_S)
        async with session:
            results = await asyncio.gather(*(session.translate(samples(number, 1)) for number in range(30)))
    assert numbers(results) == list(range(30))
    assert session.reconnects and mesh.cuts == 0


# --- scripted edges -----------------------------------------------------------------------------------


@pytest.fixture
async def servers() -> AsyncIterator[tuple[ScriptedServer, ScriptedServer]]:
    async with scripted_server() as first, scripted_server() as second:
        yield first, second


async def accept(server: ScriptedServer, session_id: str = "s-1", **more: Any) -> tuple[Peer, dict[str, Any]]:
    """Take a connection; it, and its session_init."""
    peer = await server.peer()
    init = await peer.recv("session_init")
    fields: dict[str, Any] = {"trace_id": "t-1", "resume_token": f"{session_id}.secret", **more}
    await peer.send("session_init_ack", session_id=session_id, **fields)
    return peer, init


async def opened(servers: tuple[ScriptedServer, ...], **options: Any) -> tuple[Session, Peer]:
    urls = [server.url for server in servers]
    session = Session(urls, src="en", tgt="es", **{"reconnect_delay": no_delay, **options})
    entering = asyncio.create_task(session.__aenter__())
    peer, init = await accept(servers[0])
    assert init["resumable"] is True and "resume_token" not in init
    await entering
    return session, peer


async def closed(session: Session, peer: Peer) -> None:
    closing = asyncio.create_task(session.close())
    await recv_close(peer)
    await peer.send("session_close_ack", session_id=session.session_id)
    await closing


def result(index: int, session_id: str = "s-1", **more: Any) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "utterance_index": index,
        "job_id": f"job-{index}",
        "text_asr": f"heard {index}",
        "text_translated": "",
        "tts_audio": "",
        "tts_format": "pcm16",
        "trace_id": "t-1",
        **more,
    }


async def test_resume_at_the_next_address_carries_the_position(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    events: list[Any] = []
    session, peer = await opened(servers, on_event=events.append, pairing_code="123456")
    reading = asyncio.create_task(collect(session))
    await session.speak(AUDIO)
    await session.end_utterance()
    chunk, final = await peer.recv("audio_chunk"), await peer.recv("audio_chunk")
    assert (chunk["seq"], final["seq"], final["is_final"]) == (0, 1, True)
    await peer.send("translation_result", **result(0, last_seq=1))
    assert (await peer.recv("result_ack"))["utterance_index"] == 0
    await session.speak(AUDIO)
    await session.speak(AUDIO)
    lost = [await peer.recv("audio_chunk") for _ in range(2)]
    peer.connection.transport.abort()
    peer, init = await accept(servers[1], resumed=True, lost=False, next_utterance_index=1, resend_from_seq=3)
    assert (init["resume_token"], init["last_index"], init["last_seq"]) == ("s-1.secret", 0, 1)
    assert "pairing_code" not in init, "it was good for one use"
    assert await peer.recv("audio_chunk") == lost[1], "unchanged, and only from where the mesh wants it"
    await peer.send("translation_result", **result(0, last_seq=1))  # a duplicate
    assert (await peer.recv("result_ack"))["utterance_index"] == 0
    await peer.send("translation_result", **result(1, last_seq=3))
    assert (await peer.recv("result_ack"))["utterance_index"] == 1
    assert (session.reconnects, session.lost, session.url) == (1, False, f"{servers[1].url}/ws/session")
    assert [type(event).__name__ for event in events] == ["SessionInitAck"]
    await closed(session, peer)
    assert [translation.text_asr for translation in await reading] == ["heard 0", "heard 1"]


async def test_retried_whole_utterance_is_identical(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    session, peer = await opened(servers)
    translating = asyncio.create_task(session.translate(AUDIO))
    utterance = await peer.recv("utterance")
    assert utterance["trace_id"]
    peer.connection.transport.abort()
    peer, _ = await accept(servers[1], resumed=True)
    assert await peer.recv("utterance") == utterance
    await peer.send("error", code="UTTERANCE_ENDED", message="its end is on its way", details={"utterance_index": 0})
    await peer.send("translation_result", **result(0))
    assert (await translating).text_asr == "heard 0"
    await closed(session, peer)


async def test_session_that_cannot_be_resumed_continues_as_a_new_one(
    servers: tuple[ScriptedServer, ScriptedServer],
) -> None:
    session, peer = await opened(servers)
    reading = asyncio.create_task(collect(session))
    assert await session.send(AUDIO) == 0
    await peer.recv("utterance")
    await peer.send("translation_result", **result(0))
    assert [await session.send(AUDIO), await session.send(AUDIO)] == [1, 2]
    await peer.recv("utterance")
    await peer.recv("utterance")
    peer.connection.transport.abort()
    peer, _ = await accept(servers[1], "s-2", resumed=False, lost=True)
    again = [await peer.recv("utterance") for _ in range(2)]
    assert [(one["session_id"], one["utterance_index"]) for one in again] == [("s-2", 0), ("s-2", 1)]
    for index in (0, 1):
        await peer.send("translation_result", **result(index, "s-2"))
    await peer.recv("result_ack")
    assert (session.lost, session.session_id) == (True, "s-2")
    assert await session.send(AUDIO) == 3
    assert (await peer.recv("utterance"))["utterance_index"] == 2
    await peer.send("translation_result", **result(2, "s-2"))
    await peer.recv("result_ack")
    await closed(session, peer)
    assert [translation.utterance_index for translation in await reading] == [0, 1, 2, 3]


async def test_results_lost_by_the_mesh_fail(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    session, peer = await opened(servers)
    reading = asyncio.create_task(collect(session))
    for _ in range(3):
        await session.send(AUDIO)
        await peer.recv("utterance")
    peer.connection.transport.abort()
    peer, _ = await accept(servers[1], resumed=True, lost=True)
    await peer.send("translation_result", **result(2))
    assert (await peer.recv("result_ack"))["utterance_index"] == 2
    assert session.lost
    await closed(session, peer)
    errors = [translation.error for translation in await reading]
    assert [str(error) if error else "" for error in errors] == ["MISSING_RESULT: lost", "MISSING_RESULT: lost", ""]


@pytest.mark.parametrize("how", ["error", "close code"])
async def test_superseded_session_does_not_reconnect(servers: tuple[ScriptedServer, ScriptedServer], how: str) -> None:
    session, peer = await opened(servers)
    translating = asyncio.create_task(session.translate(AUDIO))
    await peer.recv("utterance")
    if how == "error":
        await peer.send("error", code="SESSION_SUPERSEDED", message="a newer connection has it")
    else:
        await peer.connection.close(4009, "superseded")
    with pytest.raises(SessionError, match="SESSION_SUPERSEDED"):
        await translating
    with pytest.raises(SessionError, match="SESSION_SUPERSEDED"):
        await session.speak(AUDIO)
    await session.close()
    assert session.reconnects == 0


async def test_reconnects_are_abandoned_after_reconnect_for(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    session = Session(servers[0].url, src="en", tgt="es", reconnect_for=0.3, reconnect_delay=lambda failures: 0.05)
    entering = asyncio.create_task(session.__aenter__())
    peer, _ = await accept(servers[0])
    await entering
    translating = asyncio.create_task(session.translate(AUDIO))
    await peer.recv("utterance")
    assert servers[0]._server is not None
    servers[0]._server.close(close_connections=False)
    peer.connection.transport.abort()
    with pytest.raises(SessionError, match=r"WS_DISCONNECTED.* within 0.3 s: .*refused"):
        await translating
    await session.close()


async def test_without_resume_a_lost_connection_ends_the_session(
    servers: tuple[ScriptedServer, ScriptedServer],
) -> None:
    session = Session([server.url for server in servers], src="en", tgt="es", resume=False)
    entering = asyncio.create_task(session.__aenter__())
    peer, init = await accept(servers[0])
    assert init["resumable"] is False
    await entering
    translating = asyncio.create_task(session.translate(AUDIO))
    await peer.recv("utterance")
    peer.connection.transport.abort()
    with pytest.raises(SessionError, match="WS_DISCONNECTED"):
        await translating
    await session.close()


async def test_retryable_refusal_is_retried_and_another_is_final(
    servers: tuple[ScriptedServer, ScriptedServer],
) -> None:
    session, peer = await opened(servers)
    translating = asyncio.create_task(session.translate(AUDIO))
    await peer.recv("utterance")
    peer.connection.transport.abort()
    for place, code in ((1, "SCHEDULER_DEPENDENCY_DOWN"), (0, "UNSUPPORTED_FEATURE")):
        refused = await servers[place].peer()
        await refused.recv("session_init")
        await refused.send("error", code=code, message="no")
    with pytest.raises(SessionError, match="UNSUPPORTED_FEATURE"):
        await translating
    await session.close()


async def test_first_reachable_address_opens_the_session(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    session = Session(["ws://127.0.0.1:1", servers[1].url], src="en", tgt="es")
    entering = asyncio.create_task(session.__aenter__())
    peer, _ = await accept(servers[1])
    await entering
    await closed(session, peer)


async def test_connection_lost_during_close_is_replaced(
    servers: tuple[ScriptedServer, ScriptedServer],
) -> None:
    session, peer = await opened(servers)
    reading = asyncio.create_task(collect(session))
    await session.speak(AUDIO)
    closing = asyncio.create_task(session.close())
    chunk = await peer.recv("audio_chunk")
    await recv_close(peer)
    peer.connection.transport.abort()
    peer, _ = await accept(servers[1], resumed=True, resend_from_seq=0)
    assert await peer.recv("audio_chunk") == chunk
    await recv_close(peer)
    await peer.send("translation_result", **result(0, last_seq=0))
    await peer.send("session_close_ack", session_id="s-1")
    await closing
    assert [translation.text_asr for translation in await reading] == ["heard 0"]


async def test_closed_session_is_not_replaced(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    session, peer = await opened(servers)
    await session.speak(AUDIO)
    closing = asyncio.create_task(session.close())
    await recv_close(peer)
    peer.connection.transport.abort()
    peer, _ = await accept(servers[1], "s-2", resumed=False, lost=True)
    await closing
    await peer.connection.wait_closed()
    with pytest.raises(SessionError, match="SESSION_CLOSED"):
        await session.speak(AUDIO)
