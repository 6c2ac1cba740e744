"""Send buffer: the sending side of one WebSocket. Bounded in messages, bytes and time; too slow a reader is aborted.

All messages that one turn of the event loop has for a socket are one write to its transport, at the end of that turn;
payloads are not copied. The transport passes them to the kernel as far as they fit and buffers the rest. One stuck peer
costs the others nothing: `put` never waits. The library bounds neither the transport's buffer nor the time in it, so
that is done here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from websockets.protocol import State

from edge.transport.connection import EdgeConnection
from mesh.config.network import EdgeConfig
from mesh.log import get_logger
from mesh.websocket import BINARY, GATHERED_BYTES_MAX, TEXT, Payload, frame_head

_OPEN: Final = State.OPEN
#: Polling interval of a closing socket until its buffer is empty.
_CLOSING_POLL_S: Final = 0.01

log = get_logger()


class SendLimits(NamedTuple):
    """Bounds of the unsent messages of one socket."""

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


class UnsentWrite(NamedTuple):
    """The messages of one write that the kernel did not accept at once."""

    #: Bytes put into this buffer up to the end of the last message.
    end: int
    due_s: float
    messages: int


class SendBuffer:
    """The sending side of one connection. While the reader keeps up it has neither task nor timer."""

    def __init__(self, connection: EdgeConnection, limits: SendLimits, on_aborted: Callable[[str], None]) -> None:
        self._connection = connection
        self._limits = limits
        self._on_aborted = on_aborted
        #: Frames of this turn, and how many messages they are.
        self._gathered: list[Payload] = []
        self._gathered_bytes = 0
        self._gathered_messages = 0
        self._written = 0
        #: Writes in the transport's buffer, oldest first, and how many messages they are.
        self._unsent: deque[UnsentWrite] = deque()
        self._unsent_messages = 0
        #: Runs while a message is unsent, and ends by itself.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0
        self._closing: asyncio.Task[None] | None = None
        self._aborted = False

    @property
    def is_open(self) -> bool:
        """False once the socket is closing or aborted: nothing more will be sent."""
        return not self._aborted and self._closing is None and self._connection.protocol.state is _OPEN

    def put(self, *parts: Payload, text: bool = True) -> bool:
        """Send one message: its UTF-8 in a text frame, or any bytes in a binary one; False if the socket is closed.

        The parts are not copied and must not change.
        """
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        head = frame_head(TEXT if text else BINARY, size)
        return self._gather([head, *parts], len(head) + size, 1)

    def put_texts(self, texts: list[bytes]) -> bool:
        """Send several messages in text frames; False if the socket is closed."""
        frames: list[Payload] = []
        size = 0
        for text in texts:
            head = frame_head(TEXT, len(text))
            size += len(head) + len(text)
            frames += (head, text)
        return self._gather(frames, size, len(texts))

    def _gather(self, frames: list[Payload], size: int, messages: int) -> bool:
        """Send the frames of that many messages, of `size` bytes in all, at the end of this turn."""
        connection = self._connection
        if self._aborted or self._closing is not None or connection.protocol.state is not _OPEN:
            return False
        if self._unsent and self._is_full(size, messages):
            self.abort("the reader is too slow: its send buffer is full")
            return False
        if self._gathered:
            self._gathered += frames
        else:
            self._gathered = frames
            connection.loop.call_soon(self._write)
        self._gathered_bytes += size
        self._gathered_messages += messages
        if self._gathered_bytes > GATHERED_BYTES_MAX:
            self._write()
        return not self._aborted

    def _write(self) -> None:
        """Write the messages of this turn, if they are not written yet."""
        if not self._gathered or self._aborted or self._connection.protocol.state is not _OPEN:
            return
        parts, self._gathered = self._gathered, []
        count, self._gathered_messages = self._gathered_messages, 0
        self._written += self._gathered_bytes
        self._gathered_bytes = 0
        transport = self._connection.transport
        try:
            transport.writelines(parts)
        except Exception:
            # The transport's own failure costs this one socket.
            log.exception("send_failed")
            self.abort("sending failed")
            return
        buffered = transport.get_write_buffer_size()
        if buffered:
            self._expect(buffered, count)

    def close(self, code: int, reason: str) -> None:
        """Send the buffered messages, then close the socket."""
        if self.is_open:
            self._write()
            self._closing = self._connection.loop.create_task(self._close(code, reason))

    def abort(self, reason: str) -> None:
        """Close the connection at once; unsent messages are dropped."""
        if not self._aborted:
            self._aborted = True
            self._unsent.clear()
            self._gathered = []
            self._on_aborted(reason)
            self._connection.transport.abort()

    async def closed(self) -> None:
        """Return once the socket is closed, if `close` was called."""
        if self._closing is not None:
            await asyncio.wait([self._closing])

    async def _close(self, code: int, reason: str) -> None:
        try:
            # The transport notifies only the library when it is empty. The deadlines of unsent messages go on.
            while self._buffered() and not self._aborted:  # noqa: ASYNC110
                await asyncio.sleep(_CLOSING_POLL_S)
            async with asyncio.timeout(self._limits.timeout_s):
                await self._connection.close(code, reason)
        except TimeoutError:
            self.abort("the reader is too slow: the socket could not be closed in time")
        except Exception:
            # No caller awaits this task: an unforeseen error is logged, and fails this one socket.
            log.exception("send_failed")
            self.abort("closing failed")

    # --- unsent messages ----------------------------------------------------------------------

    def _is_full(self, size: int, messages: int) -> bool:
        """True if messages of that size exceed a bound. One may exceed that on bytes if it is the only one: only a
        reader that lags is aborted for its bytes."""
        buffered = self._buffered() + self._gathered_bytes
        too_much = bool(self._unsent) and buffered + size > self._limits.bytes_max
        return too_much or self._unsent_messages + self._gathered_messages + messages > self._limits.messages_max

    def _buffered(self) -> int:
        """Bytes in the transport's buffer; messages that left it are removed here."""
        buffered = self._connection.transport.get_write_buffer_size()
        # Pings are buffered too, so a message may seem unsent for some bytes longer than it is.
        while self._unsent and self._unsent[0].end <= self._written - buffered:
            self._unsent_messages -= self._unsent.popleft().messages
        return buffered

    def _expect(self, buffered: int, messages: int) -> None:
        """The messages just written are not sent yet: all `buffered` bytes must be sent in time."""
        wait_s = self._limits.timeout_s + buffered / self._limits.bytes_per_s_min
        due_s = self._connection.loop.time() + wait_s
        self._unsent.append(UnsentWrite(self._written, due_s, messages))
        self._unsent_messages += messages
        if self._timer is None or due_s < self._timer_due_s:
            self._arm(due_s)

    def _arm(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._connection.loop.call_at(due_s, self._check)

    def _check(self) -> None:
        self._timer = None
        self._buffered()
        if not self._unsent or self._connection.protocol.state is not _OPEN:
            return  # all is sent, or the library closes the socket, with a timeout of its own
        # Not always that of the oldest: a large message may have longer than a small one behind it.
        due_s = min(write.due_s for write in self._unsent)
        if due_s <= self._connection.loop.time():
            self.abort("the reader is too slow: a message was not sent in time")
        else:
            self._arm(due_s)
