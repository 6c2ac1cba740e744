"""The encoding of audio chunks in a page: the same frames as the mesh's own codec."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page

from mesh.messages import audio_frames
from mesh.messages.audio_frames import AudioFrame, FinalFrame, PingFrame, PongFrame
from tests.browser.session_page import js

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def frames_of(page: Page, session_id: str, chunks: list[dict[str, Any]]) -> list[bytes]:
    """The binary frame of each chunk, as the page makes it."""
    body = """
      const { binaryFrame } = await import("/session/frames.js");
      return given.chunks.map((chunk) => [...binaryFrame(given.id, { ...chunk, audio: new Uint8Array(chunk.audio) })]);
    """
    return [bytes(one) for one in await js(page, body, {"id": session_id, "chunks": chunks})]


@pytest.mark.parametrize("session_id", ["s-0123ABCD", "é" * 100, "x" * 255])
async def test_binary_frame_equals_the_frame_of_the_mesh_codec(shared_page: Page, session_id: str) -> None:
    given = [
        {"seq": 0, "isFinal": False, "audio": [1, 2, 255, 0], "timestampMs": 1_700_000_000_123},
        {"seq": 2**32 - 1, "isFinal": True, "audio": [7], "timestampMs": 0},
        {"seq": 5, "isFinal": False, "audio": [], "timestampMs": 2**32},
        {"seq": 6, "isFinal": True, "audio": [], "timestampMs": 2**32 + 7},
    ]
    meant = [
        AudioFrame(session_id, 0, 1_700_000_000_123, False, bytes([1, 2, 255, 0])),
        AudioFrame(session_id, 2**32 - 1, 0, True, b"\x07"),
        AudioFrame(session_id, 5, 2**32, False, b""),
        FinalFrame(session_id, 6, 2**32 + 7),
    ]
    assert await frames_of(shared_page, session_id, given) == [audio_frames.encode(frame) for frame in meant]


async def test_pong_replies_to_ping_only(shared_page: Page) -> None:
    ping = audio_frames.encode(PingFrame("s-1", 3, 77))
    others = [audio_frames.encode(PongFrame("s-1", 3, 77)), audio_frames.encode(FinalFrame("s-1", 3, 77)), b"", b"\x10"]
    body = """
      const { pongFor } = await import("/session/frames.js");
      return given.map((frame) => { const pong = pongFor(new Uint8Array(frame).buffer); return pong && [...pong]; });
    """
    answers = await js(shared_page, body, [list(frame) for frame in [ping, *others]])
    assert bytes(answers[0]) == audio_frames.encode(PongFrame("s-1", 3, 77))
    assert answers[1:] == [None] * len(others)


async def test_base64_round_trip(shared_page: Page) -> None:
    body = """
      const { fromBase64, toBase64 } = await import("/session/frames.js");
      const bytes = Uint8Array.from({ length: 100_000 }, (_, place) => (place * 31) % 256);
      const again = fromBase64(toBase64(bytes));
      return again.length === bytes.length && again.every((byte, place) => byte === bytes[place]);
    """
    assert await js(shared_page, body) is True
