"""The outbox on a real socket: readers that keep up, lag, stop, and sockets that close with something waiting."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from edge.transport.connection import EdgeConnection
from edge.transport.send_buffer import SendBuffer, SendLimits
from mesh.websocket import GATHERED_BYTES_MAX
from tests.support.conditions import DEADLINE_S
from tests.support.processes.edge import until

ROOMY = SendLimits(messages_max=1_000, bytes_max=8 * 1024 * 1024, timeout_s=20.0, bytes_per_s_min=256 * 1024)
#: The buffers below are 8 KB each, of which the kernel makes at most a few times as much.
MORE_THAN_KERNEL = 100_000


class Pair:
    """An outbox and the client that it writes to."""

    def __init__(self, connection: EdgeConnection, client: ClientConnection, bounds: SendLimits) -> None:
        self.cuts: list[str] = []
        self.connection = connection
        self.client = client
        self.outbox = SendBuffer(connection, bounds, self.cuts.append)

    @property
    def held(self) -> int:
        return self.connection.transport.get_write_buffer_size()

    async def fill(self) -> int:
        """Put until more is held than the kernel can still take; how many messages that took."""
        self.client.transport.pause_reading()
        count = 0
        while self.held < MORE_THAN_KERNEL:
            assert self.outbox.put(b"%08d" % count + b"x" * 10_000)
            count += 1
            await asyncio.sleep(0)
        return count


@asynccontextmanager
async def pair(bounds: SendLimits) -> AsyncIterator[Pair]:
    """A server with small buffers, so that a few messages fill them."""
    arrived: asyncio.Future[EdgeConnection] = asyncio.get_running_loop().create_future()

    async def handle(connection: ServerConnection) -> None:
        raw = connection.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_192)
        assert isinstance(connection, EdgeConnection)
        arrived.set_result(connection)
        await connection.wait_closed()

    async with serve(
        handle, "127.0.0.1", 0, compression=None, close_timeout=1, create_connection=EdgeConnection
    ) as server:
        port = server.sockets[0].getsockname()[1]
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        plain.connect(("127.0.0.1", port))
        plain.setblocking(False)
        client = await connect(f"ws://127.0.0.1:{port}", sock=plain, compression=None, max_queue=None, close_timeout=1)
        try:
            yield Pair(await arrived, client, bounds)
        finally:
            client.transport.resume_reading()
            await client.close()


async def hear(client: ClientConnection) -> str:
    async with asyncio.timeout(DEADLINE_S):
        text = await client.recv()
    assert isinstance(text, str)
    return text


async def test_reader_that_keeps_up_needs_neither_task_nor_timer() -> None:
    async with pair(ROOMY) as both:
        tasks = len(asyncio.all_tasks())
        for number in range(100):
            assert both.outbox.put(f"é{number}".encode())
            assert await hear(both.client) == f"é{number}"
        assert len(asyncio.all_tasks()) == tasks and both.outbox._timer is None and not both.cuts


async def test_order_holds_when_the_reader_lags_and_catches_up() -> None:
    async with pair(ROOMY) as both:
        count = await both.fill()
        for number in range(count, count + 50):
            assert both.outbox.put(b"%08d" % number)
        both.client.transport.resume_reading()
        assert [int((await hear(both.client))[:8]) for _ in range(count + 50)] == list(range(count + 50))
        assert both.outbox.put(b"more") and await hear(both.client) == "more"
        assert not both.cuts and not both.outbox._unsent


async def test_reader_that_stops_is_aborted_without_further_messages() -> None:
    async with pair(ROOMY._replace(timeout_s=0.2)) as both:
        await both.fill()
        await until(lambda: both.cuts != [], "the reader is cut off")
        assert both.cuts == ["the reader is too slow: a message was not sent in time"]
        assert not both.outbox.is_open and not both.outbox.put(b"x")
        await both.connection.wait_closed()


async def test_slow_reader_is_not_aborted_while_each_message_is_sent_in_time() -> None:
    async with pair(ROOMY._replace(timeout_s=0.3)) as both:
        count = await both.fill()
        for number in range(count, count + 40):
            assert both.outbox.put(b"%08d" % number + b"x" * 10_000)
            both.client.transport.resume_reading()
            await hear(both.client)
            both.client.transport.pause_reading()
            await asyncio.sleep(0.02)
        assert not both.cuts


async def test_too_many_messages_or_bytes_abort_at_once() -> None:
    for bounds, size in ((ROOMY._replace(messages_max=40), 1), (ROOMY._replace(bytes_max=200_000), 9_000)):
        async with pair(bounds) as both:
            await both.fill()
            put = [both.outbox.put(b"x" * size) for _ in range(40)]
            assert put[0] is True and put[-1] is False
            assert both.cuts == ["the reader is too slow: its send buffer is full"]


async def test_message_larger_than_the_bound_is_sent_to_a_reader_that_keeps_up() -> None:
    async with pair(ROOMY._replace(bytes_max=200_000)) as both:
        for _ in range(3):
            assert both.outbox.put(b"x" * 900_000)
            assert len(await hear(both.client)) == 900_000
            await until(lambda: both.held == 0, "all of it is taken")
        both.client.transport.pause_reading()
        assert both.outbox.put(b"x" * 900_000) and not both.outbox.put(b"x"), "behind it nothing more may wait"
        assert both.cuts == ["the reader is too slow: its send buffer is full"]


async def test_close_sends_buffered_messages_first() -> None:
    async with pair(ROOMY) as both:
        count = await both.fill()
        both.outbox.close(4_009, "enough")
        assert not both.outbox.is_open and not both.outbox.put(b"late")
        both.client.transport.resume_reading()
        assert [int((await hear(both.client))[:8]) for _ in range(count)] == list(range(count))
        async with asyncio.timeout(DEADLINE_S):
            await both.outbox.closed()
            await both.client.wait_closed()
        assert both.client.close_code == 4_009 and not both.cuts


async def test_close_of_a_stuck_reader_ends_in_time() -> None:
    async with pair(ROOMY._replace(timeout_s=0.2)) as both:
        await both.fill()
        both.outbox.close(1_001, "leaving")
        async with asyncio.timeout(DEADLINE_S):
            await both.outbox.closed()
            await both.connection.wait_closed()
        assert len(both.cuts) == 1


async def test_closed_connection_accepts_no_message() -> None:
    async with pair(ROOMY) as both:
        await both.client.close()
        await both.connection.wait_closed()
        assert not both.outbox.is_open and not both.outbox.put(b"x") and not both.cuts
        both.outbox.close(1_001, "leaving")
        await both.outbox.closed()


async def test_one_turn_is_one_write() -> None:
    async with pair(ROOMY) as both:
        writes: list[int] = []
        transport = both.connection.transport

        class Recorder:
            """The transport, counted."""

            def writelines(self, parts: list[bytes]) -> None:
                writes.append(len(parts))
                transport.writelines(parts)

            def __getattr__(self, name: str) -> object:
                return getattr(transport, name)

        both.connection.transport = Recorder()  # type: ignore[assignment]
        for number in range(3):
            assert both.outbox.put(b"%d" % number)
        assert both.outbox.put(b"head", memoryview(b"audio"), text=False)
        assert writes == []
        assert [await hear(both.client) for _ in range(3)] == ["0", "1", "2"]
        assert await both.client.recv() == b"headaudio"
        assert writes == [9], "four messages: three of two parts, one of three"
        assert both.outbox.put(b"x" * GATHERED_BYTES_MAX) and writes == [9, 2], "a large one does not wait"
        both.connection.transport = transport


def test_one_write_is_one_system_call_on_uvloop() -> None:
    def calls() -> int:
        return int(Path("/proc/self/io").read_text().split("syscw: ")[1].split()[0])

    async def main() -> int:
        async with pair(ROOMY) as both:
            await asyncio.sleep(0)
            before = calls()
            for number in range(20):
                assert both.outbox.put(b"%d" % number)
            both.outbox._write()
            made = calls() - before
            assert [int(await hear(both.client)) for _ in range(20)] == list(range(20))
            return made

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == 1
