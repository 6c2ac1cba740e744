"""Flow control, and the order in which a sender transmits; its connection is a list."""

from __future__ import annotations

import asyncio

import pytest

from linguamesh.errors import SessionError
from linguamesh.session.messages import heartbeat, utterance
from linguamesh.session.results import PendingResults
from linguamesh.session.send_buffer import Piece, SendBuffer, WholeUtterance
from linguamesh.session.sender import (
    BACKPRESSURE_MS_DEFAULT,
    BACKPRESSURE_MS_MAX,
    SLOW_INTERVAL_MS,
    TURN_MAX,
    FlowControl,
    Sender,
)
from mesh.clock import now_ms
from mesh.messages import audio_frames, binary
from mesh.messages import client as wire
from mesh.messages.audio import audio_bytes
from tests.support.conditions import DEADLINE_S, until
from tests.support.fakes.recorded_outbound import RecordedOutbound


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


def sender_on(outbound: RecordedOutbound, *, bytes_max: int = 1_000_000) -> tuple[Sender, SendBuffer, PendingResults]:
    """A sender with an open connection."""
    buffer, results = SendBuffer(bytes_max), PendingResults()
    buffer.is_resumable = True
    buffer.on_restarted()
    sender = Sender(buffer, results, outbound)
    sender.resume("s-1", True, [])
    return sender, buffer, results


def piece(audio: bytes) -> Piece:
    return Piece(audio, 100, False, 7)


def whole() -> WholeUtterance:
    return WholeUtterance(utterance("pcm16", 16_000, "en", "es", {}), b"\1\0")


async def test_control_messages_are_sent_before_audio_and_audio_in_order() -> None:
    outbound = RecordedOutbound()
    outbound.has_no_capacity = True
    sender, _, _ = sender_on(outbound)
    await sender.add_audio(piece(b"aa"))
    await sender.end_utterance(8)
    sender.acknowledge("s-1", 3)
    sender.acknowledge("s-1", 2)
    sender.on_ping(audio_frames.PingFrame("s-1", 1, 2))
    assert outbound.sent == [], "a full connection gets nothing"
    outbound.has_no_capacity = False
    sender.send_due()
    assert outbound.types() == ["PongFrame", "result_ack", "AudioFrame", "FinalFrame"]
    assert outbound.texts()[0]["utterance_index"] == 3, "acknowledgements are cumulative"


async def test_acknowledgements_of_one_turn_are_one_message() -> None:
    outbound = RecordedOutbound()
    sender, _, _ = sender_on(outbound)
    for index in range(3):
        sender.acknowledge("s-1", index)
    assert outbound.sent == []
    await until(lambda: bool(outbound.sent), "the acknowledgement is sent")
    assert [message["utterance_index"] for message in outbound.texts()] == [2]


async def test_end_utterance_without_audio_sends_nothing() -> None:
    outbound = RecordedOutbound()
    sender, _, _ = sender_on(outbound)
    await sender.end_utterance(8)
    sender.send_due()
    assert outbound.sent == []


@pytest.mark.parametrize("is_agreed", [False, True])
async def test_utterance_is_sent_at_once_binary_if_that_was_agreed(is_agreed: bool) -> None:
    outbound = RecordedOutbound()
    outbound.use_binary_messages = is_agreed
    sender, _, results = sender_on(outbound)
    assert (await sender.add_utterance(whole(), None), len(results)) == (0, 1)
    (data,) = outbound.sent
    assert isinstance(data, bytes) is is_agreed
    message = binary.decode(data) if isinstance(data, bytes) else wire.decode_from_client(data)
    assert isinstance(message, wire.Utterance)
    assert (message.session_id, message.utterance_index) == ("s-1", 0)
    assert bytes(audio_bytes(message.audio)) == b"\1\0"


async def test_utterance_on_a_full_connection_waits_for_its_index() -> None:
    outbound = RecordedOutbound()
    outbound.has_no_capacity = True
    sender, _, results = sender_on(outbound)
    adding = asyncio.create_task(sender.add_utterance(whole(), None))
    await asyncio.sleep(0)
    assert len(results) == 0 and not adding.done()
    outbound.has_no_capacity = False
    sender.wake()
    async with asyncio.timeout(DEADLINE_S):
        assert await adding == 0


async def test_retry_after_a_reconnect_follows_what_the_new_connection_agreed_to() -> None:
    outbound = RecordedOutbound()
    outbound.use_binary_messages = True
    sender, buffer, _ = sender_on(outbound)
    await sender.add_utterance(whole(), None)
    sender.suspend()
    buffer.suspend()
    outbound.use_binary_messages = False
    buffer.on_resumed()
    sender.resume("s-1", True, [])
    sender.send_due()
    assert outbound.types() == ["Utterance", "utterance"]
    assert outbound.texts()[0]["audio"] == "AQA="


async def test_many_items_are_sent_over_several_turns() -> None:
    outbound = RecordedOutbound()
    sender, buffer, _ = sender_on(outbound)
    for _ in range(2 * TURN_MAX):
        buffer.add(piece(b"aa"))
    sender.send_due()
    assert len(outbound.sent) == TURN_MAX
    await until(lambda: len(outbound.sent) == 2 * TURN_MAX, "the rest follows")


async def test_paused_sender_sends_when_the_pause_is_over() -> None:
    outbound = RecordedOutbound()
    sender, _, _ = sender_on(outbound)
    sender.flow.on_backpressure("PAUSE", 20, now_ms())
    await sender.add_audio(piece(b"aa"))
    assert outbound.sent == []
    await until(lambda: outbound.types() == ["AudioFrame"], "the pause is over")


async def test_full_buffer_blocks_add_audio_until_capacity_is_acknowledged() -> None:
    sender, buffer, _ = sender_on(RecordedOutbound(), bytes_max=300)
    await sender.add_audio(piece(bytes(150)))
    blocked = asyncio.create_task(sender.add_audio(piece(bytes(150))))
    sender.send_due()
    await asyncio.sleep(0)
    assert not blocked.done()
    buffer.acknowledge(0, 0)
    sender.wake()
    async with asyncio.timeout(DEADLINE_S):
        await blocked


async def test_message_on_a_lost_connection_is_retried_on_the_next() -> None:
    outbound = RecordedOutbound()
    outbound.is_lost = True
    sender, buffer, _ = sender_on(outbound)
    sending = asyncio.create_task(sender.send(heartbeat))
    await asyncio.sleep(0)
    sender.suspend()
    buffer.suspend()
    await asyncio.sleep(0)
    outbound.is_lost = False
    buffer.on_resumed()
    sender.resume("s-2", True, [])
    async with asyncio.timeout(DEADLINE_S):
        await sending
    assert [message["session_id"] for message in outbound.texts()] == ["s-2"], "built for the session that is open now"


async def test_message_that_is_no_json_fails_alone() -> None:
    outbound = RecordedOutbound()
    sender, _, _ = sender_on(outbound)
    with pytest.raises(TypeError):
        await sender.send(lambda session_id: wire.WebrtcOffer(room_code="1", to="s-2", sdp=object()))
    await sender.send(heartbeat)
    assert outbound.types() == ["client_heartbeat"]


async def test_close_fails_all_callers_with_the_error() -> None:
    outbound = RecordedOutbound()
    outbound.has_no_capacity = True
    sender, _, _ = sender_on(outbound)
    adding = asyncio.create_task(sender.add_utterance(whole(), None))
    await asyncio.sleep(0)
    sender.close(SessionError("SESSION_CLOSED", "the session was closed"))
    with pytest.raises(SessionError, match="SESSION_CLOSED"):
        await adding
    with pytest.raises(SessionError, match="SESSION_CLOSED"):
        await sender.add_audio(piece(b"aa"))
