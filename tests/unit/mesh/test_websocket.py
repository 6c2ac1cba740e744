"""Connections that hand over messages directly, on real sockets: frames of every kind, in pieces of every size."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from mesh.websocket import BINARY, FRAGMENTS_MAX, TEXT, MessageConnection, Payload, frame_head, masked
from tests.support.conditions import DEADLINE_S

BYTES_MAX = 100_000
QUEUE_MAX = 4
REQUEST = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Direct(MessageConnection, ServerConnection):
    """The connection under test."""


class DirectClient(MessageConnection, ClientConnection):
    """The same at a client."""


class Server:
    """A server that records messages; `hold` makes it await each of them."""

    def __init__(self) -> None:
        self.got: list[tuple[bytes, bool]] = []
        self.connections: list[Direct] = []
        self.ended = 0
        self.hold: asyncio.Event | None = None
        self.error: Exception | None = None

    def on_message(self, data: Payload, is_text: bool) -> Awaitable[None] | None:
        self.got.append((bytes(data), is_text))
        if self.error:
            raise self.error
        return self._held(self.hold) if self.hold else None

    async def _held(self, event: asyncio.Event) -> None:
        await event.wait()

    async def handle(self, connection: ServerConnection) -> None:
        assert isinstance(connection, Direct)
        self.connections.append(connection)
        try:
            await connection.receive(self.on_message)
        finally:
            self.ended += 1


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[Server, int]]:
    server = Server()
    settings: dict[str, Any] = {"close_timeout": 1, "max_size": BYTES_MAX, "max_queue": QUEUE_MAX, **options}
    listener = await serve(server.handle, "127.0.0.1", 0, create_connection=Direct, compression=None, **settings)
    async with listener:
        yield server, listener.sockets[0].getsockname()[1]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


class Raw:
    """A client that writes bytes of its own choice."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def dial(cls, port: int, more: bytes = b"") -> Raw:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST + more)
        await reader.readuntil(b"\r\n\r\n")
        return cls(reader, writer)

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> tuple[int, bytes]:
        async with asyncio.timeout(DEADLINE_S):
            first, size = await self.reader.readexactly(2)
            return first, await self.reader.readexactly(size)

    async def close(self) -> None:
        self.writer.close()


def frame(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


MESSAGES = [b"", b"x", b"y" * 125, b"z" * 126, b"a" * 65_535, b"b" * 65_536, "ü".encode() * 10, os.urandom(70_000)]
WIRE = [frame(Opcode.TEXT if number != 7 else Opcode.BINARY, data) for number, data in enumerate(MESSAGES)]
EXPECTED = [(data, number != 7) for number, data in enumerate(MESSAGES)]


@pytest.mark.parametrize("size", [1, 7, 1_000, 65_541, 1_000_000])
async def test_messages_arrive_whole_and_in_order_whatever_the_pieces(size: int) -> None:
    wire = b"".join(WIRE if size > 7 else [*WIRE[:4], WIRE[6]])
    expected = EXPECTED if size > 7 else [*EXPECTED[:4], EXPECTED[6]]
    async with serving() as (server, port):
        raw = await Raw.dial(port)
        await until(lambda: server.connections != [])
        [connection] = server.connections
        for start in range(0, len(wire), size):  # as the transport does, without its own joining
            connection.data_received(wire[start : start + size])
        assert server.got == expected, "each in the turn of its last byte"
        await raw.close()
        await until(lambda: server.ended == 1)


async def test_fragments_pings_and_whole_messages_mix() -> None:
    async with serving() as (server, port):
        raw = await Raw.dial(port)
        raw.write(frame(Opcode.TEXT, b"one"))
        raw.write(frame(Opcode.TEXT, "é".encode()[:1], fin=False) + frame(Opcode.PING, b"p"))
        assert await raw.frame() == (0x8A, b"p")
        raw.write(
            frame(Opcode.CONT, "é".encode()[1:], fin=False) + frame(Opcode.CONT, b"!") + frame(Opcode.BINARY, b"2")
        )
        await until(lambda: len(server.got) == 3)
        assert server.got == [(b"one", True), ("é!".encode(), True), (b"2", False)]
        raw.write(frame(Opcode.CLOSE, struct.pack("!H", 1000)))
        assert await raw.frame() == (0x88, struct.pack("!H", 1000))
        await raw.close()
        await until(lambda: server.ended == 1)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(Opcode.TEXT, b'{"a": "\xff"}'), 1007),
        (frame(Opcode.TEXT, b"\xed\xa0\x80"), 1007),
        (frame(Opcode.TEXT, b"\xc3", fin=False) + frame(Opcode.CONT, b""), 1007),
        (frame(Opcode.BINARY, b"x" * (BYTES_MAX + 1))[:20], 1009),
        (frame(Opcode.TEXT, b"x" * 60_000, fin=False) + frame(Opcode.CONT, b"x" * 60_000)[:20], 1009),
        (frame(Opcode.TEXT, b"", fin=False) + frame(Opcode.CONT, b"", fin=False) * FRAGMENTS_MAX, 1009),
        (b"\x81\x03abc", 1002),  # not masked
        (b"\x82\x00", 1002),
        (b"\xc1\x80abcd", 1002),  # a reserved bit
        (b"\x83\x80abcd", 1002),  # a reserved opcode
        (frame(Opcode.TEXT, b"a", fin=False) + frame(Opcode.TEXT, b"b"), 1002),
        (frame(Opcode.CONT, b"b"), 1002),
        (b"\x89\xfe\x00\x7e" + bytes(4 + 126), 1002),  # too long a ping
        (b"\x09\x80abcd", 1002),  # a fragmented ping
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "data",  # masks are random
)
async def test_message_against_the_protocol_closes_the_connection(data: bytes, code: int) -> None:
    async with serving() as (server, port):
        raw = await Raw.dial(port)
        raw.write(frame(Opcode.TEXT, b"good") + data + frame(Opcode.TEXT, b"late"))
        first, payload = await raw.frame()
        assert (first, payload[:2]) == (0x88, struct.pack("!H", code)), payload
        await raw.close()
        await until(lambda: server.ended == 1)
        assert server.got == [(b"good", True)]


async def test_peer_that_ignores_its_close_is_aborted() -> None:
    async with serving(close_timeout=0.05, ping_interval=None) as (server, port):
        raw = await Raw.dial(port)
        raw.write(frame(Opcode.TEXT, b"\xff"))
        await until(lambda: server.ended == 1)
        await raw.close()


async def test_frames_before_the_handshake_is_complete_are_received() -> None:
    async with serving() as (server, port):
        split = frame(Opcode.TEXT, b"split")
        raw = await Raw.dial(port, frame(Opcode.TEXT, b"early") + split[:5])
        await until(lambda: server.got == [(b"early", True)])
        raw.write(split[5:] + frame(Opcode.BINARY, b"later"))
        await until(lambda: server.got[1:] == [(b"split", True), (b"later", False)])
        await raw.close()
        await until(lambda: server.ended == 1)


async def test_message_that_must_wait_holds_up_the_next_and_then_the_socket() -> None:
    async with serving() as (server, port):
        server.hold = first = asyncio.Event()
        raw = await Raw.dial(port)
        for number in range(QUEUE_MAX + 10):
            raw.write(frame(Opcode.BINARY, b"%d" % number))
            await asyncio.sleep(0)
        await until(lambda: bool(server.connections) and server.connections[0]._is_read_paused)
        assert [data for data, _ in server.got] == [b"0"]
        server.hold = None
        first.set()
        await until(lambda: len(server.got) == QUEUE_MAX + 10)
        assert [int(data) for data, _ in server.got] == list(range(QUEUE_MAX + 10))
        raw.write(frame(Opcode.BINARY, b"more"))
        await until(lambda: server.got[-1] == (b"more", False))
        await raw.close()
        await until(lambda: server.ended == 1)


async def test_queued_messages_are_handled_after_the_socket_closed() -> None:
    async with serving() as (server, port):
        server.hold = first = asyncio.Event()
        raw = await Raw.dial(port)
        raw.write(frame(Opcode.TEXT, b"a") + frame(Opcode.TEXT, b"b"))
        await until(lambda: server.got == [(b"a", True)])
        await raw.close()
        await until(lambda: server.connections[0]._is_closed)
        assert server.ended == 0
        first.set()
        await until(lambda: server.ended == 1)
        assert server.got == [(b"a", True), (b"b", True)]


async def test_error_of_the_handler_ends_the_connection() -> None:
    async with serving() as (server, port):
        server.error = RuntimeError("ours")
        raw = await Raw.dial(port)
        raw.write(frame(Opcode.TEXT, b"a") + frame(Opcode.TEXT, b"b"))
        first, payload = await raw.frame()
        assert (first, payload[:2]) == (0x88, struct.pack("!H", 1011)) and server.got == [(b"a", True)]
        await raw.close()


async def test_silent_peer_fails_its_keepalive() -> None:
    async with serving(ping_interval=0.01, ping_timeout=0.01) as (server, port):
        raw = await Raw.dial(port)
        assert (await raw.frame())[0] == 0x89
        await until(lambda: server.ended == 1)
        await raw.close()


async def test_client_takes_single_messages_and_then_receives() -> None:
    async def handle(connection: ServerConnection) -> None:
        for data in ("ack", b"job", "text"):
            await connection.send(data)
        await connection.wait_closed()

    async with serve(handle, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        client = await connect(f"ws://127.0.0.1:{port}", create_connection=DirectClient, compression=None)
        assert isinstance(client, DirectClient)
        assert await client.take() == (b"ack", True)
        got: list[tuple[bytes, bool]] = []

        def on_message(data: Payload, is_text: bool) -> None:
            got.append((bytes(data), is_text))

        receiving = asyncio.create_task(client.receive(on_message))
        await until(lambda: len(got) == 2)
        assert got == [(b"job", False), (b"text", True)]
        await client.close()
        await receiving
        with pytest.raises(ConnectionClosed):
            await client.take()


def test_frame_heads_are_those_of_the_library() -> None:
    for size in (0, 1, 125, 126, 65_535, 65_536):
        data = os.urandom(size)
        assert frame_head(BINARY, size) + data == Frame(Opcode.BINARY, data).serialize(mask=False)
        assert frame_head(TEXT, size) + data == Frame(Opcode.TEXT, data).serialize(mask=False)


def test_parts_are_masked_like_their_sum() -> None:
    mask, parts = b"\x01\x80\x7f\xff", [os.urandom(size) for size in (5, 0, 3, 1_000, 2)]
    assert b"".join(masked(parts, mask)) == masked([b"".join(parts)], mask)[0]
    assert masked(masked([b"hello"], mask), mask) == [b"hello"]
