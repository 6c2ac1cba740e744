"""The connection of a session: opens it, reads it, and opens it again elsewhere when it is lost.

Knows addresses, time and sockets. What is said on it, and what was missed meanwhile, is for its listener.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from linguamesh.errors import LinguaError, SessionError, Unreachable
from linguamesh.websocket import dial, send
from mesh.clock import now_ms
from mesh.errors import ErrorCode, PeerError
from mesh.messages import client as wire
from mesh.words import CloseCode

#: A connection that lived shorter than this was no success: the next one waits, from the second such time on.
STEADY_MS: Final = 1_000

#: Close codes after which another connection would end no better.
_FINAL_CLOSES: Final = {
    CloseCode.SUPERSEDED: (ErrorCode.SESSION_SUPERSEDED, "a newer connection took this session over"),
    1007: (ErrorCode.INVALID_MESSAGE, "the mesh could not read a message"),
    1009: (ErrorCode.MESSAGE_TOO_LARGE, "a message was too large"),
}
#: Refusals of session_init that may pass.
_PASSING: Final = frozenset({
    ErrorCode.INTERNAL_ERROR.name,
    ErrorCode.SCHEDULER_DEPENDENCY_DOWN.name,
    ErrorCode.SLOW_DOWN.name,
})  # fmt: skip

_log = logging.getLogger("linguamesh.session")


class ConnectionListener(Protocol):
    """Whoever has the session."""

    #: Why the session cannot be used any more.
    over: SessionError | None

    @property
    def may_resume(self) -> bool:
        """True if a lost connection can be replaced."""

    def hello(self) -> wire.SessionInit:
        """The first message of a connection."""

    def on_open(self, ack: wire.SessionInitAck) -> None:
        """The mesh's answer to it."""

    def on_data(self, data: str | bytes) -> None:
        """Anything that the mesh says later."""

    def on_lost(self) -> None:
        """The connection ended; what is on its way may be lost."""


class Connection:
    """One session's connection, at one of `urls` at a time. `delay`: seconds to wait after so many failures."""

    def __init__(
        self,
        urls: Sequence[str],
        listener: ConnectionListener,
        *,
        open_timeout: float,
        reconnect_for: float,
        delay: Callable[[int], float],
    ) -> None:
        self.reconnects = 0
        self._urls = urls
        self._listener = listener
        self._open_timeout = open_timeout
        self._reconnect_for = reconnect_for
        self._delay = delay
        self._place = 0  # which of the addresses
        self._socket: ClientConnection | None = None
        self._opened_ms = 0
        self._brief = 0  # connections in a row that did not live long

    @property
    def url(self) -> str:
        """The address in use, or tried last."""
        return self._urls[self._place]

    async def open(self) -> None:
        """Open the session at the first address that takes it; Unreachable or SessionError if none does."""
        failure: LinguaError | None = None
        for place in range(len(self._urls)):
            self._place = place
            try:
                return await self._establish()
            except Unreachable as error:
                failure = error
            except SessionError as error:
                if error.code not in _PASSING:
                    raise
                failure = error
        assert failure is not None, "a session has an address"
        raise failure

    async def serve(self) -> SessionError:
        """Read, and connect again whenever the connection is lost; returns why that came to an end."""
        try:
            while True:
                end = await self._read()
                self._listener.on_lost()
                if end is None and not self._listener.may_resume:
                    end = SessionError(ErrorCode.WS_DISCONNECTED.name, "the connection is lost")
                if end is None:
                    end = await self._reconnect()
                if end is not None:
                    return end
        finally:
            await self._close()

    async def send(self, data: str | bytes) -> bool:
        """True if it went into a live connection."""
        socket = self._socket
        return socket is not None and await send(socket, data, self.url)

    # --- inside -----------------------------------------------------------------------------------

    async def _close(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def _establish(self) -> None:
        """Dial and open or resume the session; Unreachable or SessionError if that fails."""
        url = self.url
        socket = await dial(url, open_timeout_s=self._open_timeout)
        try:
            async with asyncio.timeout(self._open_timeout):
                await socket.send(wire.encode(self._listener.hello()))
                ack = await _await_ack(socket)
        except BaseException as error:
            await socket.close()
            if isinstance(error, TimeoutError):
                raise Unreachable(f"{url} did not answer session_init within {self._open_timeout:g} s") from None
            if isinstance(error, ConnectionClosed):
                raise Unreachable(f"{url} closed the connection on session_init: {error}") from None
            raise
        self._socket, self._opened_ms = socket, now_ms()
        self._listener.on_open(ack)

    async def _read(self) -> SessionError | None:
        """Read until the connection ends; why no other will do, if that is so."""
        socket = self._socket
        assert socket is not None
        try:
            async for data in socket:
                self._listener.on_data(data)
                if self._listener.over:
                    return self._listener.over
        except ConnectionClosed as error:
            _log.info("connection to %s lost: %s", self.url, error)
        self._socket = None
        self._brief = self._brief + 1 if now_ms() - self._opened_ms < STEADY_MS else 0
        final = _FINAL_CLOSES.get(socket.close_code or 0)
        return SessionError(final[0].name, final[1]) if final else None

    async def _reconnect(self) -> SessionError | None:
        """Connect again, at the next address; why that failed, if it did."""
        failures, last = max(0, self._brief - 1), "no answer"
        try:
            async with asyncio.timeout(self._reconnect_for):
                while True:
                    if failures:
                        await asyncio.sleep(self._delay(failures))
                    failures += 1
                    self._place = (self._place + 1) % len(self._urls)
                    try:
                        await self._establish()
                    except Unreachable as error:
                        last = str(error)
                    except SessionError as error:
                        if error.code not in _PASSING:
                            return error
                        last = str(error)
                    else:
                        self.reconnects += 1
                        return self._listener.over
                    _log.warning("%s", last)
        except TimeoutError:
            text = f"the connection is lost and did not come back within {self._reconnect_for:g} s: {last}"
            return SessionError(ErrorCode.WS_DISCONNECTED.name, text)


async def _await_ack(socket: ClientConnection) -> wire.SessionInitAck:
    while True:
        message = decoded(await socket.recv())
        if isinstance(message, wire.SessionInitAck):
            return message
        if isinstance(message, wire.ErrorMessage):
            raise error_from(message)


def decoded(data: str | bytes) -> wire.ServerMessage | None:
    """The message, or None for one that this version does not know."""
    try:
        return wire.decode_from_server(data)
    except PeerError as error:
        _log.warning("ignored a message of the mesh: %s", error)
        return None


def error_from(message: wire.ErrorMessage) -> SessionError:
    """A wire error as the user sees it."""
    return SessionError(message.code, message.message, message.details if isinstance(message.details, dict) else None)
