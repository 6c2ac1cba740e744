"""The connection of a session: addresses, retryable and fatal failures, and the backoff of reconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from linguamesh.errors import SessionError, Unreachable
from linguamesh.session import connection as connection_module
from linguamesh.session.connection import Connection
from linguamesh.session.messages import session_init
from linguamesh.websocket import with_path
from mesh.messages import client as wire
from mesh.websocket import Payload
from tests.support.fakes.scripted_server import Peer, ScriptedServer, scripted_server


class Handler:
    """A session's side of its connection that records the calls."""

    def __init__(self) -> None:
        self.error: SessionError | None = None
        self.may_resume = True
        self.calls: list[str] = []

    def session_init(self) -> wire.SessionInit:
        return session_init("en", "es", 16_000, ("pcm16",), True, True, {})

    def on_session_init_ack(self, ack: wire.SessionInitAck) -> None:
        self.calls.append(f"open {ack.session_id}")

    def on_message(self, data: Payload, is_text: bool) -> None:
        self.calls.append("message")

    def on_writable(self) -> None: ...

    def on_disconnected(self) -> None:
        self.calls.append("disconnected")


def connection_to(
    handler: Handler, *servers: ScriptedServer, delays: list[int] | None = None, reconnect_for_s: float = 10.0
) -> Connection:
    def delay_s(failures: int) -> float:
        if delays is not None:
            delays.append(failures)
        return 0.0

    urls = [with_path(server.url, "/ws/session") for server in servers]
    return Connection(urls, handler, open_timeout_s=10.0, reconnect_for_s=reconnect_for_s, reconnect_delay_s=delay_s)


async def accept(server: ScriptedServer, session_id: str) -> Peer:
    peer = await server.peer()
    await peer.recv("session_init")
    await peer.send("session_init_ack", session_id=session_id, trace_id="t-1")
    return peer


async def refuse(server: ScriptedServer, code: str) -> None:
    peer = await server.peer()
    await peer.recv("session_init")
    await peer.send("error", code=code, message="refused")


@pytest.fixture
async def servers() -> AsyncIterator[tuple[ScriptedServer, ScriptedServer]]:
    async with scripted_server() as first, scripted_server() as second:
        yield first, second


async def test_open_continues_at_the_next_address_after_a_retryable_refusal(
    servers: tuple[ScriptedServer, ScriptedServer],
) -> None:
    handler = Handler()
    connection = connection_to(handler, *servers)
    opening = asyncio.create_task(connection.open())
    await refuse(servers[0], "SCHEDULER_DEPENDENCY_DOWN")
    await accept(servers[1], "s-1")
    await opening
    assert (handler.calls, connection.url) == (["open s-1"], with_path(servers[1].url, "/ws/session"))


async def test_open_stops_at_a_final_refusal(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    opening = asyncio.create_task(connection_to(Handler(), *servers).open())
    await refuse(servers[0], "INVALID_MESSAGE")
    with pytest.raises(SessionError, match="INVALID_MESSAGE"):
        await opening


async def test_lost_connection_is_replaced_at_the_next_address(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    handler, delays = Handler(), list[int]()
    connection = connection_to(handler, *servers, delays=delays)
    opening = asyncio.create_task(connection.open())
    peer = await accept(servers[0], "s-1")
    await opening
    serving = asyncio.create_task(connection.serve())
    await peer.connection.close()
    peer = await accept(servers[1], "s-1")
    await peer.connection.close(4009)
    error = await serving
    assert (error.code, connection.reconnects) == ("SESSION_SUPERSEDED", 1)
    assert handler.calls == ["open s-1", "disconnected", "open s-1", "disconnected"]
    assert delays == [], "the first reconnect is immediate"


async def test_failed_reconnects_back_off(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    handler, delays = Handler(), list[int]()
    connection = connection_to(handler, *servers, delays=delays)
    opening = asyncio.create_task(connection.open())
    peer = await accept(servers[0], "s-1")
    await opening
    serving = asyncio.create_task(connection.serve())
    await peer.connection.close()
    await refuse(servers[1], "SLOW_DOWN")
    await refuse(servers[0], "SLOW_DOWN")
    await refuse(servers[1], "INVALID_SESSION")
    assert (await serving).code == "INVALID_SESSION"
    assert delays == [1, 2]


async def test_connections_that_do_not_last_back_off_too(
    servers: tuple[ScriptedServer, ScriptedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "STABLE_MS", 10**9)
    handler, delays = Handler(), list[int]()
    connection = connection_to(handler, servers[0], delays=delays)
    opening = asyncio.create_task(connection.open())
    peer = await accept(servers[0], "s-1")
    await opening
    serving = asyncio.create_task(connection.serve())
    for _ in range(3):
        await peer.connection.close()
        peer = await accept(servers[0], "s-1")
    await peer.connection.close(1009)
    assert (await serving).code == "MESSAGE_TOO_LARGE"
    assert delays == [1, 2], "the first reconnect is immediate"


async def test_reconnects_are_abandoned_after_their_time(servers: tuple[ScriptedServer, ScriptedServer]) -> None:
    handler = Handler()
    connection = connection_to(handler, servers[0], reconnect_for_s=0.0)
    opening = asyncio.create_task(connection.open())
    peer = await accept(servers[0], "s-1")
    await opening
    await peer.connection.close()
    error = await connection.serve()
    assert error.code == "WS_DISCONNECTED" and "did not come back within 0 s" in error.message


async def test_session_that_cannot_be_resumed_ends_with_its_connection(
    servers: tuple[ScriptedServer, ScriptedServer],
) -> None:
    handler = Handler()
    handler.may_resume = False
    connection = connection_to(handler, servers[0])
    opening = asyncio.create_task(connection.open())
    peer = await accept(servers[0], "s-1")
    await opening
    await peer.connection.close()
    assert (await connection.serve()).code == "WS_DISCONNECTED"
    assert not await connection.send("x"), "there is no connection"


async def test_unreachable_address_is_named(free_port: int) -> None:
    handler = Handler()
    url = f"ws://127.0.0.1:{free_port}/ws/session"
    connection = Connection(
        [url], handler, open_timeout_s=10.0, reconnect_for_s=1.0, reconnect_delay_s=lambda failures: 0.0
    )
    with pytest.raises(Unreachable, match=f"cannot connect to {url}"):
        await connection.open()
