"""WebSocket connections to the mesh: dial, send, decode, and the backoff of reconnects. Shared by both SDKs.

Knows no message, only that the audio of one may be apart. A message is received in the turn of the event loop in which
it arrives (mesh/websocket.py), and all messages that are sent in one turn are written at its end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidURI
from websockets.protocol import State

from linguamesh.errors import Unreachable
from mesh.errors import PeerError
from mesh.loopback import is_loopback
from mesh.messages.binary import AudioMessage, encode_parts, json_of
from mesh.websocket import BINARY, GATHERED_BYTES_MAX, TEXT, MessageConnection, Payload, frame_head, masked

OPEN_TIMEOUT_S: Final = 10.0
CLOSE_TIMEOUT_S: Final = 2.0
PING_INTERVAL_S: Final = 20.0
PING_TIMEOUT_S: Final = 20.0
#: Room for a job's audio or a result's speech, in base64.
MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
#: Messages received but not yet handled; beyond, reading stops (backpressure).
MESSAGES_WAITING_MAX: Final = 64
#: A connection that accepts no data for this long counts as lost and is aborted.
SEND_TIMEOUT_S: Final = 5.0
_MASK_BYTES: Final = 4

#: Backoff with full jitter: the next attempt comes between 0 and base * 2^failures, at most cap.
RECONNECT_BASE_S: Final = 0.5
RECONNECT_CAP_S: Final = 15.0
#: An edge prints its address as http://, for its /health; its WebSockets are at the same address.
_SCHEMES: Final = {"http": "ws", "https": "wss"}

T = TypeVar("T")

_log = logging.getLogger("linguamesh.websocket")


def with_path(url: str, path: str) -> str:
    """The WebSocket address of `url`: `path` is added if it has none, and http:// becomes ws://."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # `dial` reports it
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    return urlunsplit(parts._replace(scheme=scheme, path=path if parts.path in ("", "/") else parts.path))


def reconnect_delay_s(failures: int, *, base_s: float = RECONNECT_BASE_S, cap_s: float = RECONNECT_CAP_S) -> float:
    """Exponential backoff with full jitter, so that a fleet that lost its edge does not reconnect all at once."""
    # The exponent is bounded because 2.0 ** failures overflows after a thousand failures.
    return random.uniform(0, min(cap_s, base_s * 2.0 ** min(failures, 32)))


class MeshConnection(MessageConnection, ClientConnection):
    """A connection to the mesh. `put` never waits; who sends much stops while the connection `is_full`."""

    #: Called when the connection is no longer full.
    on_writable: Callable[[], None] | None = None
    _gathered_bytes = 0
    _written = 0
    #: Bytes that had left at the last check of a full connection, and the timer of the next.
    _accepted = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The TCP connection is open."""
        self._gathered: list[bytes] = []
        super().connection_made(transport)

    @property
    def is_full(self) -> bool:
        """True while more data waits to leave than should."""
        return self.paused

    def put(self, *parts: Payload, text: bool = True) -> bool:
        """Send one message: its UTF-8 in a text frame, or any bytes in a binary one; False if the connection is closed.

        Masking copies the parts once, so they may change afterwards.
        """
        if self.protocol.state is not State.OPEN:
            return False
        mask = os.urandom(_MASK_BYTES)
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        if not self._gathered:
            self.loop.call_soon(self._write)
        self._gathered.append(frame_head(TEXT if text else BINARY, size, mask))
        self._gathered += masked(parts, mask)
        self._gathered_bytes += size
        if self._gathered_bytes > GATHERED_BYTES_MAX:
            self._write()
        return True

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Write what is gathered, and close."""
        self._write()
        await super().close(code, reason)

    def _write(self) -> None:
        """Write the messages of this turn, if they are not written yet."""
        parts, self._gathered = self._gathered, []
        size, self._gathered_bytes = self._gathered_bytes, 0
        if not parts or self.protocol.state is not State.OPEN:
            return
        self._written += size
        self.transport.writelines(parts)  # one system call; only asyncio before Python 3.12 joins them first

    # --- a full connection ------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """More data waits to leave than should."""
        super().pause_writing()
        self._accepted = self._left()
        self._timer = self.loop.call_later(SEND_TIMEOUT_S, self._check)

    def resume_writing(self) -> None:
        """The data has left."""
        super().resume_writing()
        self._stop_timer()
        if self.on_writable:
            self.on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """The TCP connection is closed."""
        self._stop_timer()
        super().connection_lost(exc)

    def _left(self) -> int:
        # Pings wait too, so that it may seem some bytes less than it is.
        return self._written - self.transport.get_write_buffer_size()

    def _check(self) -> None:
        accepted, self._accepted = self._accepted, self._left()
        if self._accepted > accepted:
            self._timer = self.loop.call_later(SEND_TIMEOUT_S, self._check)
            return
        self._timer = None
        _log.warning("a connection is stuck, aborting it")
        self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


async def dial(url: str, *, open_timeout_s: float = OPEN_TIMEOUT_S) -> MeshConnection:
    """An open WebSocket; Unreachable, with a text of one line, if that fails."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # an invalid port raises
    except ValueError as error:
        raise Unreachable(f"{url} is not a WebSocket address (ws:// or wss://): {error}") from None
    try:
        connection = await connect(
            url,
            create_connection=MeshConnection,
            open_timeout=open_timeout_s,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_TIMEOUT_S,
            max_size=MESSAGE_BYTES_MAX,
            max_queue=MESSAGES_WAITING_MAX,
            compression=None,
            # A proxy from the environment cannot reach this machine's loopback.
            proxy=None if is_loopback(host) else True,
        )
    except InvalidURI as error:
        raise Unreachable(f"{url} is not a WebSocket address (ws:// or wss://): {error.msg}") from None
    except InvalidHandshake as error:
        raise Unreachable(f"{url} does not speak WebSocket here: {error}") from None
    except TimeoutError:
        raise Unreachable(f"no answer from {url} within {open_timeout_s:g} s") from None
    except OSError as error:
        raise Unreachable(f"cannot connect to {url}: {_reason(error)}") from None
    assert isinstance(connection, MeshConnection)
    return connection


class Outbound:
    """The sending side of a peer, which has one connection after the other."""

    def __init__(self, url: str) -> None:
        #: The address in use, or tried last.
        self.url = url
        #: None while there is no connection.
        self.connection: MeshConnection | None = None
        #: This connection agreed to binary messages.
        self.use_binary_messages = False

    @property
    def is_full(self) -> bool:
        """True while a connection has more data to send than it should."""
        return self.connection is not None and self.connection.is_full

    def put(self, *parts: Payload, text: bool = True) -> bool:
        """True if the message went into a live connection."""
        return self.connection is not None and self.connection.put(*parts, text=text)

    def put_with_audio(self, message_class: type[AudioMessage], head: bytes, audio: bytes) -> bool:
        """The same for a message whose audio is apart: binary if that was agreed, otherwise JSON."""
        if self.use_binary_messages:
            return self.put(*encode_parts(message_class, head, audio), text=False)
        return self.put(json_of(message_class, head, audio))

    async def send(self, data: bytes) -> bool:
        """`put` of a text; returns once the connection takes more."""
        is_sent = self.put(data)
        await self.drained()
        return is_sent

    async def drained(self) -> None:
        """Returns once the connection takes more, or is lost."""
        if self.connection is not None and self.connection.is_full:
            with suppress(OSError):
                await self.connection.drain()


def decode_known(decode: Callable[[bytes], T], data: bytes) -> T | None:
    """The message, or None for one that this version does not know or cannot decode."""
    try:
        return decode(data)
    except PeerError as error:
        ignore(error)
        return None


def ignore(error: PeerError) -> None:
    """A message that this version does not know or cannot decode."""
    _log.warning("ignored a message of the mesh: %s: %s", error.code.name, error)


def _reason(error: OSError) -> str:
    # asyncio joins the failures for all addresses of a name into one text; the number is the same for all.
    return "connection refused" if error.errno == 111 or "refused" in str(error) else (error.strerror or str(error))
