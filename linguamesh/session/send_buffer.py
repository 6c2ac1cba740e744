"""What a session has said and not yet seen ended: what is kept, what goes out next, and under which numbers. Pure.

    Piece, Whole   wait in the queue, in the order in which they were said
    Chunk, Whole   have a number (seq, index) since they were first sent, and are kept until their utterance has ended

The mesh numbers the utterances that it cuts from a stream; a whole utterance is numbered here. So the two take turns: a
whole one waits until what was streamed before it has ended, because only then its index is known, and the other way
round, because the mesh may have refused it.

A resumed connection goes on where the last one was cut. A new session numbers from 0 again: what is kept goes back to
the head of the queue, and an offset keeps the user's indices growing. `wire_index` is the mesh's, `index` the user's.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias

from mesh.messages.client import Utterance

#: What a piece costs besides its audio: tiny ones are bounded too.
PIECE_BYTES: Final = 128
#: A client that cannot resume keeps so many chunks, for those that the mesh was too busy to take.
CHUNKS_RECENT_MAX: Final = 64
#: An end may come so much before those of earlier indices; further ones are dropped.
AHEAD_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Piece:
    """Streamed audio that has no number yet. `ms`: how long it sounds."""

    audio: bytes
    ms: int
    is_final: bool
    timestamp_ms: int

    @property
    def size(self) -> int:
        """What it costs to keep."""
        return len(self.audio) + PIECE_BYTES


@dataclass(frozen=True, slots=True)
class Chunk:
    """Streamed audio that was sent. Whenever it is sent again, it is the same."""

    seq: int
    piece: Piece
    sent_ms: int


@dataclass(slots=True, eq=False)
class Whole:
    """A whole utterance. The message lacks its session and index."""

    message: Utterance
    #: The user's; -1 until it was first sent.
    index: int = -1
    wire_index: int = -1
    sent_ms: int = 0
    #: Nobody waits for it any more. The mesh may have it, so it holds its number until it has ended.
    abandoned: bool = False

    @property
    def size(self) -> int:
        """What it costs to keep."""
        return len(self.message.audio) + PIECE_BYTES


Sent: TypeAlias = Chunk | Whole
#: (0, wire index) of a whole utterance, (1, seq) of a chunk.
_Key: TypeAlias = tuple[int, int]


class SendBuffer:
    """All that one session said. Nothing is sent twice on one connection, unless the mesh refused it."""

    def __init__(self, kept_bytes_max: int) -> None:
        self._kept_bytes_max = kept_bytes_max
        self.kept_bytes = 0
        #: False: the mesh does not tell which chunks it is done with, so only the latest are kept.
        self.keeps = False
        #: The mesh's last index of which everything up to it has ended, and the last chunk of those; -1 = none.
        self.last_index = -1
        self.last_seq = -1
        self._connected = False
        self._queue: deque[Piece | Whole] = deque()
        self._chunks: dict[int, Chunk] = {}
        self._wholes: dict[int, Whole] = {}
        self._again: list[_Key] = []  # a heap: to be sent (again) on this connection
        self._ahead: dict[int, int | None] = {}  # ended before earlier ones -> last seq
        self._open_bytes = 0  # audio of chunks that have not ended
        self._next_seq = 0
        self._next_wire = 0
        self._next_index = 0  # the user's
        self._offset = 0
        self._moved: dict[int, int] = {}  # wire index -> index, of whole ones that a new session numbered again
        self._unused: set[int] = set()  # numbers of whole ones that the mesh did not want

    # --- speaking ---------------------------------------------------------------------------------

    def has_room(self, size: int) -> bool:
        """True if so much more may be kept. Whatever is too large for that is taken alone."""
        return self.kept_bytes + size <= self._kept_bytes_max or self.kept_bytes == 0

    def add(self, item: Piece | Whole) -> None:
        """Something was said."""
        self._queue.append(item)
        self.kept_bytes += item.size

    @property
    def is_said(self) -> bool:
        """True if everything was sent on this connection."""
        return self._connected and not self._queue and not self._again

    @property
    def has_streamed(self) -> bool:
        """True if any audio of this session was streamed."""
        return self._next_seq > 0 or any(isinstance(item, Piece) for item in self._queue)

    def take(self, now_ms: int, join_ms: int = 0) -> Sent | None:
        """What to send next; None if there is nothing, or nothing yet. Pieces up to `join_ms` become one chunk."""
        if not self._connected:
            return None
        while self._again:
            kind, number = heapq.heappop(self._again)
            known: Sent | None = self._chunks.get(number) if kind else self._wholes.get(number)
            if known is not None:  # otherwise it has ended meanwhile
                return known
        if not self._queue:
            return None
        if isinstance(self._queue[0], Whole):
            return None if self._open_bytes else self._take_whole(now_ms)
        return None if self._wholes else self._take_chunk(now_ms, join_ms)

    def _take_whole(self, now_ms: int) -> Whole:
        whole = self._queue.popleft()
        assert isinstance(whole, Whole)
        whole.wire_index, self._next_wire = self._next_wire, self._next_wire + 1
        if whole.index < 0:
            whole.index = whole.wire_index + self._offset
            whole.sent_ms = now_ms
        else:
            self._moved[whole.wire_index] = whole.index
        self._next_index = max(self._next_index, whole.index + 1)
        self._wholes[whole.wire_index] = whole
        return whole

    def _take_chunk(self, now_ms: int, join_ms: int) -> Chunk:
        pieces: list[Piece] = []
        total_ms = 0
        while self._queue and isinstance(self._queue[0], Piece):
            total_ms += self._queue[0].ms
            if pieces and (not join_ms or pieces[-1].is_final or total_ms > join_ms):
                break
            pieces.append(self._queue.popleft())  # type: ignore[arg-type]
        piece = pieces[0] if len(pieces) == 1 else _joined(pieces)
        self.kept_bytes += piece.size - sum(part.size for part in pieces)
        chunk = Chunk(self._next_seq, piece, now_ms)
        self._next_seq += 1
        self._chunks[chunk.seq] = chunk
        if self.keeps:
            self._open_bytes += len(piece.audio)
        elif len(self._chunks) > CHUNKS_RECENT_MAX:
            self._drop_chunk(next(iter(self._chunks)))
        return chunk

    def withdraw(self, whole: Whole) -> None:
        """Nobody waits for that one any more: it is not sent, unless it was."""
        if whole in self._queue:
            self._queue.remove(whole)
            self.kept_bytes -= whole.size
            if whole.index >= 0:
                self._offset += 1  # it would have taken one of the new session's numbers
        elif self.keeps:
            whole.abandoned = True
        elif self._wholes.get(whole.wire_index) is whole:
            self.ended(whole.wire_index, None)  # the mesh may never tell

    # --- the connection ---------------------------------------------------------------------------

    def disconnected(self) -> None:
        """What is on its way may be lost."""
        self._connected = False
        self._again = []

    def connected(
        self, *, resumed: bool, resend_from_seq: int | None = None, next_wire_index: int | None = None
    ) -> None:
        """A connection is there: the session goes on with it, or (not `resumed`) a new one begins."""
        assert not self._connected
        self._connected = True
        if not resumed:
            self._begin_anew()
        elif next_wire_index is not None:
            self._go_on_from(next_wire_index)
        first = self.last_seq + 1 if resend_from_seq is None else resend_from_seq
        self._again = [(0, number) for number in self._wholes]
        self._again += [(1, seq) for seq in self._chunks if seq >= first]
        heapq.heapify(self._again)

    def _go_on_from(self, next_wire_index: int) -> None:
        """The mesh numbers on from there, once it has what is sent again.

        Another edge may know nothing of the latest failures: it uses their numbers again, and the user's go on.
        """
        known = [self.last_index, *self._wholes, *self._ahead]
        next_wire = max(next_wire_index, max(known) + 1)
        if next_wire < self._next_wire:
            self._reuse_from(next_wire)

    def _reuse_from(self, next_wire: int) -> None:
        """Numbers from there on will be of others, which have new indices."""
        for wire in range(self.last_index + 1, next_wire):
            self._moved.setdefault(wire, wire + self._offset)
        self._offset += self._next_wire - next_wire
        self._next_wire = next_wire
        self._moved = {wire: index for wire, index in self._moved.items() if wire < next_wire}
        self._unused = {wire for wire in self._unused if wire < next_wire}

    def _begin_anew(self) -> None:
        for number in [number for number, whole in self._wholes.items() if whole.abandoned]:
            self._drop_whole(number)
        kept: list[Piece | Whole] = [self._wholes[number] for number in sorted(self._wholes)]
        kept += [chunk.piece for chunk in self._chunks.values()]
        self._queue.extendleft(reversed(kept))
        # Those that have an index take the first numbers and keep it; what follows goes on after the latest index.
        known = sum(isinstance(item, Whole) and item.index >= 0 for item in self._queue)
        self._offset = self._next_index - known
        self._wholes, self._chunks, self._ahead, self._moved, self._unused = {}, {}, {}, {}, set()
        self._next_seq = self._next_wire = self._open_bytes = 0
        self.last_index = self.last_seq = -1

    # --- what the mesh says -----------------------------------------------------------------------

    def index_of(self, wire_index: int) -> int:
        """The user's index of an utterance that has not ended."""
        return self._moved.get(wire_index, wire_index + self._offset)

    def whole(self, wire_index: int) -> Whole | None:
        """The whole utterance of that number, if it has not ended."""
        return self._wholes.get(wire_index)

    def only_whole(self) -> Whole | None:
        """The one that has not ended, if there is exactly one and nothing was streamed."""
        return next(iter(self._wholes.values())) if len(self._wholes) == 1 and not self.has_streamed else None

    def sent_ms(self, wire_index: int, last_seq: int | None) -> int | None:
        """When that utterance, or the last chunk of it, was sent."""
        whole = self._wholes.get(wire_index)
        chunk = self._chunks.get(last_seq) if last_seq is not None else None
        return whole.sent_ms if whole else chunk.sent_ms if chunk else None

    def refused_chunk(self, seq: int) -> bool:
        """The mesh did not take it: True if it will be sent again."""
        return self._send_again((1, seq)) if seq in self._chunks else False

    def refused_whole(self, wire_index: int) -> bool:
        """The same for a whole utterance."""
        return self._send_again((0, wire_index)) if wire_index in self._wholes else False

    def _send_again(self, key: _Key) -> bool:
        if self._connected and key not in self._again:
            heapq.heappush(self._again, key)
        return True

    def failed(self, wire_index: int, *, taken: bool = True) -> int | None:
        """A whole utterance failed; its index, or None if it is not kept.

        One that the mesh had taken it ends later, at its turn. Otherwise its number is free for the next one.
        """
        whole = self._wholes.get(wire_index)
        if whole is None:
            return None
        self._drop_whole(wire_index)
        if not taken:
            self._unused.add(wire_index)
            while self._next_wire - 1 in self._unused:
                self._reuse_from(self._next_wire - 1)
        elif not self.keeps:
            self.ended(wire_index, None)
        return whole.index

    def ended(self, wire_index: int, last_seq: int | None) -> int | None:
        """An utterance has ended; its index, or None for a repeat.

        Its chunks are done with, once all before it has ended too: in a room that order is not certain.
        """
        if not self.last_index < wire_index <= self.last_index + AHEAD_MAX or wire_index in self._ahead:
            return None
        index = self.index_of(wire_index)
        self._next_wire = max(self._next_wire, wire_index + 1)
        self._next_index = max(self._next_index, index + 1)
        self._drop_whole(wire_index)
        self._ahead[wire_index] = last_seq
        while self.last_index + 1 in self._ahead:
            self.last_index += 1
            seq = self._ahead.pop(self.last_index)
            self._moved.pop(self.last_index, None)
            self._unused.discard(self.last_index)
            self.last_seq = self.last_seq if seq is None else max(self.last_seq, seq)
        for seq in [seq for seq in self._chunks if seq <= self.last_seq]:
            self._drop_chunk(seq)
        return index

    def lost_before(self, wire_index: int) -> list[int]:
        """The mesh cannot tell any more what became of those before; the indices that end so."""
        first = max(self.last_index + 1, wire_index - AHEAD_MAX)
        indices = [self.ended(number, None) for number in range(first, wire_index)]
        return [index for index in indices if index is not None]

    # --- inside -----------------------------------------------------------------------------------

    def _drop_chunk(self, seq: int) -> None:
        piece = self._chunks.pop(seq).piece
        self.kept_bytes -= piece.size
        if self.keeps:
            self._open_bytes -= len(piece.audio)

    def _drop_whole(self, wire_index: int) -> None:
        whole = self._wholes.pop(wire_index, None)
        if whole is not None:
            self.kept_bytes -= whole.size

    def check(self) -> None:
        """What always holds; tests call it after each step."""
        kept = [*self._queue, *(chunk.piece for chunk in self._chunks.values()), *self._wholes.values()]
        assert self.kept_bytes == sum(item.size for item in kept)
        if self.keeps:
            assert self._open_bytes == sum(len(chunk.piece.audio) for chunk in self._chunks.values())
        else:
            assert len(self._chunks) <= CHUNKS_RECENT_MAX and not self._open_bytes
        assert list(self._chunks) == sorted(self._chunks) and all(seq < self._next_seq for seq in self._chunks)
        assert all(seq > self.last_seq for seq in self._chunks) and len(self._ahead) <= AHEAD_MAX
        assert all(number < self._next_wire for number in (*self._wholes, *self._moved, *self._unused))
        assert not (self._wholes and self._open_bytes), "whole utterances and streamed audio take turns"
        assert len(set(self._again)) == len(self._again)


def _joined(pieces: list[Piece]) -> Piece:
    audio = b"".join(piece.audio for piece in pieces)
    return Piece(audio, sum(piece.ms for piece in pieces), pieces[-1].is_final, pieces[0].timestamp_ms)
