"""WebSocket connections to the mesh: dial, send, decode, and the backoff of reconnects. Shared by both SDKs.

Knows no message.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from linguamesh.errors import Unreachable
from mesh.errors import PeerError
from mesh.loopback import is_loopback

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


async def dial(url: str, *, open_timeout_s: float = OPEN_TIMEOUT_S) -> ClientConnection:
    """An open WebSocket; Unreachable, with a text of one line, if that fails."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # an invalid port raises
    except ValueError as error:
        raise Unreachable(f"{url} is not a WebSocket address (ws:// or wss://): {error}") from None
    try:
        return await connect(
            url,
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


class Outbound:
    """The sending side of a peer, which has one connection after the other."""

    def __init__(self, url: str) -> None:
        #: The address in use, or tried last.
        self.url = url
        #: None while there is no connection.
        self.connection: ClientConnection | None = None

    async def send(self, data: str | bytes) -> bool:
        """True if the data went into a live connection. A connection that accepts none is aborted."""
        connection = self.connection
        if connection is None:
            return False
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await connection.send(data)
        except ConnectionClosed:
            return False
        except TimeoutError:
            _log.warning("connection to %s is stuck, aborting it", self.url)
            connection.transport.abort()
            return False
        return True


def decode_known(decode: Callable[[str | bytes], T], data: str | bytes) -> T | None:
    """The message, or None for one that this version does not know or cannot decode."""
    try:
        return decode(data)
    except PeerError as error:
        ignore(error)
        return None


def ignore(error: PeerError) -> None:
    """A message that this version does not know or cannot decode."""
    _log.warning("ignored a message of the mesh: %s", error)


def _reason(error: OSError) -> str:
    # asyncio joins the failures for all addresses of a name into one text; the number is the same for all.
    return "connection refused" if error.errno == 111 or "refused" in str(error) else (error.strerror or str(error))
