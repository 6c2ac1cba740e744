"""The session SDK against a scripted edge on a real WebSocket."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from linguamesh.session import Session, SessionError, Translation, Unreachable
from tests.support.conditions import DEADLINE_S
from tests.support.fakes.played_mesh import recv_close
from tests.support.fakes.scripted_server import Peer, ScriptedServer, scripted_server

AUDIO = b"\x01\x00" * 160


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as scripted:
        yield scripted


async def accept(server: ScriptedServer) -> Peer:
    peer = await server.peer()
    await peer.recv("session_init")
    await peer.send("session_init_ack", session_id="s-1", message="session created", trace_id="t-1")
    return peer


async def opened(server: ScriptedServer, **options: Any) -> tuple[Session, Peer]:
    entering = asyncio.create_task(Session(server.url, src="en", tgt="es", **options).__aenter__())
    peer = await accept(server)
    return await entering, peer


async def closed(session: Session, peer: Peer) -> None:
    closing = asyncio.create_task(session.close())
    await recv_close(peer)
    await peer.send("session_close_ack", session_id="s-1")
    await closing


def result(index: int, **more: Any) -> dict[str, Any]:
    return {
        "session_id": "s-1",
        "utterance_index": index,
        "job_id": f"job-00-{index}",
        "text_asr": f"heard {index}",
        "text_translated": f"oído {index}",
        "tts_audio": base64.b64encode(b"\x05\x00").decode(),
        "tts_format": "pcm16",
        "trace_id": "t-1",
        **more,
    }


async def test_session_opens_translates_and_closes(server: ScriptedServer) -> None:
    entering = asyncio.create_task(Session(server.url, src="en", tgt="es", tenant_id="acme").__aenter__())
    peer = await server.peer()
    assert peer.connection.request is not None
    assert peer.connection.request.path == "/ws/session"
    init = await peer.recv("session_init")
    assert (init["src_lang"], init["tgt_lang"], init["tenant_id"]) == ("en", "es", "acme")
    await peer.send("session_init_ack", session_id="s-1", message="session created", trace_id="t-1")
    session = await entering
    assert session.session_id == "s-1"
    translating = asyncio.create_task(session.translate(AUDIO, sample_rate=8_000))
    utterance = await peer.recv("utterance")
    assert base64.b64decode(utterance["audio"]) == AUDIO
    assert (utterance["session_id"], utterance["utterance_index"]) == ("s-1", 0)
    assert (utterance["audio_format"], utterance["sample_rate"]) == ("pcm16", 8_000)
    timings = {"service_timings": {"asr_ms": 3, "total_ms": 9}, "network_timings": {"scheduler_to_node_ms": 1}}
    await peer.send("translation_result", **result(0, **timings))
    translation = await translating
    assert (translation.text_asr, translation.text_translated) == ("heard 0", "oído 0")
    assert translation.tts_audio == b"\x05\x00"
    assert translation.service_timings == {"asr_ms": 3, "total_ms": 9}
    assert translation.network_timings == {"scheduler_to_node_ms": 1}
    assert translation.total_ms >= 0
    await closed(session, peer)


async def test_concurrent_utterances_get_their_own_results_in_any_order(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    translating = [asyncio.create_task(session.translate(AUDIO)) for _ in range(5)]
    indices = [(await peer.recv("utterance"))["utterance_index"] for _ in range(5)]
    assert sorted(indices) == [0, 1, 2, 3, 4]
    for index in reversed(indices):
        await peer.send("translation_result", **result(index))
        await peer.send("translation_result", **result(index, text_asr="a duplicate"))
    translations = await asyncio.gather(*translating)
    assert [translation.text_asr for translation in translations] == [
        f"heard {translation.utterance_index}" for translation in translations
    ]
    await closed(session, peer)


async def test_results_of_sent_utterances_are_in_order(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    assert [await session.send(AUDIO) for _ in range(3)] == [0, 1, 2]
    await peer.send("translation_result", **result(1))
    await peer.send("missing_result", session_id="s-1", utterance_index=0, reason="silence_detected", created_at_ms=1)
    seen: list[Translation] = []

    async def read() -> None:
        async for translation in session.results():
            seen.append(translation)
            if len(seen) == 2:
                await closed(session, peer)

    await asyncio.wait_for(read(), DEADLINE_S)
    assert [t.utterance_index for t in seen] == [0, 1, 2]
    assert [t.error.code if t.error else "" for t in seen] == ["MISSING_RESULT", "", "SESSION_CLOSED"]


async def test_error_fails_the_utterance_that_it_names(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    first, second = asyncio.create_task(session.translate(AUDIO)), asyncio.create_task(session.translate(AUDIO))
    for _ in range(2):
        await peer.recv("utterance")
    details = {"utterance_index": 1, "reason": "language"}
    await peer.send(
        "ui_event",
        trace_id="t-1",
        session_id="s-1",
        job_id="",
        utterance_index=1,
        event="ERROR",
        status="error",
        error_code="NO_AVAILABLE_NODE",
        hint="later",
    )
    await peer.send("error", code="NO_AVAILABLE_NODE", message="no node", details=details)
    with pytest.raises(SessionError) as failed:
        await second
    assert (failed.value.code, failed.value.utterance_index) == ("NO_AVAILABLE_NODE", 1)
    assert failed.value.details == details
    assert "Try again" in failed.value.hint
    await peer.send("translation_result", **result(0))
    assert (await first).text_asr == "heard 0"
    await closed(session, peer)


async def test_error_event_without_an_error_fails_its_utterance(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    translating = [asyncio.create_task(session.translate(AUDIO)) for _ in range(2)]
    for _ in translating:
        await peer.recv("utterance")
    await peer.send(
        "ui_event",
        trace_id="t-1",
        session_id="s-1",
        job_id="",
        utterance_index=0,
        event="ERROR",
        status="error",
        error_code="JOB_TIMEOUT",
    )
    with pytest.raises(SessionError, match="JOB_TIMEOUT"):
        await translating[0]
    await peer.send("translation_result", **result(1))
    await translating[1]
    await closed(session, peer)


async def test_error_after_its_event_fails_that_utterance(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    translating = [asyncio.create_task(session.translate(AUDIO)) for _ in range(3)]
    for _ in translating:
        await peer.recv("utterance")
    await peer.send(
        "ui_event", trace_id="t-1", session_id="s-1", job_id="", utterance_index=2, event="ERROR", status="error"
    )
    await peer.send("error", code="OUT_OF_TEA", message="a node's own code")
    with pytest.raises(SessionError, match="OUT_OF_TEA: a node's own code"):
        await translating[2]
    for index in (0, 1):
        await peer.send("translation_result", **result(index))
        await translating[index]
    await closed(session, peer)


async def test_error_without_an_index_fails_the_only_utterance(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    translating = asyncio.create_task(session.translate(AUDIO))
    await peer.recv("utterance")
    await peer.send("error", code="INVALID_AUDIO", message="odd number of bytes")
    with pytest.raises(SessionError, match="INVALID_AUDIO: odd number of bytes"):
        await translating
    await closed(session, peer)


async def test_lost_connection_without_resume_fails_pending_utterances(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    translating = asyncio.create_task(session.translate(AUDIO))
    await peer.recv("utterance")
    peer.connection.transport.abort()
    with pytest.raises(SessionError, match="WS_DISCONNECTED"):
        await translating
    with pytest.raises(SessionError, match="WS_DISCONNECTED"):
        await session.translate(AUDIO)
    await session.close()


async def test_translate_without_a_result_times_out(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    with pytest.raises(SessionError, match="JOB_TIMEOUT: no result within"):
        await session.translate(AUDIO, timeout=0.05)
    translating = asyncio.create_task(session.translate(AUDIO))
    await peer.recv("utterance")
    await peer.recv("utterance")
    await peer.send("translation_result", **result(0))  # late: the caller has timed out
    await peer.send("translation_result", **result(1))
    assert (await translating).utterance_index == 1
    await closed(session, peer)


async def test_events_reach_the_callback_and_its_exceptions_are_logged(server: ScriptedServer) -> None:
    events: list[Any] = []

    def on_event(message: Any) -> None:
        events.append(message)
        raise RuntimeError("bug of the user")

    session, peer = await opened(server, on_event=on_event)
    translating = asyncio.create_task(session.translate(AUDIO))
    await peer.recv("utterance")
    await peer.send(
        "asr_partial", session_id="s-1", utterance_index=0, job_id="", text="hea", is_final=False, trace_id="t-1"
    )
    await peer.send("backpressure", action="SLOW_DOWN", resume_after_ms=1)
    await peer.send("translation_result", **result(0))
    await translating
    assert [type(event).__name__ for event in events] == ["AsrPartial", "Backpressure"]
    await closed(session, peer)


async def test_session_sends_heartbeats(server: ScriptedServer) -> None:
    session, peer = await opened(server, heartbeat_interval=0.01)
    beat = await peer.recv("client_heartbeat")
    assert beat["session_id"] == "s-1"
    await closed(session, peer)


async def test_refused_session_is_a_session_error(server: ScriptedServer) -> None:
    entering = asyncio.create_task(Session(server.url, src="en", tgt="es").__aenter__())
    peer = await server.peer()
    await peer.recv("session_init")
    await peer.send("error", code="SCHEDULER_DEPENDENCY_DOWN", message="no store")
    with pytest.raises(SessionError, match="SCHEDULER_DEPENDENCY_DOWN"):
        await entering


async def test_server_without_a_reply_is_unreachable(server: ScriptedServer) -> None:
    with pytest.raises(Unreachable, match="did not answer session_init"):
        await Session(server.url, tgt="es", open_timeout=0.2).__aenter__()


@pytest.mark.parametrize(
    ("url", "text"),
    [("ws://127.0.0.1:1", "refused"), ("http://127.0.0.1:1", "refused"), ("ftp://127.0.0.1:1", "not a WebSocket")],
)
async def test_refused_connection_is_unreachable_in_one_line(url: str, text: str) -> None:
    with pytest.raises(Unreachable, match=text) as error:
        await Session(url, tgt="es").__aenter__()
    assert "\n" not in str(error.value)


async def test_session_that_is_not_open_refuses_utterances() -> None:
    with pytest.raises(SessionError, match="not open"):
        await Session("ws://127.0.0.1:1", tgt="es").translate(AUDIO)
