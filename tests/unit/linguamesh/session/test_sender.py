"""Flow control, and the order in which a sender transmits; its connection is a list."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from linguamesh.errors import SessionError
from linguamesh.session.messages import heartbeat, utterance
from linguamesh.session.results import PendingResults
from linguamesh.session.send_buffer import Piece, SendBuffer, WholeUtterance
from linguamesh.session.sender import (
    BACKPRESSURE_MS_DEFAULT,
    BACKPRESSURE_MS_MAX,
    SLOW_INTERVAL_MS,
    FlowControl,
    Sender,
)
from mesh.messages import audio_frames
from tests.support.conditions import DEADLINE_S


def wait_ms(flow: FlowControl, now_ms: int) -> int:
    return flow.limits(now_ms)[0]


@pytest.mark.parametrize("action", ["PAUSE", "BUSY"])
def test_pause_lasts_until_the_latest_resume_time(action: str) -> None:
    flow = FlowControl()
    assert flow.limits(1_000) == (0, 0)
    flow.on_backpressure(action, 300, 1_000)
    flow.on_backpressure(action, 10, 1_000)
    assert (wait_ms(flow, 1_000), wait_ms(flow, 1_299), wait_ms(flow, 1_300)) == (300, 1, 0)
    assert flow.limits(1_000)[1] == 0


def test_slow_down_throttles_to_one_joined_message_per_interval() -> None:
    flow = FlowControl()
    flow.on_backpressure("SLOW_DOWN", 1_200, 1_000)
    assert flow.limits(1_000) == (0, SLOW_INTERVAL_MS)
    flow.sent_ms = 1_000
    assert wait_ms(flow, 1_100) == SLOW_INTERVAL_MS - 100
    flow.sent_ms = 2_000
    assert wait_ms(flow, 2_000) == 200, "not longer than the mesh requested"
    assert flow.limits(2_200) == (0, 0)


def test_backpressure_has_a_default_duration_and_a_bound() -> None:
    flow = FlowControl()
    flow.on_backpressure("PAUSE", None, 0)
    assert wait_ms(flow, 0) == BACKPRESSURE_MS_DEFAULT
    flow.on_backpressure("PAUSE", 10**9, 0)
    assert wait_ms(flow, 0) == BACKPRESSURE_MS_MAX


def test_rejected_item_waits_the_default_pause_unless_the_mesh_requested_one() -> None:
    flow = FlowControl()
    flow.on_rejected(0)
    assert wait_ms(flow, 0) == BACKPRESSURE_MS_DEFAULT
    flow.on_backpressure("BUSY", 2_000, 1_000)
    flow.on_rejected(1_000)
    assert wait_ms(flow, 1_000) == 2_000


# --- the sender -----------------------------------------------------------------------------------


class Wire:
    """Records the data that a sender transmits; it can refuse it, as a lost connection does."""

    def __init__(self) -> None:
        self.sent: list[str | bytes] = []
        self.is_lost = False

    async def transmit(self, data: str | bytes) -> bool:
        if not self.is_lost:
            self.sent.append(data)
        return not self.is_lost

    def types(self) -> list[str]:
        """The message types, or the classes of binary frames."""
        return [
            type(audio_frames.decode(data)).__name__ if isinstance(data, bytes) else json.loads(data)["type"]
            for data in self.sent
        ]


def sender_on(
    transmit: Callable[[str | bytes], Awaitable[bool]], *, bytes_max: int = 1_000_000
) -> tuple[Sender, SendBuffer, PendingResults]:
    """A sender with an open connection."""
    buffer, results = SendBuffer(bytes_max), PendingResults()
    buffer.is_resumable = True
    buffer.on_restarted()
    sender = Sender(buffer, results, transmit)
    sender.resume("s-1", True, [])
    return sender, buffer, results


def piece(audio: bytes) -> Piece:
    return Piece(audio, 100, False, 7)


def whole() -> WholeUtterance:
    return WholeUtterance(utterance(b"\1\0", "pcm16", 16_000, "en", "es", {}))


async def test_control_messages_are_sent_before_audio_and_audio_in_order() -> None:
    wire = Wire()
    sender, _, _ = sender_on(wire.transmit)
    await sender.add_audio(piece(b"aa"))
    await sender.end_utterance(8)
    sender.acknowledge("s-1", 3)
    sender.acknowledge("s-1", 2)
    sender.on_ping(audio_frames.PingFrame("s-1", 1, 2))
    assert await sender.send_due() == 0
    assert wire.types() == ["PongFrame", "result_ack", "AudioFrame", "FinalFrame"]
    assert json.loads(wire.sent[1])["utterance_index"] == 3, "acknowledgements are cumulative"


async def test_end_utterance_without_audio_sends_nothing() -> None:
    wire = Wire()
    sender, _, _ = sender_on(wire.transmit)
    await sender.end_utterance(8)
    await sender.send_due()
    assert wire.sent == []


async def test_utterance_gets_its_index_and_waits_for_its_result_once_sent() -> None:
    wire = Wire()
    sender, _, results = sender_on(wire.transmit)
    adding = asyncio.create_task(sender.add_utterance(whole(), None))
    await asyncio.sleep(0)
    assert len(results) == 0
    await sender.send_due()
    assert (await adding, len(results)) == (0, 1)
    message = json.loads(wire.sent[0])
    assert (message["type"], message["session_id"], message["utterance_index"]) == ("utterance", "s-1", 0)


async def test_paused_sender_returns_the_time_until_audio_is_due() -> None:
    wire = Wire()
    sender, _, _ = sender_on(wire.transmit)
    await sender.add_audio(piece(b"aa"))
    sender.flow.paused_until_ms = 2**60
    assert await sender.send_due() > 0
    assert wire.sent == []


async def test_full_buffer_blocks_add_audio_until_capacity_is_acknowledged() -> None:
    sender, buffer, _ = sender_on(Wire().transmit, bytes_max=300)
    await sender.add_audio(piece(bytes(150)))
    blocked = asyncio.create_task(sender.add_audio(piece(bytes(150))))
    await sender.send_due()
    await asyncio.sleep(0)
    assert not blocked.done()
    buffer.acknowledge(0, 0)
    sender.wake()
    async with asyncio.timeout(DEADLINE_S):
        await blocked


async def test_message_on_a_lost_connection_is_retried_on_the_next() -> None:
    wire = Wire()
    wire.is_lost = True
    sender, buffer, _ = sender_on(wire.transmit)
    sending = asyncio.create_task(sender.send(heartbeat))
    await asyncio.sleep(0)
    await sender.send_due()
    sender.suspend()
    buffer.suspend()
    await asyncio.sleep(0)
    wire.is_lost = False
    buffer.on_resumed()
    sender.resume("s-2", True, [])
    async with asyncio.timeout(DEADLINE_S):
        while not sending.done():
            await sender.send_due()
            await asyncio.sleep(0)
    assert [json.loads(data)["session_id"] for data in wire.sent] == ["s-2"], "built for the session that is open now"


async def test_close_fails_all_callers_with_the_error() -> None:
    sender, _, _ = sender_on(Wire().transmit)
    adding = asyncio.create_task(sender.add_utterance(whole(), None))
    await asyncio.sleep(0)
    sender.close(SessionError("SESSION_CLOSED", "the session was closed"))
    with pytest.raises(SessionError, match="SESSION_CLOSED"):
        await adding
    with pytest.raises(SessionError, match="SESSION_CLOSED"):
        await sender.add_audio(piece(b"aa"))
