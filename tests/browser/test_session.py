"""A session in a page against a scripted edge: handshake, audio, results, flow control, close."""

from __future__ import annotations

import asyncio
import base64
import time

import pytest
from playwright.async_api import Page

from mesh.messages import audio_frames
from mesh.messages import client as wire
from mesh.messages.audio_frames import PingFrame, PongFrame
from tests.browser.session_page import js, opened, opening, recorded, results, speak, until
from tests.support.conditions import DEADLINE_S
from tests.support.fakes.scripted_mesh import ScriptedMesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: 100 ms of PCM16 at 16 kHz.
PIECE = 3_200


async def test_session_init_lists_capabilities(page: Page, mesh: ScriptedMesh) -> None:
    more = {"init": {"tenant_id": "acme", "pairing_code": "123456"}}
    client = await opened(page, mesh, options=more)
    init = client.init
    assert (init.platform, init.src_lang, init.tgt_lang, init.tenant_id) == ("web", "en", "es", "acme")
    assert (init.audio_formats, init.sample_rate, init.binary_frames, init.resumable) == (["pcm16"], 16_000, True, True)
    assert init.binary_messages is True
    assert (init.resume_token, init.last_index, init.last_seq, init.pairing_code) == (None, None, None, "123456")
    assert await js(page, "return [session.state, session.sessionId, session.lost];") == ["open", "s-1", False]


@pytest.mark.parametrize("binary", [False, True])
async def test_audio_is_sent_in_numbered_chunks(page: Page, mesh: ScriptedMesh, binary: bool) -> None:
    began_ms = time.time() * 1_000
    client = await opened(page, mesh, use_binary_frame=binary)
    await speak(page, 250, sample=0x0102)
    await speak(page, 100, end=True)
    await speak(page, 100, end=True)
    chunks = await client.chunks(6)
    assert [(chunk.seq, chunk.is_final, len(chunk.audio)) for chunk in chunks] == [
        (0, False, PIECE),
        (1, False, PIECE),
        (2, False, PIECE),
        (3, True, PIECE // 2),
        (4, False, PIECE),
        (5, True, 0),
    ]
    assert {chunk.is_binary for chunk in chunks} == {binary}
    assert chunks[0].audio == b"\x02\x01" * (PIECE // 2)
    assert chunks[2].audio == b"\x02\x01" * (PIECE // 4) + b"\x01\x00" * (PIECE // 4)
    spoken_ms = int(began_ms) % 2**32 if binary else int(began_ms)
    assert spoken_ms <= chunks[0].timestamp_ms <= chunks[-1].timestamp_ms


async def test_results_are_deduplicated_ordered_and_acknowledged(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    for index in (0, 1, 1, 0, 2):
        await client.send_result(index, f"text {index}")
    await client.send("missing_result", session_id="s-1", utterance_index=3, reason="gap_timeout", created_at_ms=1)
    acks = [await client.next(wire.ResultAckMessage) for _ in range(6)]
    assert [(ack.session_id, ack.utterance_index) for ack in acks] == [("s-1", index) for index in (0, 1, 1, 1, 2, 3)]
    received = await results(page, 4)
    assert [(one["index"], one["text"]) for one in received[:3]] == [(0, "text 0"), (1, "text 1"), (2, "text 2")]
    assert received[3]["error"] == {"code": "MISSING_RESULT", "message": "gap_timeout", "hint": "Say it again."}


@pytest.mark.parametrize("binary", [False, True])
async def test_speech_of_a_result_is_the_same_bytes_in_json_and_binary(
    page: Page, mesh: ScriptedMesh, binary: bool
) -> None:
    client = await opened(page, mesh, binary_messages=binary or None)
    speech = bytes(range(256)) * 40
    more = {"speech": speech} if binary else {"tts_audio": base64.b64encode(speech).decode()}
    await client.send_result(0, "grüezi", **more)
    assert [(one["index"], one["text"]) for one in await results(page, 1)] == [(0, "grüezi")]
    body = "const [one] = resultObjects; return [[...one.ttsAudio], one.message.tts_audio instanceof Uint8Array];"
    received, is_raw = await js(page, body)
    assert (bytes(received), is_raw) == (speech, binary)
    assert (await client.next(wire.ResultAckMessage)).utterance_index == 0


async def test_speech_that_is_not_base64_costs_its_result_the_speech_only(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await client.send_result(0, tts_audio="*")
    await client.send_result(1)
    assert [one["text"] for one in await results(page, 2)] == ["hola", "hola"]
    for call in ("resultObjects[0].ttsAudio", "session.play(resultObjects[0])"):
        failed = await js(page, f"return outcome(async () => {call});")
        assert failed["error"]["code"] == "INVALID_AUDIO"
    assert await js(page, "return resultObjects[1].ttsAudio.length;") == 0


async def test_failed_utterance_has_the_error_of_the_mesh(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    details = {"session_id": "s-1", "utterance_index": 0, "number": 400, "hint": "Try again."}
    await client.send("error", code="NO_AVAILABLE_NODE", message="no node", details=details)
    await client.send("missing_result", session_id="s-1", utterance_index=0, reason="job_failed", created_at_ms=1)
    (received,) = await results(page, 1)
    assert received["error"] == {"code": "NO_AVAILABLE_NODE", "message": "no node", "hint": "Try again."}
    assert [event["type"] for event in await recorded(page, "events")] == ["error"]


async def test_binary_ping_gets_a_pong(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh, use_binary_frame=True)
    await client.send_bytes(audio_frames.encode(PingFrame("s-1", 9, 1_234)))
    assert await asyncio.wait_for(client.frames.get(), DEADLINE_S) == PongFrame("s-1", 9, 1_234)


async def test_malformed_messages_are_ignored(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    for text in ("", "{", "[]", "null", '{"type": "translation_result"}', '{"type": "unknown"}', '{"no": 1}'):
        await client.send_text(text)
    head = b"\x02\x00\x00\x00{}"
    for frame in (b"", b"\x99", b"\x23", b"\x23\xff\xff\xff\xff{}", b"\x23" + head, b"\x20" + head):
        await client.send_bytes(frame)
    await client.send_result(0)
    await client.send_result(1, speech=b"\1\0")
    assert [one["index"] for one in await results(page, 2)] == [0, 1]


# --- flow control ---------------------------------------------------------------------------------------


async def test_pause_suspends_audio_only(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh, options={"timing": {"heartbeat": 20}})
    await client.send("backpressure", action="PAUSE", resume_after_ms=60_000)
    await until(page, "recorded.events.length === 1")
    await speak(page, 300, end=True)
    await client.send_result(0)
    await client.next(wire.ResultAckMessage)
    for _ in range(5):
        await client.next(wire.ClientHeartbeat)
    assert client.chunks_pending == 0


async def test_audio_resumes_after_pause(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await client.send("backpressure", action="PAUSE", resume_after_ms=300)
    await until(page, "recorded.events.length === 1")
    await speak(page, 300, end=True)
    assert [chunk.seq for chunk in await client.chunks(4)] == [0, 1, 2, 3]


async def test_slow_down_makes_chunks_larger(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await client.send("backpressure", action="SLOW_DOWN", resume_after_ms=60_000)
    await until(page, "recorded.events.length === 1")
    await speak(page, 800, end=True)
    chunks = await client.chunks(2)
    assert [(one.seq, one.is_final, len(one.audio)) for one in chunks] == [(0, False, 5 * PIECE), (1, True, 3 * PIECE)]


async def test_rejected_chunk_is_retried(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    await speak(page, 300, end=True)
    first = await client.chunks(4)
    await client.send("backpressure", action="BUSY", resume_after_ms=50)
    await client.send("error", code="SLOW_DOWN", message="too many messages wait", details={"seq": 1, "number": 502})
    assert await client.chunk() == first[1]
    await speak(page, 100)
    assert (await client.chunk()).seq == 4


async def test_speak_throws_when_the_buffer_is_full(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh, options={"keptBytesMax": 10_000})
    await client.send("backpressure", action="PAUSE", resume_after_ms=60_000)
    await until(page, "recorded.events.length === 1")
    await speak(page, 200)
    refused = await js(page, "return outcome(() => session.speak(sound(200)));")
    assert refused["error"]["code"] == "SLOW_DOWN"


async def test_stream_waits_for_buffer_capacity(page: Page, mesh: ScriptedMesh) -> None:
    """Three seconds of audio through a buffer of a quarter of a second: all of it arrives, in order."""
    client = await opened(page, mesh, options={"keptBytesMax": 8_000})
    await client.send("backpressure", action="PAUSE", resume_after_ms=200)
    await until(page, "recorded.events.length === 1")
    body = """
      async function* source() { for (let i = 0; i < 30; i += 1) yield sound(100, i); }
      await session.stream(source());
    """
    streaming = asyncio.ensure_future(js(page, body))
    chunks = await client.chunks(31)
    await streaming
    assert [chunk.seq for chunk in chunks] == list(range(31))
    assert [chunk.audio[0] for chunk in chunks[:-1]] == list(range(30)) and chunks[-1].is_final


@pytest.mark.parametrize("audio", ["new Uint8Array(3)", "[1, 2]", "null", "new Float32Array(4)"])
async def test_speak_rejects_audio_that_is_not_pcm16(page: Page, mesh: ScriptedMesh, audio: str) -> None:
    await opened(page, mesh)
    refused = await js(page, f"return outcome(() => session.speak({audio}));")
    assert refused["error"]["code"] == "INVALID_AUDIO"


# --- open and close ------------------------------------------------------------------------------


async def test_open_rejects_with_the_hint_of_a_refusal(page: Page, mesh: ScriptedMesh) -> None:
    waiting = opening(page, mesh.url, init={"pairing_code": "000000"})
    client = await mesh.client()
    details = {"number": 202, "hint": "Ask the node for a new code."}
    await client.send("error", code="INVALID_PAIRING_CODE", message="no such code", details=details)
    assert (await waiting)["error"] == {
        "code": "INVALID_PAIRING_CODE",
        "message": "no such code",
        "hint": "Ask the node for a new code.",
    }
    await client.lost.wait()
    assert await recorded(page, "states") == ["opening", "closed"]


async def test_open_rejects_unsupported_codec(page: Page, mesh: ScriptedMesh) -> None:
    waiting = opening(page, mesh.url)
    await (await mesh.client()).accept(negotiated_codec="opus")
    assert (await waiting)["error"]["code"] == "UNSUPPORTED_FEATURE"


async def test_open_rejects_when_no_address_is_reachable(page: Page, free_port: int) -> None:
    outcome = await opening(page, [f"ws://127.0.0.1:{free_port}", "not an address"])
    assert outcome["error"]["code"] == "UNREACHABLE"
    outcome = await opening(page, f"ws://127.0.0.1:{free_port}")
    assert outcome["error"]["code"] == "UNREACHABLE"
    assert str(free_port) in outcome["error"]["message"]


async def test_open_rejects_after_the_handshake_timeout(page: Page, mesh: ScriptedMesh) -> None:
    waiting = opening(page, mesh.url, timing={"open": 50})
    assert (await waiting)["error"]["code"] == "UNREACHABLE"


async def test_open_tries_the_next_address_when_the_first_is_unreachable(
    page: Page, mesh: ScriptedMesh, free_port: int
) -> None:
    waiting = opening(page, [f"http://127.0.0.1:{free_port}", mesh.url.replace("ws:", "http:")])
    await (await mesh.client()).accept()
    assert await waiting == {"value": "s-1", "error": None}


async def test_close_waits_for_the_last_results(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    closing = asyncio.ensure_future(js(page, "await Promise.all([session.close(), session.close()]);"))
    close = await client.next(wire.SessionClose)
    assert close.session_id == "s-1"
    await client.send_result(0)
    await client.send("session_close_ack", session_id="s-1")
    await closing
    await until(page, "recorded.over !== null")
    assert [one["index"] for one in await recorded(page, "results")] == [0]
    assert (await recorded(page, "over"))["code"] == ""
    assert await recorded(page, "states") == ["opening", "open", "closed"]
    outcome = await js(page, "return outcome(() => session.speak(sound(100)));")
    assert outcome["error"]["code"] == "SESSION_CLOSED"
    await client.lost.wait()
    assert mesh.clients_pending == 0


async def test_close_does_not_reconnect_when_the_connection_is_lost(page: Page, mesh: ScriptedMesh) -> None:
    client = await opened(page, mesh)
    # Without jitter a reconnect would dial at once.
    body = """
      Math.random = () => 0;
      window.dialled = 0;
      window.WebSocket = class extends WebSocket { constructor(url) { super(url); dialled += 1; } };
    """
    await js(page, body)
    closing = asyncio.ensure_future(js(page, "await session.close();"))
    await client.next(wire.SessionClose)
    client.abort()
    await closing
    assert (await recorded(page, "states"))[-1] == "closed"
    assert await js(page, "await new Promise((later) => setTimeout(later)); return dialled;") == 0


@pytest.mark.parametrize("code", ["SESSION_SUPERSEDED", "SESSION_CLOSED", "INVALID_SESSION"])
async def test_fatal_error_ends_the_session(page: Page, mesh: ScriptedMesh, code: str) -> None:
    client = await opened(page, mesh)
    await client.send_result(0)
    await client.send("error", code=code, message="it is over", details={"hint": "Stop."})
    await until(page, "recorded.over !== null")
    assert await recorded(page, "over") == {"code": code, "message": "it is over", "hint": "Stop."}
    assert [one["index"] for one in await recorded(page, "results")] == [0]
    assert await recorded(page, "states") == ["opening", "open", "closed"]
    assert mesh.clients_pending == 0


@pytest.mark.parametrize(
    ("close", "code"), [(4009, "SESSION_SUPERSEDED"), (1007, "INVALID_MESSAGE"), (1009, "MESSAGE_TOO_LARGE")]
)
async def test_fatal_close_code_ends_the_session(page: Page, mesh: ScriptedMesh, close: int, code: str) -> None:
    client = await opened(page, mesh)
    await client.close(close)
    await until(page, "recorded.over !== null")
    assert (await recorded(page, "over"))["code"] == code
    assert mesh.clients_pending == 0


async def test_stream_ends_with_its_session(page: Page, mesh: ScriptedMesh) -> None:
    """The source is released too: a microphone would be switched off."""
    client = await opened(page, mesh)
    body = """
      let released = false;
      async function* endless() {
        try { while (true) { yield sound(100); await new Promise((done) => setTimeout(done, 5)); } }
        finally { released = true; }
      }
      const { error } = await outcome(() => session.stream(endless()));
      return [error.code, released];
    """
    streaming = asyncio.ensure_future(js(page, body))
    await client.chunks(3)
    await client.send("error", code="SESSION_SUPERSEDED", message="taken over")
    assert await streaming == ["SESSION_SUPERSEDED", True]
