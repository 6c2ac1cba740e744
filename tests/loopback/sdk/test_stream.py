"""Streaming with the session SDK, against a scripted edge on a real WebSocket."""

from __future__ import annotations

import asyncio
import base64
import io
import wave
from array import array
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from linguamesh.session import Session, SessionError, Translation
from mesh.messages import audio_frames
from mesh.messages.audio_frames import AudioFrame, FinalFrame, PingFrame, PongFrame
from tests.support.conditions import DEADLINE_S
from tests.support.fakes.played_mesh import recv_close
from tests.support.fakes.scripted_server import Peer, ScriptedServer, scripted_server

#: 250 ms of PCM16 at 16 kHz, no two samples alike.
SOUND = array("h", range(4_000)).tobytes()
PACKET = 3_200  # bytes of 100 ms


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as scripted:
        yield scripted


async def opened(server: ScriptedServer, ack: dict[str, Any] | None = None, **options: Any) -> tuple[Session, Peer]:
    session = Session(server.url, src="en", tgt="es", reconnect_delay=lambda failures: 0.0, **options)
    entering = asyncio.create_task(session.__aenter__())
    peer = await server.peer()
    await peer.recv("session_init")
    fields = {"trace_id": "t-1", "resume_token": "s-1.secret", **(ack or {})}
    await peer.send("session_init_ack", session_id="s-1", **fields)
    return await entering, peer


async def closed(session: Session, peer: Peer) -> None:
    closing = asyncio.create_task(session.close())
    await recv_close(peer)
    await peer.send("session_close_ack", session_id="s-1")
    await closing


async def recv_utterance(peer: Peer) -> list[dict[str, Any]]:
    """The chunks up to the end of the utterance."""
    chunks = [await peer.recv("audio_chunk")]
    while not chunks[-1]["is_final"]:
        chunks.append(await peer.recv("audio_chunk"))
    return chunks


def sizes(chunks: list[dict[str, Any]]) -> list[int]:
    return [len(base64.b64decode(chunk.get("payload") or "")) for chunk in chunks]


def sound_of(chunks: list[dict[str, Any]]) -> bytes:
    return b"".join(base64.b64decode(chunk.get("payload") or "") for chunk in chunks)


def result(index: int, **more: Any) -> dict[str, Any]:
    return {
        "session_id": "s-1",
        "utterance_index": index,
        "job_id": f"job-{index}",
        "text_asr": f"heard {index}",
        "text_translated": "",
        "tts_audio": "",
        "tts_format": "pcm16",
        "trace_id": f"t-{index}",
        **more,
    }


async def test_session_init_offers_pcm16_and_resume(server: ScriptedServer) -> None:
    entering = asyncio.create_task(Session(server.url, tgt="es", sample_rate=8_000).__aenter__())
    peer = await server.peer()
    init = await peer.recv("session_init")
    assert (init["audio_formats"], init["sample_rate"], init["binary_frames"]) == (["pcm16"], 8_000, True)
    await peer.send("session_init_ack", session_id="s-1", trace_id="t-1", assigned_node_id="node-7")
    session = await entering
    assert (session.codec, session.assigned_node_id) == ("pcm16", "node-7")
    await closed(session, peer)


# --- sources ------------------------------------------------------------------------------------------


def wav(path: Path, sound: bytes, *, rate: int = 16_000, channels: int = 1) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(sound)
    return path


async def microphone() -> AsyncIterator[bytes]:
    for start in range(0, len(SOUND), 999):
        yield SOUND[start : start + 999]


def pieces() -> Iterator[bytes]:
    for start in range(0, len(SOUND), 1_001):
        yield SOUND[start : start + 1_001]


@pytest.mark.parametrize("kind", ["async iterator", "iterable", "bytes", "file", "WAV", "text path"])
async def test_any_source_is_packetized_in_whole_samples(server: ScriptedServer, tmp_path: Path, kind: str) -> None:
    path = wav(tmp_path / "a.wav", SOUND)
    sources: dict[str, Any] = {
        "async iterator": microphone(),
        "iterable": pieces(),
        "bytes": SOUND,
        "file": io.BytesIO(SOUND),
        "WAV": path,
        "text path": str(path),
    }
    session, peer = await opened(server)
    await session.stream(sources[kind])
    chunks = await recv_utterance(peer)
    assert sizes(chunks) == [PACKET, PACKET, len(SOUND) - 2 * PACKET, 0]
    assert sound_of(chunks) == SOUND
    assert [chunk["seq"] for chunk in chunks] == [0, 1, 2, 3]
    assert [chunk["is_final"] for chunk in chunks] == [False, False, False, True]
    await closed(session, peer)


async def test_timestamps_of_a_recording_are_positions_in_it(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    await session.stream(SOUND)
    first, second, third, _ = [chunk["client_timestamp_ms"] for chunk in await recv_utterance(peer)]
    assert (second - first, third - first) == (100, 200)
    await closed(session, peer)


async def test_realtime_recording_is_sent_in_real_time(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    session, peer = await opened(server)
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float, result: Any = None) -> Any:
        slept.append(seconds)
        return await sleep(0, result)

    monkeypatch.setattr("linguamesh.session.stream.asyncio.sleep", note)
    monkeypatch.setattr("linguamesh.session.stream.now_ms", lambda: 5_000)
    await session.stream(SOUND, realtime=True, chunk_ms=50)
    assert [one for one in slept if one] == [0.05, 0.1, 0.15, 0.2]
    assert sizes(await recv_utterance(peer)) == [PACKET // 2] * 5 + [0]
    monkeypatch.undo()
    await closed(session, peer)


async def test_speak_sends_at_once_and_half_a_sample_waits(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    await session.speak(SOUND[:7])
    assert sizes([await peer.recv("audio_chunk")]) == [6]
    await session.speak(SOUND[7:10])
    await session.speak(SOUND[10 : 10 + PACKET + 1])
    await session.end_utterance()
    await session.end_utterance()  # no audio since
    chunks = await recv_utterance(peer)
    assert sizes(chunks) == [4, PACKET, 0]
    assert sound_of(chunks) == SOUND[6 : 10 + PACKET]
    await session.speak(SOUND[:2])
    assert sound_of([await peer.recv("audio_chunk")]) == SOUND[:2], "the odd byte went with its utterance"
    await closed(session, peer)


async def test_opus_packets_are_sent_after_their_lengths(server: ScriptedServer) -> None:
    session, peer = await opened(server, {"negotiated_codec": "opus"}, audio_formats=["opus", "pcm16"])
    assert session.codec == "opus"
    packets = [bytes([number]) * (number + 1) for number in range(7)]
    await session.stream(iter(packets))
    chunks = await recv_utterance(peer)
    framed = [len(packet).to_bytes(2, "little") + packet for packet in packets]
    assert [base64.b64decode(chunk.get("payload") or "") for chunk in chunks] == [
        b"".join(framed[:5]),
        b"".join(framed[5:]),
        b"",
    ]
    await session.speak(packets[:2])
    assert sound_of([await peer.recv("audio_chunk")]) == b"".join(framed[:2])
    with pytest.raises(ValueError, match="1 to 65535 bytes"):
        await session.speak([b""])
    await closed(session, peer)


async def test_unusable_source_raises_at_once(server: ScriptedServer, tmp_path: Path) -> None:
    session, peer = await opened(server)
    (tmp_path / "text.wav").write_text("hello")
    expected: list[tuple[Any, str]] = [
        (tmp_path / "absent.wav", "cannot read .*: No such file"),
        (tmp_path / "text.wav", "not a PCM WAV file"),
        (wav(tmp_path / "a.wav", SOUND, rate=8_000), "has 8000 Hz and the session 16000"),
        ((tmp_path / "a.wav").open("rb"), "for a WAV file give its path"),
    ]
    for source, text in expected:
        with pytest.raises(ValueError, match=text):
            await session.stream(source)
    expected[-1][0].close()
    with pytest.raises(ValueError, match="chunk_ms is 0"):
        await session.stream(SOUND, chunk_ms=0)
    with pytest.raises(TypeError, match="as bytes"):
        await session.speak([b"packet"])
    await closed(session, peer)


async def test_pcm_is_refused_if_opus_was_negotiated(server: ScriptedServer) -> None:
    session, peer = await opened(server, {"negotiated_codec": "opus", "negotiated_sample_rate": 16_000})
    with pytest.raises(SessionError, match=r"UNSUPPORTED_FEATURE: this mesh accepts streams of opus"):
        await session.stream(SOUND)
    await closed(session, peer)


# --- binary frames ------------------------------------------------------------------------------------


async def frame(peer: Peer) -> audio_frames.BinaryFrame:
    """The next binary frame."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            data = await peer.connection.recv()
            if isinstance(data, bytes):
                return audio_frames.decode(data)


async def test_audio_is_sent_in_binary_frames_if_negotiated(server: ScriptedServer) -> None:
    session, peer = await opened(server, {"use_binary_frame": True})
    await session.stream(SOUND)
    frames = [await frame(peer) for _ in range(4)]
    assert [type(one) for one in frames] == [AudioFrame, AudioFrame, AudioFrame, FinalFrame]
    assert b"".join(one.audio for one in frames if isinstance(one, AudioFrame)) == SOUND
    assert [one.seq for one in frames] == [0, 1, 2, 3] and {one.session_id for one in frames} == {"s-1"}
    await peer.connection.send(audio_frames.encode(PingFrame("s-1", 9, 77)))
    assert await frame(peer) == PongFrame("s-1", 9, 77)
    await peer.connection.send(b"\xff")  # nothing that this version knows
    await peer.send("translation_result", **result(0, last_seq=3))
    await session.send(SOUND[:2])
    assert (await peer.recv("utterance"))["utterance_index"] == 1, "whole utterances stay JSON"
    await closed(session, peer)


# --- results ------------------------------------------------------------------------------------------


async def test_results_of_a_stream_are_in_order_with_their_errors(server: ScriptedServer) -> None:
    events: list[Any] = []
    session, peer = await opened(server, on_event=events.append)
    seen: list[Translation] = []

    async def read() -> None:
        async for translation in session.results():
            seen.append(translation)

    reading = asyncio.create_task(read())
    for _ in range(4):
        await session.stream(SOUND[:64])
        await recv_utterance(peer)
    details = {"utterance_index": 2, "request_id": "r"}
    await peer.send(
        "ui_event",
        trace_id="t",
        session_id="s-1",
        job_id="",
        utterance_index=2,
        event="ERROR",
        status="error",
        error_code="JOB_TIMEOUT",
    )
    await peer.send("error", code="OUT_OF_TEA", message="a node's own code", details=details)
    await peer.send("translation_result", **result(0, last_seq=1))
    await peer.send(
        "missing_result", session_id="s-1", utterance_index=1, reason="silence_detected", created_at_ms=1, last_seq=3
    )
    await peer.send(
        "missing_result", session_id="s-1", utterance_index=2, reason="job_failed", created_at_ms=1, last_seq=5
    )
    await peer.send("utterance_ended", session_id="s-1", utterance_index=3, last_seq=7)
    while (await peer.recv("result_ack"))["utterance_index"] < 3:
        pass
    await closed(session, peer)
    await reading
    assert [translation.utterance_index for translation in seen] == [0, 1, 2, 3]
    errors = [translation.error for translation in seen]
    assert [str(error) if error else "" for error in errors] == [
        "",
        "MISSING_RESULT: silence_detected",
        "OUT_OF_TEA: a node's own code",
        "",
    ]
    assert seen[0].total_ms >= 0 and seen[3].for_room
    assert [error.utterance_index for error in errors if error] == [1, 2]


async def test_whole_utterances_and_a_stream_take_turns(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    await session.stream(SOUND[:64])
    translating = asyncio.create_task(session.translate(SOUND[:2]))
    await recv_utterance(peer)
    await peer.send("translation_result", **result(0, last_seq=1))
    assert (await peer.recv("utterance"))["utterance_index"] == 1
    await session.speak(SOUND[:64])
    await peer.send("translation_result", **result(1))
    assert (await translating).utterance_index == 1
    assert (await peer.recv("audio_chunk"))["seq"] == 2
    await closed(session, peer)


async def test_without_resume_a_whole_utterance_cannot_follow_a_stream(server: ScriptedServer) -> None:
    session, peer = await opened(server, resume=False)
    await session.speak(SOUND[:64])
    with pytest.raises(SessionError, match="UNSUPPORTED_FEATURE: a whole utterance beside streamed audio"):
        await session.translate(SOUND[:2])
    await closed(session, peer)


async def test_close_flushes_and_delivers_the_last_results(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    await session.speak(SOUND)
    closing = asyncio.create_task(session.close())
    assert [(await peer.recv("audio_chunk"))["seq"] for _ in range(3)] == [0, 1, 2]
    await recv_close(peer)
    with pytest.raises(SessionError, match="SESSION_CLOSED"):
        await session.speak(SOUND)
    await peer.send("translation_result", **result(0, last_seq=2))
    await peer.send("session_close_ack", session_id="s-1")
    await closing
    assert [translation.text_asr async for translation in session.results()] == ["heard 0"]


async def test_rejected_audio_is_retried_before_session_close(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    await session.speak(SOUND[:64])
    closing = asyncio.create_task(session.close())
    chunk = await peer.recv("audio_chunk")
    await peer.recv("client_heartbeat")
    await peer.send("backpressure", action="BUSY", resume_after_ms=20)
    await peer.send("error", code="SLOW_DOWN", message="later", details={"seq": 0})
    await peer.send("server_heartbeat", session_id="s-1", timestamp=1)
    assert await peer.recv("audio_chunk") == chunk
    await recv_close(peer)
    await peer.send("session_close_ack", session_id="s-1")
    await closing


async def test_close_without_an_acknowledgement_times_out(server: ScriptedServer) -> None:
    session, peer = await opened(server, close_timeout=0.05)
    await session.close()
    await recv_close(peer)
    async with asyncio.timeout(DEADLINE_S):
        await peer.connection.wait_closed()


# --- playback -----------------------------------------------------------------------------------------


async def test_playback_messages_have_group_and_trace(server: ScriptedServer) -> None:
    session, peer = await opened(server)
    translating = asyncio.create_task(session.translate(SOUND[:2]))
    await peer.recv("utterance")
    await peer.send("translation_result", **result(0, group_id="group-1"))
    translation = await translating
    await session.tts_started(translation)
    await session.tts_ended(translation)
    started, ended = await peer.recv("tts_started"), await peer.recv("tts_play_ended")
    assert (started["session_id"], started["trace_id"], started["group_id"]) == ("s-1", "t-0", "group-1")
    assert ended["ts_end_ms"] >= started["ts_start_ms"] > 0
    await closed(session, peer)


async def test_invalid_pairing_code_is_a_session_error(server: ScriptedServer) -> None:
    entering = asyncio.create_task(Session([server.url] * 2, tgt="es", pairing_code="000000").__aenter__())
    peer = await server.peer()
    assert (await peer.recv("session_init"))["pairing_code"] == "000000"
    await peer.send("error", code="INVALID_PAIRING_CODE", message="no such code")
    with pytest.raises(SessionError, match="INVALID_PAIRING_CODE") as refused:
        await entering
    assert "new code" in refused.value.hint
