"""Sends for one session: audio, whole utterances, acknowledgements and other messages, within the mesh's backpressure.

An item is sent as soon as it is due, in the turn in which it was added if it can be. The order in which items were
added is the order on the wire, on this connection or the next. `SendBuffer` decides which audio is due; the connection
and its retries are not known here.
"""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from linguamesh.errors import SessionError
from linguamesh.session.results import PendingResults, Translation
from linguamesh.session.send_buffer import ITEM_OVERHEAD_BYTES, Chunk, Piece, Sendable, SendBuffer, WholeUtterance
from linguamesh.websocket import Outbound
from mesh.clock import now_ms
from mesh.errors import ErrorCode
from mesh.messages import audio_frames
from mesh.messages import client as wire
from mesh.messages.base import encode_utf8
from mesh.words import BackpressureAction

#: Bound on messages other than audio that wait to be sent.
MESSAGES_MAX: Final = 1_000
#: Items sent in one turn of the event loop; a connection that accepts everything must not starve the other tasks.
TURN_MAX: Final = 16
#: Under SLOW_DOWN: one message per interval, with up to one interval of audio.
SLOW_INTERVAL_MS: Final = 500
#: How long a `backpressure` message applies: without `resume_after_ms`, and at most.
BACKPRESSURE_MS_DEFAULT: Final = 500
BACKPRESSURE_MS_MAX: Final = 60_000


class FlowControl:
    """Throttles audio as the mesh requests. SLOW_DOWN: fewer, larger messages. PAUSE and BUSY: none. Pure."""

    def __init__(self) -> None:
        #: When audio was last sent; the sender sets it.
        self.sent_ms = -SLOW_INTERVAL_MS
        self.paused_until_ms = 0
        self.slow_until_ms = 0

    def on_backpressure(self, action: str, resume_after_ms: int | None, now_ms: int) -> None:
        """`backpressure`: throttle, or pause, until then."""
        limit_ms = BACKPRESSURE_MS_DEFAULT if resume_after_ms is None else resume_after_ms
        until_ms = now_ms + min(limit_ms, BACKPRESSURE_MS_MAX)
        if action == BackpressureAction.SLOW_DOWN:
            self.slow_until_ms = max(self.slow_until_ms, until_ms)
        else:
            self.paused_until_ms = max(self.paused_until_ms, until_ms)

    def on_rejected(self, now_ms: int) -> None:
        """An item was rejected: it is retried after the pause that the mesh requested, or the default one."""
        if self.paused_until_ms <= now_ms:
            self.on_backpressure(BackpressureAction.BUSY, None, now_ms)

    def limits(self, now_ms: int) -> tuple[int, int]:
        """Milliseconds to wait before the next message, and the milliseconds of audio to join in it; 0 = none."""
        next_slow_ms = min(self.slow_until_ms, self.sent_ms + SLOW_INTERVAL_MS)
        wait_ms = max(0, self.paused_until_ms - now_ms, next_slow_ms - now_ms)
        return wait_ms, SLOW_INTERVAL_MS if now_ms < self.slow_until_ms else 0


class _Message(NamedTuple):
    """A message other than audio: built for the session id that is valid when it is sent."""

    build: Callable[[str], wire.ClientMessage]
    is_sent: asyncio.Future[bool]


class _Caller:
    """The caller of `add_utterance`: waits for the index, unless it was sent at once, and perhaps for the result."""

    __slots__ = ("index_assigned", "result")

    def __init__(self, result: asyncio.Future[Translation] | None) -> None:
        self.index_assigned: asyncio.Future[int] | None = None
        self.result = result


class Sender:
    """What did not go into a live connection stays in the send buffer."""

    def __init__(self, buffer: SendBuffer, results: PendingResults, outbound: Outbound) -> None:
        self.flow = FlowControl()
        self._buffer = buffer
        self._results = results
        self._outbound = outbound
        self._session_id = ""
        self._use_binary_frames = False
        self._online = False
        self._error: SessionError | None = None
        self._callers: dict[WholeUtterance, _Caller] = {}
        self._first: deque[wire.ClientMessage] = deque()  # a new connection begins with them
        self._messages: deque[_Message] = deque()
        self._acks: dict[str, int] = {}  # session -> the last index to acknowledge
        self._pong: bytes | None = None
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None  # until a pause that the mesh requested is over
        self._progress = asyncio.Event()  # something was sent or acknowledged: capacity may be free

    # --- input ------------------------------------------------------------------------------------

    async def add_audio(self, piece: Piece) -> None:
        """Stream audio; waits while the send buffer is full."""
        await self.wait_for_capacity(piece.size_bytes)
        self._buffer.add(piece)
        self.send_due()

    async def end_utterance(self, timestamp_ms: int) -> None:
        """Finalize the streamed utterance; no effect if it has no audio."""
        if self._buffer.utterance_open:
            await self.wait_for_capacity(ITEM_OVERHEAD_BYTES)
            self._buffer.end_utterance(timestamp_ms)
            self.send_due()

    async def add_utterance(self, utterance: WholeUtterance, result: asyncio.Future[Translation] | None) -> int:
        """Send a whole utterance; returns its index once it is sent."""
        if self._error or not self._buffer.has_capacity_for(utterance.size_bytes):
            await self.wait_for_capacity(utterance.size_bytes)
        caller = self._callers[utterance] = _Caller(result)
        self._buffer.add(utterance)
        self.send_due()
        if utterance.index >= 0:
            return utterance.index
        caller.index_assigned = asyncio.get_running_loop().create_future()
        return await caller.index_assigned

    def cancel(self, utterance: WholeUtterance) -> None:
        """Its caller no longer waits for the result."""
        self._callers.pop(utterance, None)
        self._buffer.cancel(utterance)
        if utterance.index >= 0:
            self._results.cancel(utterance.index)
        self.wake()

    async def send(self, build: Callable[[str], wire.ClientMessage]) -> None:
        """Send a message other than audio, returns once it is sent, retried after a reconnect."""
        while not await self.try_send(build):
            while not self._online and not self._error:
                self._progress.clear()
                await self._progress.wait()

    async def try_send(self, build: Callable[[str], wire.ClientMessage]) -> bool:
        """True if it was sent; False without a connection."""
        self.check_open()
        if not self._online:
            return False
        if len(self._messages) >= MESSAGES_MAX:
            raise SessionError(ErrorCode.SLOW_DOWN.name, f"{MESSAGES_MAX} messages wait to be sent")
        message = _Message(build, asyncio.get_running_loop().create_future())
        self._messages.append(message)
        self.send_due()
        return await message.is_sent

    async def flush(self) -> None:
        """Returns once the send buffer has nothing left to send, or the session is closed."""
        while not self._buffer.is_all_sent and not self._error:
            self._progress.clear()
            await self._progress.wait()

    async def wait_for_capacity(self, size_bytes: int) -> None:
        """Returns once the send buffer has that much capacity; SessionError if the session is closed."""
        while not self._error and not self._buffer.has_capacity_for(size_bytes):
            self._progress.clear()
            await self._progress.wait()
        self.check_open()

    def check_open(self) -> None:
        """SessionError if the session is closed."""
        if self._error:
            raise SessionError(self._error.code, self._error.message)

    # --- the receiver and the connection ----------------------------------------------------------

    def acknowledge(self, session_id: str, index: int) -> None:
        """The user has all results of that session up to that index."""
        self._acks[session_id] = max(index, self._acks.get(session_id, -1))
        self.wake()

    def on_ping(self, ping: audio_frames.PingFrame) -> None:
        """Reply to the latest ping."""
        self._pong = audio_frames.encode(audio_frames.PongFrame(*ping))
        self._schedule()

    def wake(self) -> None:
        """The send buffer, the flow control or the connection has changed: an item may be due, or capacity free."""
        self._schedule()
        self._progress.set()

    def resume(self, session_id: str, use_binary_frames: bool, first: list[wire.ClientMessage]) -> None:
        """A connection is open; it begins with the messages in `first`."""
        self._session_id, self._use_binary_frames, self._online = session_id, use_binary_frames, True
        self._first.extend(first)
        self.wake()

    def suspend(self) -> None:
        """The connection is lost. Acknowledgements go: the next session_init carries them, and peers' results are
        redelivered."""
        self._online = False
        self._stop_timer()
        self._first.clear()
        self._acks.clear()
        self._pong = None
        self._return_messages()

    def close(self, error: SessionError) -> None:
        """Nothing more is sent: all callers get the error."""
        self._error = self._error or error
        self._online = False
        self._stop_timer()
        for caller in self._callers.values():
            if caller.index_assigned and not caller.index_assigned.done():
                caller.index_assigned.set_exception(SessionError(error.code, error.message))
                caller.index_assigned.exception()  # the caller may have been cancelled
        self._callers.clear()
        self._return_messages()
        self.wake()

    def _return_messages(self) -> None:
        for message in self._messages:
            if not message.is_sent.done():
                message.is_sent.set_result(False)
        self._messages.clear()

    # --- sending ----------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Send at the end of this turn, with what else it has to send."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._send_scheduled)

    def _send_scheduled(self) -> None:
        self._is_scheduled = False
        self.send_due()

    def send_due(self) -> None:
        """Send all that is due now. The rest follows when it is due, or the connection takes more."""
        sent = 0
        while self._online and not self._outbound.is_full:
            if self._first or self._messages or self._acks or self._pong is not None:
                is_sent = self._send_control()
            else:
                now, flow = now_ms(), self.flow
                is_throttled = now < flow.paused_until_ms or now < flow.slow_until_ms
                wait_ms, join_ms = flow.limits(now) if is_throttled else (0, 0)
                if wait_ms:
                    self._send_after(wait_ms)
                    return
                item = self._buffer.take_due(now, join_ms)
                if item is None:
                    break
                flow.sent_ms = now
                is_sent = self._send_item(item)
            if not is_sent:
                self._online = False  # `suspend` follows
                return
            sent += 1
            if sent == TURN_MAX:
                self._schedule()
                break
        self._progress.set()

    def _send_after(self, wait_ms: int) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1_000, self.send_due)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _send_control(self) -> bool:
        """Send the next message other than audio: first messages of a connection, those of callers, pong,
        acknowledgements."""
        if self._first:
            return self._outbound.put(encode_utf8(self._first.popleft()))
        if self._messages:
            return self._send_message(self._messages.popleft())
        if self._pong is not None:
            pong, self._pong = self._pong, None
            return self._outbound.put(pong, text=False)
        session_id = next(iter(self._acks))
        index = self._acks.pop(session_id)
        return self._outbound.put(encode_utf8(wire.ResultAckMessage(session_id=session_id, utterance_index=index)))

    def _send_message(self, message: _Message) -> bool:
        try:
            is_sent = self._outbound.put(encode_utf8(message.build(self._session_id)))
        except (TypeError, ValueError) as error:  # the caller's value is no JSON
            if not message.is_sent.done():
                message.is_sent.set_exception(error)
            return True
        if not message.is_sent.done():
            message.is_sent.set_result(is_sent)
        return is_sent

    def _send_item(self, item: Sendable) -> bool:
        if isinstance(item, Chunk):
            return self._send_chunk(item)
        caller = self._callers.pop(item, None)
        if caller is not None:
            self._results.add(item.index, caller.result)
            if caller.index_assigned and not caller.index_assigned.done():
                caller.index_assigned.set_result(item.index)
        message = msgspec.structs.replace(item.message, session_id=self._session_id, utterance_index=item.wire_index)
        return self._outbound.put_with_audio(wire.Utterance, encode_utf8(message), item.audio)

    def _send_chunk(self, chunk: Chunk) -> bool:
        session_id, piece = self._session_id, chunk.piece
        if self._use_binary_frames and piece.is_final and not piece.audio:
            final = audio_frames.FinalFrame(session_id, chunk.seq, piece.timestamp_ms)
            return self._outbound.put(audio_frames.encode(final), text=False)
        if self._use_binary_frames:
            frame = audio_frames.AudioFrame(session_id, chunk.seq, piece.timestamp_ms, piece.is_final, piece.audio)
            return self._outbound.put(audio_frames.encode(frame), text=False)
        message = wire.AudioChunk(
            session_id=session_id,
            seq=chunk.seq,
            is_final=piece.is_final,
            payload=base64.b64encode(piece.audio).decode() if piece.audio else None,
            client_timestamp_ms=piece.timestamp_ms,
        )
        return self._outbound.put(encode_utf8(message))
