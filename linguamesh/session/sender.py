"""What a session sends: audio, whole utterances and acknowledgements, at the pace that the mesh asks for.

One task sends them one after another, so what was said first goes out first, on this connection or the next.
"""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec

from linguamesh.errors import SessionError
from linguamesh.session.flow_control import FlowControl
from linguamesh.session.results import PendingResults
from linguamesh.session.send_buffer import Chunk, Piece, SendBuffer, Sent, Whole
from linguamesh.session.translation import Translation
from mesh.clock import now_ms
from mesh.errors import ErrorCode
from mesh.messages import audio_frames
from mesh.messages import client as wire

#: Messages other than audio that wait to be sent.
POSTS_MAX: Final = 1_000


class _Post(NamedTuple):
    """A message to be made for the session as it is then, and whether it was sent."""

    message: Callable[[str], wire.ClientMessage]
    sent: asyncio.Future[bool]


class _Asked(NamedTuple):
    """Who sent a whole utterance: waits for its index, and perhaps for its end."""

    numbered: asyncio.Future[int]
    end: asyncio.Future[Translation] | None


class Sender:
    """`send` says whether the data went into a live connection; what did not is still kept in `speech`."""

    def __init__(
        self,
        speech: SendBuffer,
        pace: FlowControl,
        waiting: PendingResults,
        send: Callable[[str | bytes], Awaitable[bool]],
    ) -> None:
        self._speech = speech
        self._pace = pace
        self._waiting = waiting
        self._send = send
        self._session_id = ""
        self._binary = False
        self._online = False
        self._over: SessionError | None = None
        self._asked: dict[Whole, _Asked] = {}
        self._first: deque[wire.ClientMessage] = deque()  # what a new connection begins with
        self._posts: deque[_Post] = deque()
        self._acks: dict[str, int] = {}  # session -> the latest index that is to be acknowledged
        self._pong: bytes | None = None
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()  # something was sent or has ended

    # --- for those who speak ----------------------------------------------------------------------

    async def say(self, piece: Piece) -> None:
        """Streamed audio; waits while too much is kept."""
        await self._room_for(piece.size)
        self._speech.add(piece)
        self._wake.set()

    async def ask(self, whole: Whole, end: asyncio.Future[Translation] | None) -> int:
        """A whole utterance; returns its index when its turn has come."""
        await self._room_for(whole.size)
        asked = self._asked[whole] = _Asked(asyncio.get_running_loop().create_future(), end)
        self._speech.add(whole)
        self._wake.set()
        return await asked.numbered

    def give_up(self, whole: Whole) -> None:
        """Nobody waits for it any more."""
        self._asked.pop(whole, None)
        self._speech.withdraw(whole)
        if whole.index >= 0:
            self._waiting.drop(whole.index)
        self.changed()

    async def tell(self, message: Callable[[str], wire.ClientMessage]) -> None:
        """Anything but audio, made for the session's id; returns when it was sent, on this connection or the next."""
        while not await self.try_tell(message):
            while not self._online and not self._over:
                self._moved.clear()
                await self._moved.wait()

    async def try_tell(self, message: Callable[[str], wire.ClientMessage]) -> bool:
        """True if it was sent; False if there is no connection."""
        self.check()
        if not self._online:
            return False
        if len(self._posts) >= POSTS_MAX:
            raise SessionError(ErrorCode.SLOW_DOWN.name, f"{POSTS_MAX} messages wait to be sent")
        post = _Post(message, asyncio.get_running_loop().create_future())
        self._posts.append(post)
        self._wake.set()
        return await post.sent

    async def flush(self) -> None:
        """Returns when everything that was said has been sent."""
        while not self._speech.is_said and not self._over:
            self._moved.clear()
            await self._moved.wait()

    async def _room_for(self, size: int) -> None:
        while not self._over and not self._speech.has_room(size):
            self._moved.clear()
            await self._moved.wait()
        self.check()

    def check(self) -> None:
        """SessionError if nothing more is sent."""
        if self._over:
            raise SessionError(self._over.code, self._over.message)

    # --- for whoever listens ----------------------------------------------------------------------

    def acknowledge(self, session_id: str, index: int) -> None:
        """The user has everything of that session up to that index."""
        self._acks[session_id] = max(index, self._acks.get(session_id, -1))
        self._wake.set()

    def answer_ping(self, ping: audio_frames.PingFrame) -> None:
        """The latest ping of the mesh is answered."""
        self._pong = audio_frames.encode(audio_frames.PongFrame(*ping))
        self._wake.set()

    def changed(self) -> None:
        """Something ended, was refused or may go faster: look again."""
        self._wake.set()
        self._moved.set()

    def on_open(self, session_id: str, binary: bool, first: list[wire.ClientMessage]) -> None:
        """A connection is there, which begins with these messages."""
        self._session_id, self._binary, self._online = session_id, binary, True
        self._first.extend(first)
        self.changed()

    def on_lost(self) -> None:
        """It is gone. The next session_init says what is acknowledged, and what others said is told again."""
        self._online = False
        self._first.clear()
        self._acks.clear()
        self._pong = None
        self._give_back_posts()

    def close(self, over: SessionError) -> None:
        """Nothing more is sent; whoever waits to speak is told why."""
        self._over = self._over or over
        self._online = False
        for asked in self._asked.values():
            if not asked.numbered.done():
                asked.numbered.set_exception(SessionError(over.code, over.message))
                asked.numbered.exception()  # whoever asked may have been cancelled
        self._asked.clear()
        self._give_back_posts()
        self.changed()

    def _give_back_posts(self) -> None:
        for post in self._posts:
            if not post.sent.done():
                post.sent.set_result(False)
        self._posts.clear()

    # --- sending ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send whatever is there, until cancelled."""
        while True:
            self._wake.clear()
            wait_ms = await self._send_all()
            try:
                async with asyncio.timeout(wait_ms / 1_000 if wait_ms else None):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _send_all(self) -> int:
        """Send what may be sent now; how long to wait for the rest, 0 = for news."""
        while self._online:
            post = self._posts.popleft() if self._posts and not self._first else None
            data = wire.encode(post.message(self._session_id)) if post else self._next_short()
            if data is None:
                now = now_ms()
                wait_ms = self._pace.wait_ms(now)
                if wait_ms:
                    return wait_ms
                item = self._speech.take(now, self._pace.join_ms(now))
                if item is None:
                    self._moved.set()
                    return 0
                self._pace.sent(now)
                data = self._encoded(item)
            is_sent = await self._send(data)
            if post and not post.sent.done():
                post.sent.set_result(is_sent)
            if not is_sent:
                return 0
            self._moved.set()
            await asyncio.sleep(0)  # a socket that takes everything at once must not keep others from their turn
        return 0

    def _next_short(self) -> str | bytes | None:
        """What is not audio, and nobody waits for."""
        if self._first:
            return wire.encode(self._first.popleft())
        if self._pong is not None:
            pong, self._pong = self._pong, None
            return pong
        if self._acks:
            session_id = next(iter(self._acks))
            return wire.encode(wire.ResultAckMessage(session_id=session_id, utterance_index=self._acks.pop(session_id)))
        return None

    def _encoded(self, item: Sent) -> str | bytes:
        if isinstance(item, Chunk):
            return self._encoded_chunk(item)
        asked = self._asked.pop(item, None)
        if asked is not None:
            self._waiting.add(item.index, asked.end)
            if not asked.numbered.done():
                asked.numbered.set_result(item.index)
        return wire.encode(
            msgspec.structs.replace(item.message, session_id=self._session_id, utterance_index=item.wire_index)
        )

    def _encoded_chunk(self, chunk: Chunk) -> str | bytes:
        session_id, piece = self._session_id, chunk.piece
        if self._binary and piece.is_final and not piece.audio:
            return audio_frames.encode(audio_frames.FinalFrame(session_id, chunk.seq, piece.timestamp_ms))
        if self._binary:
            return audio_frames.encode(
                audio_frames.AudioFrame(session_id, chunk.seq, piece.timestamp_ms, piece.is_final, piece.audio)
            )
        return wire.encode(
            wire.AudioChunk(
                session_id=session_id,
                seq=chunk.seq,
                is_final=piece.is_final,
                payload=base64.b64encode(piece.audio).decode() if piece.audio else None,
                client_timestamp_ms=piece.timestamp_ms,
            )
        )
