"""Dispatch of received messages, with a real send buffer and sender and no connection."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from linguamesh.errors import SessionError
from linguamesh.session.messages import utterance
from linguamesh.session.receiver import Receiver
from linguamesh.session.results import PendingResults, Translation
from linguamesh.session.rooms import Rooms
from linguamesh.session.send_buffer import Piece, SendBuffer, WholeUtterance
from linguamesh.session.sender import Sender
from mesh.messages import binary
from mesh.messages import client as wire
from mesh.messages.base import encode_utf8
from tests.support.fakes.recorded_outbound import RecordedOutbound


class Inbound:
    """The receiver of the open, resumable session s-1 and the parts it acts on."""

    def __init__(self) -> None:
        self.buffer, self.results = SendBuffer(1_000_000), PendingResults()
        self.sender = Sender(self.buffer, self.results, RecordedOutbound())
        self.events: list[str] = []
        self.ended: list[SessionError] = []
        rooms = Rooms(self._send)
        self.receiver = Receiver(self.buffer, self.results, self.sender, rooms, self._on_event, self.ended.append)
        self.buffer.is_resumable = True
        self.buffer.on_restarted()
        self.receiver.restart("s-1")

    async def _send(self, message: wire.ClientMessage) -> None: ...

    def _on_event(self, message: wire.ServerMessage) -> None:
        self.events.append(type(message).__name__)

    def receive(self, kind: str, **fields: Any) -> None:
        self.receiver.on_message(json.dumps({"type": kind, **fields}).encode(), True)

    def receive_result(self, session_id: str, index: int, **fields: Any) -> None:
        base = {"job_id": "j", "text_asr": "a", "text_translated": "b", "tts_audio": "", "tts_format": "pcm16"}
        self.receive("translation_result", session_id=session_id, utterance_index=index, trace_id="t", **base, **fields)

    def add_whole(self) -> WholeUtterance:
        """A whole utterance that was sent."""
        whole = WholeUtterance(utterance("pcm16", 16_000, "en", "es", {}), b"\1\0")
        self.buffer.add(whole)
        assert self.buffer.take_due(0) is whole
        return whole

    def stream_utterance(self) -> None:
        """A streamed utterance that was sent."""
        self.buffer.add(Piece(b"\1\0", 100, False, 1))
        self.buffer.end_utterance(2)
        while self.buffer.take_due(0):
            pass

    async def unread(self) -> list[Translation]:
        """All results, after the end of the session."""
        self.results.close("SESSION_CLOSED", "")
        return [one async for one in self.results.unread.read()]


def result(index: int) -> wire.TranslationResult:
    return wire.TranslationResult(
        session_id="s-1",
        utterance_index=index,
        job_id="j",
        text_asr="a",
        text_translated="b",
        tts_format="pcm16",
        trace_id="t",
        last_seq=1,
    )


async def test_result_is_delivered_once_and_acknowledged() -> None:
    inbound = Inbound()
    inbound.stream_utterance()
    for _ in range(2):
        inbound.receive_result("s-1", 0, last_seq=1)
    assert inbound.sender._acks == {"s-1": 0}
    assert inbound.buffer.used_bytes == 0
    assert [one.text_translated for one in await inbound.unread()] == ["b"]


async def test_result_of_a_peer_is_deduplicated_and_acknowledged() -> None:
    inbound = Inbound()
    for index in (4, 4, 3, 5):
        inbound.receive_result("s-9", index)
    inbound.receiver.close()
    assert [(one.speaker, one.utterance_index) async for one in inbound.receiver.peer_results.read()] == [
        ("s-9", 4),
        ("s-9", 5),
    ]
    assert inbound.sender._acks == {"s-9": 5}


async def test_announced_error_is_the_reason_of_the_missing_result() -> None:
    inbound = Inbound()
    inbound.stream_utterance()
    inbound.receive("error", code="NO_NODE", message="none is free", details={"utterance_index": 0, "request_id": "r"})
    inbound.receive("missing_result", session_id="s-1", utterance_index=0, reason="failed", last_seq=1, created_at_ms=1)
    (result,) = await inbound.unread()
    assert result.error is not None and result.error.code == "NO_NODE"
    assert inbound.events == ["ErrorMessage", "MissingResult"]


async def test_result_after_a_gap_fails_the_lost_ones_before_it() -> None:
    inbound = Inbound()
    for _ in range(3):
        inbound.stream_utterance()
    inbound.buffer.suspend()
    inbound.buffer.on_resumed()
    inbound.receiver.resume("s-1", has_gap=True)
    inbound.receive_result("s-1", 2, last_seq=5)
    codes = [one.error.code if one.error else "" for one in await inbound.unread()]
    assert codes == ["MISSING_RESULT", "MISSING_RESULT", ""]


async def test_slow_down_retries_the_rejected_chunk_after_a_pause() -> None:
    inbound = Inbound()
    inbound.stream_utterance()
    assert inbound.buffer.is_all_sent
    inbound.receive("error", code="SLOW_DOWN", message="later", details={"seq": 0})
    assert not inbound.buffer.is_all_sent
    assert inbound.sender.flow.paused_until_ms > 0


async def test_error_without_an_index_fails_the_only_pending_utterance() -> None:
    inbound = Inbound()
    whole = inbound.add_whole()
    inbound.results.add(whole.index, None)
    inbound.receive("error", code="INVALID_AUDIO", message="odd length")
    (result,) = await inbound.unread()
    assert result.error is not None and result.error.code == "INVALID_AUDIO"


async def test_fatal_error_ends_the_session() -> None:
    inbound = Inbound()
    inbound.receive("error", code="SESSION_SUPERSEDED", message="taken over")
    assert [error.code for error in inbound.ended] == ["SESSION_SUPERSEDED"]


async def test_unknown_message_is_ignored() -> None:
    inbound = Inbound()
    inbound.receive("from_the_future")
    inbound.receiver.on_message(b"\xff", False)
    assert inbound.events == [] and inbound.ended == []


async def test_binary_result_is_a_result_whose_audio_is_copied_once_out_of_the_frame() -> None:
    inbound = Inbound()
    inbound.stream_utterance()
    frame = bytearray(b"".join(binary.encode(result(0), b"speech")))
    inbound.receiver.on_message(memoryview(frame), False)
    frame[:] = bytes(len(frame))  # the view of the connection is not kept
    (translation,) = await inbound.unread()
    assert (translation.text_translated, translation.tts_audio) == ("b", b"speech")
    assert translation.message is not None and translation.tts_audio is translation.message.tts_audio


MALFORMED = {
    "too short": b"\x23",
    "head beyond its end": b"\x23\xff\x00\x00\x00{}",
    "head is no JSON": b"\x23\x01\x00\x00\x00{",
    "message of another direction": b"".join(binary.encode(utterance("pcm16", 16_000, "en", "es", {}), b"\1\0")),
    "audio in the head": b"".join(
        binary.encode_parts(wire.TranslationResult, encode_utf8(replace(result(0), tts_audio="QUJD")), b"")
    ),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_binary_message_is_reported_and_costs_nothing_else(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    inbound = Inbound()
    inbound.stream_utterance()
    inbound.receiver.on_message(memoryview(data), False)
    assert "INVALID_MESSAGE" in caplog.text and inbound.ended == []
    inbound.receiver.on_message(b"".join(binary.encode(result(0), b"speech")), False)
    assert [one.tts_audio for one in await inbound.unread()] == [b"speech"]
