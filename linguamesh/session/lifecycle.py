"""The lifecycle of a session: wires its parts, opens it, resumes or replaces it after a lost connection, and closes it.

Knows nothing of the user's calls; those are in `session`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from linguamesh.errors import SessionError
from linguamesh.session.connection import Connection
from linguamesh.session.messages import heartbeat, session_close
from linguamesh.session.receiver import Receiver
from linguamesh.session.results import PendingResults
from linguamesh.session.rooms import Rooms
from linguamesh.session.send_buffer import SendBuffer
from linguamesh.session.sender import Sender
from mesh.errors import ErrorCode
from mesh.messages import client as wire
from mesh.messages.base import encode_utf8
from mesh.websocket import Payload

#: Timeout of session_close in a session that does not wait for its results, and of a heartbeat's reply.
CLOSE_STEP_TIMEOUT_S: Final = 2.0


class SessionTimeouts(NamedTuple):
    """In seconds. `reconnect_delay`: the backoff after that many failures in a row."""

    open: float
    close: float
    heartbeat_interval: float
    reconnect_for: float
    reconnect_delay: Callable[[int], float]


class SessionLifecycle:
    """The parts of one session and its state: from `open` to `close`, or to the error that ends it.

    It is the handler of its connection.
    """

    def __init__(
        self,
        urls: Sequence[str],
        init: wire.SessionInit,
        timeouts: SessionTimeouts,
        bytes_max: int,
        on_event: Callable[[wire.ServerMessage], None] | None,
    ) -> None:
        self.session_id = ""
        #: The latest reply to session_init.
        self.ack: wire.SessionInitAck | None = None
        #: True once audio or results may have been lost.
        self.lost = False
        #: The error that ended the session; None while it is open.
        self.error: SessionError | None = None
        self._init = init
        self._timeouts = timeouts
        self._resume_token = ""
        self._closing = False
        self._disconnected = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.connection = Connection(
            urls,
            self,
            open_timeout_s=timeouts.open,
            reconnect_for_s=timeouts.reconnect_for,
            reconnect_delay_s=timeouts.reconnect_delay,
        )
        self.buffer = SendBuffer(bytes_max)
        self.results = PendingResults()
        self.sender = Sender(self.buffer, self.results, self.connection)
        self.rooms = Rooms(self.send)
        self.receiver = Receiver(self.buffer, self.results, self.sender, self.rooms, on_event, self.end)
        #: The connection calls the receiver and the sender themselves.
        self.on_message: Callable[[Payload, bool], None] = self.receiver.on_message
        self.on_writable: Callable[[], None] = self.sender.wake

    async def open(self) -> None:
        """Connect, open the session and start its tasks."""
        await self.connection.open()
        self._tasks = [
            asyncio.create_task(self._serve(), name="session reader"),
            asyncio.create_task(self._send_heartbeats(), name="session heartbeat"),
        ]

    def check_open(self) -> None:
        """SessionError unless the session was opened and is not being closed. For a session that has ended, the sender
        raises its error."""
        if self.ack is None:
            raise SessionError(ErrorCode.INVALID_SESSION.name, "the session is not open: use `async with`")
        if self._closing and self.error is None:
            raise SessionError(ErrorCode.SESSION_CLOSED.name, "the session is being closed")

    async def send(self, message: wire.ClientMessage) -> None:
        """Send a message, on this connection or the next; SessionError if the session is closed."""
        self.check_open()
        await self.sender.send(lambda session_id: message)

    async def _serve(self) -> None:
        error = SessionError(ErrorCode.WS_DISCONNECTED.name, "the connection is lost")
        try:
            error = await self.connection.serve()
        finally:
            self.end(error)

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._timeouts.heartbeat_interval)
            self.connection.put(encode_utf8(heartbeat(self.session_id)))

    # --- the connection's handler -----------------------------------------------------------------

    @property
    def may_resume(self) -> bool:
        """True if a lost connection is replaced."""
        return self.buffer.is_resumable and self.error is None and not self.receiver.close_ack.is_set()

    def session_init(self) -> wire.SessionInit:
        """The first message of a connection; for a resume it carries the token and the acknowledged position."""
        if not self._resume_token:
            return self._init
        return msgspec.structs.replace(
            self._init,
            pairing_code=None,  # valid once; a resumed session keeps its node
            resume_token=self._resume_token,
            last_index=self.buffer.last_index,
            last_seq=self.buffer.last_seq,
        )

    def on_session_init_ack(self, ack: wire.SessionInitAck) -> None:
        """The handshake succeeded: the session is new, resumed, or (not resumed) replaces a lost one."""
        is_first, is_resumed = self.ack is None, bool(ack.resumed)
        if is_first:
            self.buffer.is_resumable = bool(self._init.resumable and ack.resume_token)
        self.lost = self.lost or bool(ack.lost) or not (is_first or is_resumed)
        self.ack, self.session_id = ack, ack.session_id
        if self._closing and not is_resumed:
            self.end(SessionError(ErrorCode.SESSION_CLOSED.name, "the session was closed"))
            return
        self._disconnected.clear()
        self._resume_token = (ack.resume_token or self._resume_token) if self.buffer.is_resumable else ""
        if is_resumed:
            self.receiver.resume(ack.session_id, has_gap=bool(ack.lost))
            self.buffer.on_resumed(ack.resend_from_seq, ack.next_utterance_index)
        else:
            self.receiver.restart(ack.session_id)
            self.buffer.on_restarted()
        first = self.rooms.on_session_init_ack(ack, is_first=is_first)
        self.sender.resume(ack.session_id, bool(ack.use_binary_frame), first)
        if not is_first:
            self.receiver.emit(ack)

    def on_disconnected(self) -> None:
        """The connection is lost; a reconnect may follow."""
        self._disconnected.set()
        self.buffer.suspend()
        self.sender.suspend()
        self.receiver.suspend()

    # --- the end ----------------------------------------------------------------------------------

    def end(self, error: SessionError) -> None:
        """The session has ended: all waiters get the error. The first error wins."""
        self.error = self.error or error
        self.sender.close(self.error)
        self.rooms.close(self.error)
        self.results.close(self.error.code, self.error.message)
        self.receiver.close()

    async def close(self, *, wait: bool) -> None:
        """Send session_close and end; `wait`: after the last results. Idempotent."""
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return
        try:
            if self.error is None and wait and self._timeouts.close:
                await self._close_after_results()
            elif self.error is None:
                self._closing = True
                async with asyncio.timeout(CLOSE_STEP_TIMEOUT_S):
                    await self.sender.try_send(session_close)
        except (SessionError, TimeoutError):
            pass  # the mesh detects the closed socket
        finally:
            self.end(SessionError(ErrorCode.SESSION_CLOSED.name, "the session was closed"))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _close_after_results(self) -> None:
        """Flush the send buffer, then send session_close; its acknowledgement follows the last results. TimeoutError if
        it does not arrive in time. After a reconnect session_close is retried."""
        async with asyncio.timeout(self._timeouts.close):
            while not self.receiver.close_ack.is_set():
                await self.sender.flush()
                if not await self._is_accepted():
                    continue
                self._closing = True
                if await self.sender.try_send(session_close):
                    await self._wait_while_connected(self.receiver.close_ack)
                else:
                    await self._disconnected.wait()

    async def _is_accepted(self) -> bool:
        """False if the mesh rejected (SLOW_DOWN) the last of the audio: it does so before it replies to a heartbeat."""
        if not self.buffer.used_bytes:
            return True
        self.receiver.heartbeat.clear()
        try:
            async with asyncio.timeout(CLOSE_STEP_TIMEOUT_S):
                await self.sender.try_send(heartbeat)
                await self._wait_while_connected(self.receiver.heartbeat)
        except TimeoutError:
            return True
        return self.buffer.is_all_sent

    async def _wait_while_connected(self, event: asyncio.Event) -> None:
        """Returns once the event is set or the connection is lost."""
        waiters = [asyncio.create_task(one.wait()) for one in (event, self._disconnected)]
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()
