"""Addresses, the backoff of reconnects, and connections on real sockets: gathered writes, full and stuck ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from linguamesh.errors import Unreachable
from linguamesh.websocket import (
    RECONNECT_BASE_S,
    RECONNECT_CAP_S,
    MeshConnection,
    Outbound,
    decode_known,
    dial,
    reconnect_delay_s,
    with_path,
)
from mesh.errors import ErrorCode, PeerError
from mesh.messages import binary
from mesh.messages import node as wire
from mesh.websocket import GATHERED_BYTES_MAX
from tests.support.conditions import DEADLINE_S, until


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("ws://127.0.0.1:5010", "ws://127.0.0.1:5010/ws/node"),
        ("wss://mesh.example/", "wss://mesh.example/ws/node"),
        ("ws://127.0.0.1:5010/ws/node", "ws://127.0.0.1:5010/ws/node"),
        ("wss://mesh.example/behind/ws/node?x=1", "wss://mesh.example/behind/ws/node?x=1"),
        ("http://127.0.0.1:5010", "ws://127.0.0.1:5010/ws/node"),
        ("https://mesh.example/behind?x=1", "wss://mesh.example/behind?x=1"),
        ("ftp://mesh.example/x", "ftp://mesh.example/x"),
        ("127.0.0.1:5010", "127.0.0.1:5010"),
    ],
)
def test_path_and_scheme_are_completed(url: str, full: str) -> None:
    assert with_path(url, "/ws/node") == full


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:1/x", "127.0.0.1:5010", "nonsense", "http://[::1", "ws://h:x"])
async def test_invalid_address_names_the_valid_schemes(url: str) -> None:
    with pytest.raises(Unreachable, match="ws:// or wss://"):
        await dial(with_path(url, "/ws/node"))


def test_backoff_has_full_jitter_and_a_cap() -> None:
    first = [reconnect_delay_s(0) for _ in range(200)]
    late = [reconnect_delay_s(5_000) for _ in range(200)]
    assert 0 <= min(first) <= max(first) <= RECONNECT_BASE_S
    assert RECONNECT_CAP_S / 2 < max(late) <= RECONNECT_CAP_S
    assert min(late) < RECONNECT_CAP_S / 2


# --- connections ----------------------------------------------------------------------------------


class Edge:
    """A server that records what it receives, and does not read while it is told so."""

    def __init__(self) -> None:
        self.received: list[str | bytes] = []
        self.connections: list[ServerConnection] = []

    async def handle(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        async for data in connection:
            self.received.append(data)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Edge, MeshConnection]]:
    edge = Edge()
    async with serve(edge.handle, "127.0.0.1", 0, max_size=None, compression=None, close_timeout=1) as server:
        connection = await dial(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await until(lambda: bool(edge.connections), "the server has the connection")
        try:
            yield edge, connection
        finally:
            connection.transport.abort()


class CountedTransport:
    """A transport that counts its writes."""

    def __init__(self, transport: Any) -> None:
        self.writes = 0
        self._transport = transport

    def writelines(self, parts: list[bytes]) -> None:
        self.writes += 1
        self._transport.writelines(parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_messages_of_one_turn_are_one_write_in_their_order() -> None:
    async with connected() as (edge, connection):
        transport = connection.transport = CountedTransport(connection.transport)  # type: ignore[assignment]
        for number in range(20):
            assert connection.put(b"%d" % number)
        assert connection.put(b"head", b"audio", text=False)
        assert transport.writes == 0
        await until(lambda: len(edge.received) == 21, "all have arrived")
        assert edge.received == [*map(str, range(20)), b"headaudio"] and transport.writes == 1
        connection.put(bytes(GATHERED_BYTES_MAX), b"1", text=False)
        assert transport.writes == 2, "what is large does not wait for the end of the turn"


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 300_000])
async def test_parts_are_masked_as_one_payload(size: int) -> None:
    head, audio = bytes(range(7)), bytes(number % 251 for number in range(size))
    async with connected() as (edge, connection):
        connection.put(head, audio, text=False)
        await until(lambda: bool(edge.received), "it has arrived")
    assert edge.received == [head + audio]


async def test_close_writes_what_is_gathered_and_nothing_follows() -> None:
    async with connected() as (edge, connection):
        connection.put(b"last")
        await connection.close()
        assert connection.put(b"too late") is False
        await until(lambda: edge.received == ["last"], "it has arrived")


async def test_full_connection_takes_more_once_its_reader_reads() -> None:
    async with connected() as (edge, connection):
        outbound, writable = Outbound("ws://x"), asyncio.Event()
        outbound.connection, connection.on_writable = connection, writable.set
        edge.connections[0].transport.pause_reading()
        sent = 0
        while not outbound.is_full:
            outbound.put(bytes(1_000_000), text=False)
            sent += 1
        sending = asyncio.create_task(outbound.send(b"one more"))
        await asyncio.sleep(0)
        assert not sending.done()
        edge.connections[0].transport.resume_reading()
        async with asyncio.timeout(DEADLINE_S):
            assert await sending
            await writable.wait()
        await until(lambda: len(edge.received) == sent + 1, "all have arrived")


async def test_connection_that_accepts_nothing_is_aborted_and_a_slow_one_is_not() -> None:
    async with connected() as (edge, connection):
        edge.connections[0].transport.pause_reading()
        while not connection.is_full:
            connection.put(bytes(1_000_000), text=False)
        connection._accepted -= 1  # as if a byte had left since the last check
        connection._check()
        assert not connection.transport.is_closing()
        connection._check()
        async with asyncio.timeout(DEADLINE_S):
            await connection.receive(lambda data, is_text: None)
        assert connection.put(b"") is False


async def test_peer_without_a_connection_sends_nothing() -> None:
    outbound = Outbound("ws://x")
    assert not outbound.is_full and not outbound.put(b"{}") and not await outbound.send(b"{}")


@pytest.mark.parametrize("is_agreed", [False, True])
async def test_message_with_audio_is_binary_only_if_that_was_agreed(is_agreed: bool) -> None:
    head = b'{"type":"job_result","job_id":"j","attempt_id":1,"node_id":"n","session_id":"s","utterance_index":0,'
    head += b'"success":true,"trace_id":"t"}'
    async with connected() as (edge, connection):
        outbound = Outbound("ws://x")
        outbound.connection, outbound.use_binary_messages = connection, is_agreed
        assert outbound.put_with_audio(wire.JobResult, head, b"speech")
        await until(lambda: bool(edge.received), "it has arrived")
    (data,) = edge.received
    if is_agreed:
        assert isinstance(data, bytes) and bytes(binary.split(data).audio) == b"speech"
    else:
        assert isinstance(data, str) and json.loads(data)["tts_audio"] == "c3BlZWNo"


def test_ignored_message_is_logged_with_its_code(caplog: pytest.LogCaptureFixture) -> None:
    def fail(data: bytes) -> None:
        raise PeerError(ErrorCode.INVALID_MESSAGE, "no such field")

    assert decode_known(fail, b"{}") is None
    assert "INVALID_MESSAGE: no such field" in caplog.text
