"""The WebSocket connection of a session: handshake, reading, and reconnect to the next address with backoff.

Knows addresses, time and sockets. It does not interpret messages after the handshake; its handler does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from websockets.exceptions import ConnectionClosed

from linguamesh.errors import RETRYABLE_CODES, LinguaError, SessionError, Unreachable
from linguamesh.session.messages import error_from
from linguamesh.websocket import MeshConnection, Outbound, decode_known, dial
from mesh.clock import now_ms
from mesh.errors import ErrorCode
from mesh.messages import client as wire
from mesh.messages.base import encode_utf8
from mesh.websocket import Payload
from mesh.words import CloseCode

#: A connection that lasted this long resets the backoff.
STABLE_MS: Final = 1_000

#: Close codes after which a reconnect cannot succeed: the code and text of the error.
_FATAL_CLOSE_CODES: Final = {
    CloseCode.SUPERSEDED: (ErrorCode.SESSION_SUPERSEDED, "a newer connection took this session over"),
    1007: (ErrorCode.INVALID_MESSAGE, "the mesh could not read a message"),
    1009: (ErrorCode.MESSAGE_TOO_LARGE, "a message was too large"),
}

_log = logging.getLogger("linguamesh.session")


class ConnectionHandler(Protocol):
    """The session's side of its connection."""

    #: Called with each message after the handshake, and whether it is text.
    on_message: Callable[[Payload, bool], None]
    #: Called when a full connection takes messages again.
    on_writable: Callable[[], None]
    #: The error that ended the session.
    error: SessionError | None

    @property
    def may_resume(self) -> bool:
        """True if a lost connection is replaced."""

    def session_init(self) -> wire.SessionInit:
        """The message for the next handshake."""

    def on_session_init_ack(self, ack: wire.SessionInitAck) -> None:
        """The handshake succeeded."""

    def on_disconnected(self) -> None:
        """The connection is lost; messages in flight may be lost."""


class Connection(Outbound):
    """One socket after the other, at one of `urls` at a time. `reconnect_delay_s`: the backoff after that many failures
    in a row."""

    def __init__(
        self,
        urls: Sequence[str],
        handler: ConnectionHandler,
        *,
        open_timeout_s: float,
        reconnect_for_s: float,
        reconnect_delay_s: Callable[[int], float],
    ) -> None:
        super().__init__(urls[0])
        self.reconnects = 0
        self._urls = urls
        self._url_index = 0
        self._handler = handler
        self._open_timeout_s = open_timeout_s
        self._reconnect_for_s = reconnect_for_s
        self._reconnect_delay_s = reconnect_delay_s
        self._opened_ms = 0
        self._unstable = 0  # connections in a row that did not last STABLE_MS

    async def open(self) -> None:
        """Open the session at the first address that accepts it; Unreachable or SessionError if none does."""
        failure: LinguaError | None = None
        for index, url in enumerate(self._urls):
            self._url_index, self.url = index, url
            try:
                return await self._establish()
            except Unreachable as error:
                failure = error
            except SessionError as error:
                if error.code not in RETRYABLE_CODES:
                    raise
                failure = error
        assert failure is not None, "a session has an address"
        raise failure

    async def serve(self) -> SessionError:
        """Read, and reconnect whenever the connection is lost; returns the error that ends the session."""
        try:
            while True:
                error = await self._read()
                self._handler.on_disconnected()
                if error is None and not self._handler.may_resume:
                    error = SessionError(ErrorCode.WS_DISCONNECTED.name, "the connection is lost")
                if error is None:
                    error = await self._reconnect()
                if error is not None:
                    return error
        finally:
            socket, self.connection = self.connection, None
            if socket is not None:
                await socket.close()

    # --- one socket -------------------------------------------------------------------------------

    async def _establish(self) -> None:
        """Dial and open or resume the session; Unreachable or SessionError if that fails."""
        url = self.url
        socket = await dial(url, open_timeout_s=self._open_timeout_s)
        try:
            async with asyncio.timeout(self._open_timeout_s):
                socket.put(encode_utf8(self._handler.session_init()))
                ack = await _await_ack(socket)
        except BaseException as error:
            await socket.close()
            if isinstance(error, TimeoutError):
                raise Unreachable(f"{url} did not answer session_init within {self._open_timeout_s:g} s") from None
            if isinstance(error, ConnectionClosed):
                raise Unreachable(f"{url} closed the connection on session_init: {error}") from None
            raise
        self.connection, self._opened_ms = socket, now_ms()
        self.use_binary_messages = bool(ack.binary_messages)
        socket.on_writable = self._handler.on_writable
        self._handler.on_session_init_ack(ack)

    async def _read(self) -> SessionError | None:
        """Read until the connection ends; the error if a reconnect cannot succeed."""
        socket = self.connection
        assert socket is not None
        try:
            await socket.receive(self._on_message)
        except SessionError as error:
            return error
        _log.info("connection to %s lost: %s %s", self.url, socket.close_code, socket.close_reason)
        self.connection = None
        self._unstable = self._unstable + 1 if now_ms() - self._opened_ms < STABLE_MS else 0
        fatal = _FATAL_CLOSE_CODES.get(socket.close_code or 0)
        return SessionError(fatal[0].name, fatal[1]) if fatal else None

    def _on_message(self, data: Payload, is_text: bool) -> None:
        self._handler.on_message(data, is_text)
        if self._handler.error:
            raise self._handler.error

    async def _reconnect(self) -> SessionError | None:
        """Retry with backoff, at the next address each time; the error if that is abandoned.

        The first attempt is immediate, unless connections do not last.
        """
        failures, last_failure = max(0, self._unstable - 1), "no answer"
        try:
            async with asyncio.timeout(self._reconnect_for_s):
                while True:
                    if failures:
                        await asyncio.sleep(self._reconnect_delay_s(failures))
                    failures += 1
                    self._url_index = (self._url_index + 1) % len(self._urls)
                    self.url = self._urls[self._url_index]
                    try:
                        await self._establish()
                    except Unreachable as error:
                        last_failure = str(error)
                    except SessionError as error:
                        if error.code not in RETRYABLE_CODES:
                            return error
                        last_failure = str(error)
                    else:
                        self.reconnects += 1
                        return self._handler.error
                    _log.warning("reconnect attempt %d failed: %s", failures, last_failure)
        except TimeoutError:
            text = f"the connection is lost and did not come back within {self._reconnect_for_s:g} s: {last_failure}"
            return SessionError(ErrorCode.WS_DISCONNECTED.name, text)


async def _await_ack(socket: MeshConnection) -> wire.SessionInitAck:
    while True:
        data, is_text = await socket.take()
        message = decode_known(wire.decode_from_server, bytes(data)) if is_text else None
        if isinstance(message, wire.SessionInitAck):
            return message
        if isinstance(message, wire.ErrorMessage):
            raise error_from(message)
