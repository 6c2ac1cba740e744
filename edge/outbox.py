"""Outbox: what waits to be sent on one WebSocket. Bounded in messages, bytes and time; too slow a reader is cut off.

The library's own keepalive does not evict a peer that stops reading, so every send has a deadline here, after which
the transport is aborted. `put` never waits: one stuck peer costs the others nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from mesh.config import EdgeConfig
from mesh.log import get_logger

log = get_logger()


class Bounds(NamedTuple):
    """How much may wait, and for how long."""

    messages_max: int
    bytes_max: int
    timeout_s: float
    bytes_per_s_min: int

    @classmethod
    def of(cls, config: EdgeConfig) -> Bounds:
        """The bounds that the configuration sets."""
        return cls(
            config.send_queue_max,
            config.send_buffer_bytes_max,
            config.send_timeout_ms / 1_000,
            config.send_rate_bytes_min,
        )


class Outbox:
    """The sending side of one connection. A task exists only while something waits."""

    def __init__(self, connection: ServerConnection, bounds: Bounds, on_cut: Callable[[str], None]) -> None:
        self._connection = connection
        self._bounds = bounds
        self._on_cut = on_cut
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._closing: tuple[int, str] | None = None
        self._cut = False

    @property
    def is_open(self) -> bool:
        """False once the socket is closing or was cut off: nothing more will be sent."""
        return not self._cut and self._closing is None

    def put(self, data: bytes) -> bool:
        """Send UTF-8 `data` as a text frame soon; False if this socket takes nothing any more."""
        if not self.is_open:
            return False
        if len(self._waiting) >= self._bounds.messages_max or self._bytes + len(data) > self._bounds.bytes_max:
            self.cut("the reader is too slow: too much waits for it")
            return False
        self._waiting.append(data)
        self._bytes += len(data)
        self._run()
        return True

    def close(self, code: int, reason: str) -> None:
        """Send what waits, then close the socket."""
        if self.is_open:
            self._closing = (code, reason)
            self._run()

    def cut(self, reason: str) -> None:
        """Give the peer up at once."""
        if not self._cut:
            self._cut = True
            self._waiting.clear()
            self._bytes = 0
            self._on_cut(reason)
            self._connection.transport.abort()

    async def closed(self) -> None:
        """Return once nothing waits and, if `close` was called, the socket is closed."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _run(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            while self._waiting:
                data = self._waiting.popleft()
                async with asyncio.timeout(self._bounds.timeout_s + len(data) / self._bounds.bytes_per_s_min):
                    await self._connection.send(data, text=True)
                self._bytes -= len(data)
            if self._closing is not None:
                async with asyncio.timeout(self._bounds.timeout_s):
                    await self._connection.close(*self._closing)
        except TimeoutError:
            self.cut("the reader is too slow: a message was not taken in time")
        except ConnectionClosed:
            self._cut = True  # the peer is gone; whoever reads from the socket hears of it too
            self._waiting.clear()
            self._bytes = 0
        except Exception:
            # Nobody awaits this task: what we did not foresee is logged, and costs this one socket.
            log.exception("outbox_failed")
            self.cut("sending failed")
        finally:
            self._task = None
            # Something may have been put while the last send ended.
            if not self._cut and self._waiting:
                self._run()
