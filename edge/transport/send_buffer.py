"""Outbox: the sending side of one WebSocket. Bounded in messages, bytes and time; too slow a reader is cut off.

A message goes straight into the transport, which gives the kernel at once what it takes and holds the rest. That costs
half of what a task and a timeout per message do, and one stuck peer costs the others nothing: `put` never waits. The
library bounds neither what a transport holds nor for how long, so that is done here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from websockets.asyncio.server import ServerConnection, broadcast
from websockets.protocol import State

from mesh.config.network import EdgeConfig
from mesh.log import get_logger

#: How often a socket that is to be closed is looked at until it has taken what waits for it.
_CLOSING_LOOK_S: Final = 0.01

log = get_logger()


class SendLimits(NamedTuple):
    """How much may wait, and for how long."""

    messages_max: int
    bytes_max: int
    timeout_s: float
    bytes_per_s_min: int

    @classmethod
    def of(cls, config: EdgeConfig) -> SendLimits:
        """The bounds that the configuration sets."""
        return cls(
            config.send_queue_max,
            config.send_buffer_bytes_max,
            config.send_timeout_ms / 1_000,
            config.send_rate_bytes_min,
        )


class UnsentMessage(NamedTuple):
    """A message that the kernel did not take at once."""

    #: Bytes put into this outbox up to the message's end.
    end: int
    due_s: float


class SendBuffer:
    """The sending side of one connection. While the reader keeps up it has neither task nor timer."""

    def __init__(self, connection: ServerConnection, bounds: SendLimits, on_cut: Callable[[str], None]) -> None:
        self._connection = connection
        self._bounds = bounds
        self._on_cut = on_cut
        self._written = 0
        #: What the transport holds, oldest first.
        self._untaken: deque[UnsentMessage] = deque()
        #: Runs while something is untaken, and ends by itself.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0
        self._closing: asyncio.Task[None] | None = None
        self._cut = False

    @property
    def is_open(self) -> bool:
        """False once the socket is closing or was cut off: nothing more will be sent."""
        return not self._cut and self._closing is None and self._connection.state is State.OPEN

    def put(self, data: bytes, *, text: bool = True) -> bool:
        """Send UTF-8 `data` as a text frame, or any as a binary one; False if this socket takes nothing any more."""
        if not self.is_open:
            return False
        held = self._held()
        # A message may be as large as it was allowed to be made: by bytes only a reader that lags is cut off.
        too_much = bool(self._untaken) and held + len(data) > self._bounds.bytes_max
        if too_much or len(self._untaken) >= self._bounds.messages_max:
            self.cut("the reader is too slow: too much waits for it")
            return False
        try:
            # The library's only way to send without a task. It does so whatever the transport holds already.
            broadcast((self._connection,), data, text=text, raise_exceptions=True)
        except ExceptionGroup:
            log.exception("outbox_failed")
            self.cut("sending failed")
            return False
        self._written += len(data)
        held = self._connection.transport.get_write_buffer_size()
        if held:
            self._expect(held)
        return True

    def close(self, code: int, reason: str) -> None:
        """Send what waits, then close the socket."""
        if self.is_open:
            self._closing = asyncio.get_running_loop().create_task(self._close(code, reason))

    def cut(self, reason: str) -> None:
        """Give the peer up at once."""
        if not self._cut:
            self._cut = True
            self._untaken.clear()
            self._on_cut(reason)
            self._connection.transport.abort()

    async def closed(self) -> None:
        """Return once the socket is closed, if `close` was called."""
        if self._closing is not None:
            await asyncio.wait([self._closing])

    async def _close(self, code: int, reason: str) -> None:
        try:
            # The transport tells nobody but the library when it is empty. The deadlines of what waits go on.
            while self._held() and not self._cut:  # noqa: ASYNC110
                await asyncio.sleep(_CLOSING_LOOK_S)
            async with asyncio.timeout(self._bounds.timeout_s):
                await self._connection.close(code, reason)
        except TimeoutError:
            self.cut("the reader is too slow: the socket could not be closed in time")
        except Exception:
            # Nobody awaits this task: what we did not foresee is logged, and costs this one socket.
            log.exception("outbox_failed")
            self.cut("closing failed")

    # --- what the kernel did not take yet -----------------------------------------------------

    def _held(self) -> int:
        """Bytes that the transport holds; what it no longer holds is forgotten here."""
        held = self._connection.transport.get_write_buffer_size()
        # Frame headers and pings are held too, so a message may seem untaken for some bytes longer than it is.
        while self._untaken and self._untaken[0].end <= self._written - held:
            self._untaken.popleft()
        return held

    def _expect(self, held: int) -> None:
        """The message just put waits behind others: all of it, `held` bytes, must be taken in time."""
        wait_s = self._bounds.timeout_s + held / self._bounds.bytes_per_s_min
        due_s = asyncio.get_running_loop().time() + wait_s
        self._untaken.append(UnsentMessage(self._written, due_s))
        if self._timer is None or due_s < self._timer_due_s:
            self._arm(due_s)

    def _arm(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = asyncio.get_running_loop().call_at(due_s, self._check)

    def _check(self) -> None:
        self._timer = None
        self._held()
        if not self._untaken or self._connection.state is not State.OPEN:
            return  # all is well, or the library closes the socket, with a time limit of its own
        # Not always the oldest one's: a large message may be given longer than a small one behind it.
        due_s = min(message.due_s for message in self._untaken)
        if due_s <= asyncio.get_running_loop().time():
            self.cut("the reader is too slow: a message was not taken in time")
        else:
            self._arm(due_s)
