"""Opening a WebSocket to the mesh, sending, and how long to wait before the next try. Shared by both SDKs."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from linguamesh.errors import Unreachable
from mesh.loopback import is_loopback

OPEN_TIMEOUT_S: Final = 10.0
CLOSE_TIMEOUT_S: Final = 2.0
PING_INTERVAL_S: Final = 20.0
PING_TIMEOUT_S: Final = 20.0
#: A job's audio or a result's speech, in base64.
MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
#: Messages received but not yet handled; beyond, the peer has to wait.
MESSAGES_WAITING_MAX: Final = 64

#: A send that takes longer means that the connection is stuck; it is cut and dialled again.
SEND_TIMEOUT_S: Final = 5.0

RECONNECT_BASE_S: Final = 0.5
RECONNECT_CAP_S: Final = 15.0
#: An edge prints its address as http://, for its /health; its sockets are at the same one.
_SCHEMES: Final = {"http": "ws", "https": "wss"}

_log = logging.getLogger("linguamesh.websocket")


def with_path(url: str, path: str) -> str:
    """The WebSocket address that `url` means: ws://host:5010 is enough to write, and http:// is taken for ws://."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # whoever dials it is told that it is none
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    return urlunsplit(parts._replace(scheme=scheme, path=path if parts.path in ("", "/") else parts.path))


def reconnect_delay_s(failures: int, *, base_s: float = RECONNECT_BASE_S, cap_s: float = RECONNECT_CAP_S) -> float:
    """Full jitter: anything from 0 to base * 2^failures, at most cap. Spreads a fleet that lost its edge at once."""
    # The exponent is bounded because 2.0 ** failures overflows after a thousand failures.
    return random.uniform(0, min(cap_s, base_s * 2.0 ** min(failures, 32)))


async def dial(url: str, *, open_timeout_s: float = OPEN_TIMEOUT_S) -> ClientConnection:
    """An open WebSocket; Unreachable, in one line, if there is none to be had."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # a port that is none raises
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
            # A proxy from the environment never leads back to this machine.
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


async def send(connection: ClientConnection, data: str | bytes, url: str) -> bool:
    """True if it went into a live connection. One that takes nothing any more is cut."""
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await connection.send(data)
    except ConnectionClosed:
        return False
    except TimeoutError:
        _log.warning("connection to %s is stuck, cutting it", url)
        connection.transport.abort()
        return False
    return True


def _reason(error: OSError) -> str:
    # asyncio joins the failures for all addresses of a name into one text; the number is the same for all.
    return "connection refused" if error.errno == 111 or "refused" in str(error) else (error.strerror or str(error))
