"""A WebSocket server on loopback whose every message a test scripts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve

from tests.support.conditions import DEADLINE_S


class Peer:
    """One accepted connection."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection

    async def recv(self, kind: str) -> dict[str, Any]:
        """The next message of type `kind`; others before it are skipped."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                message: dict[str, Any] = json.loads(await self.connection.recv())
                if message["type"] == kind:
                    return message

    async def send(self, kind: str, **fields: Any) -> None:
        """Send a message."""
        await self.connection.send(json.dumps({"type": kind, **fields}))


class ScriptedServer:
    """The server and its accepted connections, in order."""

    def __init__(self) -> None:
        self._incoming: asyncio.Queue[Peer] = asyncio.Queue()
        self._server: Server | None = None

    @property
    def url(self) -> str:
        """ws://127.0.0.1:port."""
        assert self._server is not None
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def peer(self) -> Peer:
        """The next connection."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._incoming.get()

    async def _on_connection(self, connection: ServerConnection) -> None:
        await self._incoming.put(Peer(connection))
        await connection.wait_closed()


@asynccontextmanager
async def scripted_server() -> AsyncIterator[ScriptedServer]:
    """A running scripted server."""
    scripted = ScriptedServer()
    async with serve(scripted._on_connection, "127.0.0.1", 0, compression=None, close_timeout=1) as server:
        scripted._server = server
        yield scripted
