"""The parts of one session, and its life: from the first connection to the last, through all that are lost.

Knows nothing of what a user may ask of a session; that is `linguamesh.session`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from linguamesh.errors import SessionError
from linguamesh.session.closing import Goodbye
from linguamesh.session.connection import Connection
from linguamesh.session.flow_control import FlowControl
from linguamesh.session.messages import heartbeat
from linguamesh.session.receiver import Receiver
from linguamesh.session.results import PendingResults, UnreadResults
from linguamesh.session.rooms import Rooms
from linguamesh.session.send_buffer import SendBuffer
from linguamesh.session.sender import Sender
from mesh.errors import ErrorCode
from mesh.messages import client as wire


class SessionTimeouts(NamedTuple):
    """How long a session waits, in seconds: `reconnect_delay` after so many failures in a row."""

    open: float
    close: float
    heartbeat: float
    reconnect_for: float
    reconnect_delay: Callable[[int], float]


class SessionLifecycle:
    """Begins with `open`, ends with `close`, or when the mesh or a lost connection ends it."""

    def __init__(
        self,
        urls: Sequence[str],
        init: wire.SessionInit,
        patience: SessionTimeouts,
        kept_bytes_max: int,
        on_event: Callable[[wire.ServerMessage], None] | None,
    ) -> None:
        self._patience = patience
        self.speech = SendBuffer(kept_bytes_max)
        #: The session's own utterances, and what it hears of others.
        self.waiting = PendingResults()
        self.heard = UnreadResults()
        pace = FlowControl()
        self.sender = Sender(self.speech, pace, self.waiting, self._send)
        self.rooms = Rooms(self._say)
        self.hearing = Receiver(init, self.speech, pace, self.waiting, self.heard, self.sender, self.rooms, on_event)
        self.connection = Connection(
            urls,
            self.hearing,
            open_timeout=patience.open,
            reconnect_for=patience.reconnect_for,
            delay=patience.reconnect_delay,
        )
        self._goodbye = Goodbye(self.sender, self.speech, self.hearing)
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Connect, and go on from there."""
        await self.connection.open()
        self._tasks = [
            asyncio.create_task(self._serve(), name="session reader"),
            asyncio.create_task(self.sender.run(), name="session sender"),
            asyncio.create_task(self._heartbeat(), name="session heartbeat"),
        ]

    async def close(self, *, wait: bool) -> None:
        """Say goodbye and end; `wait`: for the last results. Safe to repeat."""
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return
        try:
            if self.hearing.over is None:
                await self._goodbye.say(self._patience.close if wait else 0)
        except (SessionError, TimeoutError):
            pass  # the mesh notices the closed socket
        finally:
            self.hearing.end(SessionError(ErrorCode.SESSION_CLOSED.name, "the session was closed"))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def check_open(self) -> None:
        """SessionError unless something can be said. What is over already is told by whoever is asked to say it."""
        if self.hearing.ack is None:
            raise SessionError(ErrorCode.INVALID_SESSION.name, "the session is not open: use `async with`")
        if self.hearing.closing and self.hearing.over is None:
            raise SessionError(ErrorCode.SESSION_CLOSED.name, "the session is being closed")

    async def _serve(self) -> None:
        end = SessionError(ErrorCode.WS_DISCONNECTED.name, "the connection is lost")
        try:
            end = await self.connection.serve()
        finally:
            self.hearing.end(end)

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self._patience.heartbeat)
            await self._send(wire.encode(heartbeat(self.hearing.session_id)))

    async def _send(self, data: str | bytes) -> bool:
        return await self.connection.send(data)

    async def _say(self, message: wire.ClientMessage) -> None:
        self.check_open()
        await self.sender.tell(lambda own: message)
