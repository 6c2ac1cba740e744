"""WebSocket connections that hand each message to a callback in the turn in which its last byte arrives.

`websockets` does the handshake, control frames, fragmented messages, keepalive and closing. Its queue, future and task
per message cost more than handling one, so a whole message in one frame, which is nearly every one, is read here, and
written here as well. The library gets every other frame, always whole, so that it is at the start of a frame whenever
this module reads one. Bytes that break the protocol are the library's from there on: it closes the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from struct import Struct
from typing import Final, TypeAlias

from websockets.asyncio.connection import Connection
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import CLIENT, State

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform without the library's C extension
    from websockets.utils import apply_mask

Payload: TypeAlias = bytes | bytearray | memoryview
#: Handles one message: its bytes, and whether it is text. An awaitable must end before the next message is handled.
Handle: TypeAlias = Callable[[Payload, bool], Awaitable[None] | None]

#: Bytes gathered for one write; more are written before the turn ends.
GATHERED_BYTES_MAX: Final = 64 * 1024
#: Frames of one message; a peer that needs more is closed with 1009.
FRAGMENTS_MAX: Final = 4_096

#: First byte of a frame: final, no reserved bit, opcode.
TEXT: Final = 0x81
BINARY: Final = 0x82
_DIRECT: Final = (TEXT, BINARY)
_MASKED: Final = 0x80
_CONTROL: Final = 0x08
_CONTROL_BYTES_MAX: Final = 125
_MASK_BYTES: Final = 4
#: Second byte of a masked frame whose length has 16 bits, and where the payload of such a frame begins.
_MASKED_16: Final = _MASKED | 126
_BODY_16: Final = 4 + _MASK_BYTES
_END_OF_HEAD: Final = b"\r\n\r\n"
_HEAD_16: Final = Struct("!BBH")
_HEAD_64: Final = Struct("!BBQ")
_OPEN: Final = State.OPEN


class MessageConnection(Connection):
    """The receiving side of a connection. Mix it in before the library's class of a server or client connection.

    `receive` passes on all messages; `take` waits for a single one. Messages that arrive meanwhile are queued; beyond
    the library's `max_queue` the socket is not read.
    """

    _handle: Handle | None = None
    #: True while a message may be handled: `receive` runs, and no earlier message holds it up.
    _is_ready = False
    _is_closed = False
    _is_read_paused = False
    #: The handshake's head has arrived.
    _has_head = False
    #: True while the library is at the start of a frame.
    _is_direct = False
    #: The beginning of a frame, and the bytes needed to go on with it.
    _partial: bytearray | None = None
    _needed = 0
    _wake: asyncio.Future[Awaitable[None] | None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The TCP connection is open."""
        self._undelivered: deque[tuple[Payload, bool]] = deque()
        self._fragments: list[Frame] = []
        self._has_mask = self.protocol.side is not CLIENT
        super().connection_made(transport)

    # --- messages for the owner -------------------------------------------------------------------

    async def receive(self, handle: Handle) -> None:
        """Pass every message to `handle` until the connection is closed; raises what it raises."""
        self._handle = handle
        try:
            while True:
                waiting = self._handle_undelivered()
                if waiting is None:
                    if self._is_closed:
                        return
                    self._is_ready = True
                    waiting = await self._woken()
                    self._is_ready = False
                if waiting is not None:
                    await waiting
        finally:
            self._is_ready = False
            self._handle = None

    async def take(self) -> tuple[Payload, bool]:
        """The next message; ConnectionClosed if there is none."""
        while not self._undelivered:
            if self._is_closed:
                raise self.close_exc
            await self._woken()
        message = self._undelivered.popleft()
        self._resume_reading()
        return message

    async def _woken(self) -> Awaitable[None] | None:
        self._wake = self.loop.create_future()
        try:
            return await self._wake
        finally:
            self._wake = None

    def _handle_undelivered(self) -> Awaitable[None] | None:
        """Handle queued messages up to one that must be awaited."""
        assert self._handle is not None
        while self._undelivered:
            data, is_text = self._undelivered.popleft()
            self._resume_reading()
            waiting = self._handle(data, is_text)
            if waiting is not None:
                return waiting
        return None

    def _deliver(self, data: Payload, is_text: bool) -> None:
        if is_text and not _is_utf8(data):
            self._fail(CloseCode.INVALID_DATA, "the text is not UTF-8")
            return
        if not self._is_ready:
            self._queue(data, is_text)
            return
        assert self._handle is not None and self._wake is not None
        try:
            waiting = self._handle(data, is_text)
        except Exception as error:  # noqa: BLE001 - the owner's; `receive` raises it
            self._is_ready = False
            self._wake.set_exception(error)
            return
        if waiting is not None:
            self._is_ready = False
            self._wake.set_result(waiting)

    def _queue(self, data: Payload, is_text: bool) -> None:
        self._undelivered.append((data, is_text))
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        if self.max_queue_high is not None and len(self._undelivered) > self.max_queue_high:
            self._is_read_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_read_paused and len(self._undelivered) <= (self.max_queue_high or 0) // 4:
            self._is_read_paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    # --- frames -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived: handle every message that is whole now."""
        if not self._is_direct:
            self._pass_on(data)
            return
        if self._partial is None:
            if not self._read_one(data):
                self._read_frames(data)
            return
        self._partial += data
        if len(self._partial) >= self._needed:
            whole, self._partial = self._partial, None
            self._read_frames(whole)

    def _read_one(self, data: bytes) -> bool:
        """Read `data` if it is one whole message of usual size, masked: nearly every read of a server. False if not."""
        size, protocol = len(data), self.protocol
        if size <= _BODY_16 or data[1] != _MASKED_16 or (data[2] << 8 | data[3]) != size - _BODY_16:
            return False
        first, bytes_max = data[0], protocol.max_message_size
        if first not in _DIRECT or not self._has_mask or protocol.state is not _OPEN:
            return False
        if protocol.current_size is not None or (bytes_max is not None and size - _BODY_16 > bytes_max):
            return False
        payload = apply_mask(memoryview(data)[_BODY_16:], data[_BODY_16 - _MASK_BYTES : _BODY_16])
        self._deliver(payload, first == TEXT)
        return True

    def _read_frames(self, data: bytes | bytearray) -> None:
        """Read the frames in `data`, from the start of one; the last one may be incomplete."""
        protocol, size, start = self.protocol, len(data), 0
        view = memoryview(data)
        while start < size:
            if protocol.state is not _OPEN:
                break
            body, end = self._bounds(data, start, size)
            if end == 0:  # against the protocol: the library closes the connection
                break
            if end > size:
                self._partial, self._needed = bytearray(view[start:]), end - start
                return
            first = data[start]
            if first in _DIRECT and protocol.current_size is None:
                payload: Payload = view[body:end]
                if self._has_mask:
                    payload = apply_mask(payload, data[body - _MASK_BYTES : body])
                elif first == TEXT:
                    payload = bytes(payload)
                self._deliver(payload, first == TEXT)
            else:
                self._pass_on(bytes(view[start:end]))
            start = end
        if start < size:
            self._is_direct = False
            self._pass_on(bytes(view[start:]))

    def _bounds(self, data: bytes | bytearray, start: int, size: int) -> tuple[int, int]:
        """Where the payload of the frame at `start` begins and ends: beyond `size` if more bytes are needed to know
        that; 0 if the library must refuse the frame."""
        body = start + 2 + (_MASK_BYTES if self._has_mask else 0)
        if size < start + 2:
            return body, body
        second = data[start + 1]
        if (second >= _MASKED) is not self._has_mask:
            return 0, 0
        length = second & 0x7F
        if length > _CONTROL_BYTES_MAX:
            if data[start] & _CONTROL:
                return 0, 0
            extended = 2 if length == 126 else 8
            body += extended
            if size < body:
                return body, body
            length = int.from_bytes(data[start + 2 : start + 2 + extended], "big")
        bytes_max = self.protocol.max_message_size
        if bytes_max is not None and length > bytes_max - (self.protocol.current_size or 0):
            return 0, 0
        return body, body + length

    def _pass_on(self, data: bytes) -> None:
        """Give bytes to the library. It may answer pings, and fail or close the connection."""
        is_head = not self._has_head
        super().data_received(data)
        if is_head and self._has_head:
            # A peer that sends more before the handshake is complete stays with the library's own parser.
            self._is_direct = data.find(_END_OF_HEAD) == len(data) - len(_END_OF_HEAD)
        elif self.protocol.state is not _OPEN:
            self._is_direct = False

    def process_event(self, event: Request | Response | Frame) -> None:
        """The library read the handshake or a frame."""
        if isinstance(event, Frame):
            if event.opcode < _CONTROL:
                self._add_fragment(event)
                return
        else:
            self._has_head = True
        super().process_event(event)

    def _add_fragment(self, frame: Frame) -> None:
        self._fragments.append(frame)
        if frame.fin:
            fragments, self._fragments = self._fragments, []
            self._deliver(b"".join([part.data for part in fragments]), fragments[0].opcode is Opcode.TEXT)
        elif len(self._fragments) >= FRAGMENTS_MAX:
            self._fail(CloseCode.MESSAGE_TOO_BIG, "too many fragments")

    # --- the end ----------------------------------------------------------------------------------

    def _fail(self, code: CloseCode, reason: str) -> None:
        """Close the connection because of the peer's message; abort it if the peer does not close its side in time."""
        self._is_direct = False
        self._fragments = []
        if self.protocol.state is not _OPEN:
            return
        self.protocol.fail(code, reason)
        self.send_data()
        if self.close_timeout is not None:
            self.close_deadline = self.loop.time() + self.close_timeout
            self.loop.call_at(self.close_deadline, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """The TCP connection is closed."""
        super().connection_lost(exc)
        self._is_closed = True
        self._partial = None
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def frame_head(first: int, size: int, mask: bytes = b"") -> bytes:
    """The bytes before the payload of a frame, unmasked unless there is a `mask`."""
    if not mask and 126 <= size < 65_536:  # nearly every message of a server
        return _HEAD_16.pack(first, 126, size)
    flag = _MASKED if mask else 0
    if size < 126:
        return bytes((first, flag | size)) + mask
    if size < 65_536:
        return _HEAD_16.pack(first, flag | 126, size) + mask
    return _HEAD_64.pack(first, flag | 127, size) + mask


def masked(parts: Sequence[Payload], mask: bytes) -> list[bytes]:
    """The parts of one payload, masked: each is copied once."""
    if len(parts) == 1:
        return [apply_mask(parts[0], mask)]
    sealed, at = [], 0
    for part in parts:
        turned = mask[at:] + mask[:at]
        sealed.append(apply_mask(part, turned))
        at = (at + len(part)) % _MASK_BYTES
    return sealed


def _is_utf8(data: Payload) -> bool:
    assert type(data) is bytes, "text is not a view"
    if data.isascii():  # without making a string of it
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
