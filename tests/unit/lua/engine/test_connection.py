"""One connection, against a server that is not always a good one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import MovedError, ResponseError

from lua.engine.connection import RedisConnection, connection_to
from mesh.config.network import RedisConfig
from tests.support.conditions import DEADLINE_S

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PING = ("PING",)


@asynccontextmanager
async def served(talk: Talk, timeout_ms: int = 5_000) -> AsyncIterator[RedisConnection]:
    """A server that runs `talk` on each connection."""
    talking: set[asyncio.Task[None]] = set()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talking.add(task)
        try:
            await talk(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    server = connection_to(RedisConfig(url=f"redis://127.0.0.1:{port}/0", timeout_ms=timeout_ms))
    try:
        yield server
    finally:
        await server.close()
        listening.close()
        await asyncio.wait_for(asyncio.gather(*talking, return_exceptions=True), DEADLINE_S)


async def read_ping(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"PING\r\n")


async def test_replies_come_in_any_pieces_and_errors_are_values() -> None:
    text = b"*2\r\n:7\r\n$2\r\nhi\r\n-MOVED 5 127.0.0.1:7000\r\n-ERR no\r\n+OK\r\n"

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            for _ in range(4):
                await read_ping(reader)
            for start in range(0, len(text), 3):
                writer.write(text[start : start + 3])
                await writer.drain()
                await asyncio.sleep(0)

    async with served(talk) as server:
        for _ in range(3):
            listed, moved, failed, fine = await server.exchange([PING] * 4)
            assert (listed, fine) == ([7, b"hi"], b"OK")
            assert isinstance(moved, MovedError) and (moved.slot_id, moved.port) == (5, 7000)
            assert isinstance(failed, ResponseError)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"$5\r\nhe"])
async def test_a_connection_that_fails_is_made_again(answer: bytes) -> None:
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_ping(reader)
        writer.write(answer if connections == 1 else b"+PONG\r\n")
        await writer.drain()
        if connections > 1:
            await reader.read()

    async with served(talk) as server:
        with pytest.raises(Disconnected):
            await server.exchange([PING])
        assert await server.exchange([PING]) == [b"PONG"]


async def test_a_reply_that_nobody_asked_for_ends_the_connection() -> None:
    """Taking it for the answer to the next question would be worse."""
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_ping(reader)
        writer.write(b"+%d\r\n" % connections + (b"+stray\r\n" if connections == 1 else b""))
        await writer.drain()
        await reader.read()

    async with served(talk) as server:
        assert await server.exchange([PING]) == [b"1"]
        async with asyncio.timeout(DEADLINE_S):
            while server.is_open:  # noqa: ASYNC110 - the stray reply may come in a packet of its own
                await asyncio.sleep(0.005)
        assert await server.exchange([PING]) == [b"2"]


async def test_silence_and_giving_up_end_the_connection() -> None:
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_ping(reader)
        if connections > 2:
            writer.write(b"+PONG\r\n")
            await writer.drain()
        await reader.read()

    async with served(talk, timeout_ms=150) as server:
        with pytest.raises(TimeoutError):
            await server.exchange([PING])
        asking = asyncio.create_task(server.exchange([PING]))
        async with asyncio.timeout(DEADLINE_S):
            while connections < 2:  # noqa: ASYNC110 - it is under way once the server has it
                await asyncio.sleep(0.001)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not server.is_open
        assert await server.exchange([PING]) == [b"PONG"]
