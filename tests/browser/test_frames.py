"""Frames in a page: audio chunks are those of the mesh's own codecs, and results of these codecs are decoded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.async_api import Page

from mesh.errors import ErrorCode, PeerError
from mesh.messages import audio_frames, binary
from mesh.messages.audio_frames import AudioFrame, FinalFrame, PingFrame, PongFrame
from mesh.messages.base import ExtraResult, encode_utf8
from mesh.messages.client import TranslationResult
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


# --- binary messages ------------------------------------------------------------------------------

DECODE = """
  const { decodeBinaryMessage, isBinaryMessage } = await import("/session/frames.js");
  return Promise.all(given.map((bytes) => outcome(() => {
    const frame = new Uint8Array(bytes).buffer;
    if (!isBinaryMessage(frame)) return null;
    const { tts_audio, ...head } = decodeBinaryMessage(frame);
    return { head, audio: [...tts_audio], isView: tts_audio.buffer === frame };
  })));
"""


def result(**fields: Any) -> TranslationResult:
    common = {"session_id": "s-1", "utterance_index": 0, "job_id": "j", "tts_format": "pcm16", "trace_id": "t"}
    return TranslationResult(**{"text_asr": "hello", "text_translated": "hola", **common, **fields})


SAMPLES = [
    (result(), b""),
    (result(utterance_index=2**53 - 1, text_translated="grüezi 你好 \U0001f600", last_seq=7), bytes(range(256))),
    (result(extra=ExtraResult(emotion="calm", speech_rate=1.25), text_asr='"\\\n'), b"{}\x00\xff" * 5_000),
]


async def test_page_reads_the_bytes_of_the_mesh_codec(shared_page: Page) -> None:
    frames = [b"".join(binary.encode(message, audio)) for message, audio in SAMPLES]
    decoded = await js(shared_page, DECODE, [list(frame) for frame in frames])
    for (message, audio), outcome in zip(SAMPLES, decoded, strict=True):
        assert outcome["error"] is None
        assert outcome["value"]["head"] == json.loads(encode_utf8(message))
        assert bytes(outcome["value"]["audio"]) == audio and outcome["value"]["isView"]


HEAD = encode_utf8(result())
MALFORMED = {
    "type alone": b"\x23",
    "length cut off": b"\x23\x02\x00\x00",
    "head beyond the end": b"\x23\xff\xff\xff\xff{}",
    "head longer by one": b"\x23" + (len(HEAD) + 1).to_bytes(4, "little") + HEAD,
    "head shorter by one": b"\x23" + (len(HEAD) - 1).to_bytes(4, "little") + HEAD,
    "no head": b"\x23\x00\x00\x00\x00",
    "head is an array": b"\x23\x02\x00\x00\x00[]",
    "head is not UTF-8": b"\x23\x03\x00\x00\x00{\xff}",
    "head of another message": b"\x23\x16\x00\x00\x00" + b'{"type":"ui_event"}   ',
    "audio in the head": b"".join(binary.encode_parts(TranslationResult, HEAD[:-1] + b',"tts_audio":"QUJD"}', b"")),
}


async def test_page_refuses_what_the_mesh_codec_refuses(shared_page: Page) -> None:
    for data in MALFORMED.values():
        with pytest.raises(PeerError) as caught:
            binary.decode(data)
        assert caught.value.code is ErrorCode.INVALID_MESSAGE
    outcomes = await js(shared_page, DECODE, [list(data) for data in MALFORMED.values()])
    codes = {name: (one["error"] or {}).get("code") for name, one in zip(MALFORMED, outcomes, strict=True)}
    assert codes == dict.fromkeys(MALFORMED, "INVALID_MESSAGE")


async def test_other_frames_are_no_binary_messages_for_a_page(shared_page: Page) -> None:
    frames = [b"", b"\x01", b"\x10" + bytes(12), b"\x20\x02\x00\x00\x00{}", b"\x21", b"\x22", b"\x24"]
    outcomes = await js(shared_page, DECODE, [list(frame) for frame in frames])
    assert [one["value"] for one in outcomes] == [None] * len(frames)
