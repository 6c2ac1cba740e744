"""The send buffer of a session: items that wait to be sent, and items that are kept for a retry until their utterance
has ended. It decides the order and the numbers. Pure: no socket, no clock; time is an argument.

    Piece, WholeUtterance   queued, in the order in which they were added
    Chunk, WholeUtterance   numbered (seq, index) when first sent, and pending until their utterance has ended

The mesh numbers the utterances that it finalizes from a stream; a whole utterance is numbered here. So the two take
turns: a whole utterance waits until the audio streamed before it has ended, because only then its index is known, and
streamed audio waits for whole utterances, because the mesh may have rejected one.

A resumed session continues its numbers. A new session numbers from 0 again: pending items return to the head of the
queue, and an offset keeps the user's indices growing. `wire_index` is the mesh's index, `index` the user's.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from mesh.messages.client import Utterance

#: Accounted for each item beside its audio, so that empty items are bounded too.
ITEM_OVERHEAD_BYTES: Final = 128
#: Chunks kept for a retry in a session that cannot be resumed; the oldest is evicted.
CHUNKS_RECENT_MAX: Final = 64
#: Bound on utterances that end out of order: an index further ahead is ignored.
EARLY_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Piece:
    """Streamed audio that has no number yet; `ms` is its duration."""

    audio: bytes
    ms: int
    is_final: bool
    timestamp_ms: int

    @property
    def size_bytes(self) -> int:
        """Its share of the buffer's capacity."""
        return len(self.audio) + ITEM_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Chunk:
    """Streamed audio that was sent. A retry sends the same bytes under the same seq."""

    seq: int
    piece: Piece
    sent_ms: int


@dataclass(slots=True, eq=False)
class WholeUtterance:
    """An utterance sent in one message. `message` lacks its audio, session and index."""

    message: Utterance
    audio: bytes
    #: The user's index; -1 until it was first sent.
    index: int = -1
    wire_index: int = -1
    sent_ms: int = 0
    #: Its caller has cancelled it. The mesh may have it, so it keeps its number until it has ended.
    is_cancelled: bool = False
    #: Its share of the buffer's capacity.
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = len(self.audio) + ITEM_OVERHEAD_BYTES


Sendable: TypeAlias = Chunk | WholeUtterance
#: (0, wire index) of a whole utterance, (1, seq) of a chunk.
_Key: TypeAlias = tuple[int, int]


class SendBuffer:
    """Everything one session sends, from `add` until its utterance has ended. On one connection an item is sent once,
    unless the mesh rejected it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        #: Bytes of queued and pending items, including their overhead.
        self.used_bytes = 0
        #: False: the mesh does not acknowledge chunks, so only the most recent are kept.
        self.is_resumable = False
        #: True if audio was added since the last end of an utterance.
        self.utterance_open = False
        #: True if any audio was streamed since the mesh began this session.
        self.has_streamed = False
        #: The last wire index up to which all utterances have ended, and the last chunk of their audio; -1 = none.
        self.last_index = -1
        self.last_seq = -1
        self._connected = False
        self._queue: deque[Piece | WholeUtterance] = deque()
        self._chunks: dict[int, Chunk] = {}  # pending, by seq
        self._utterances: dict[int, WholeUtterance] = {}  # pending, by wire index
        self._retries: list[_Key] = []  # a heap: to be sent, perhaps again, on this connection
        self._early: dict[int, int | None] = {}  # utterances that ended before an earlier one -> last seq
        self._pending_bytes = 0  # audio of pending chunks
        self._next_seq = 0
        self._next_wire_index = 0
        self._next_index = 0  # the user's
        self._index_offset = 0
        self._renumbered: dict[int, int] = {}  # wire index -> index, where the offset does not apply
        self._rejected: set[int] = set()  # wire indices that the mesh did not accept: free again

    # --- input ------------------------------------------------------------------------------------

    def has_capacity_for(self, size_bytes: int) -> bool:
        """True if that much more may be added. An item larger than the whole buffer is accepted when it is empty."""
        return self.used_bytes + size_bytes <= self._bytes_max or self.used_bytes == 0

    def add(self, item: Piece | WholeUtterance) -> None:
        """Queue an item."""
        self._queue.append(item)
        self.used_bytes += item.size_bytes
        if isinstance(item, Piece):
            self.utterance_open = not item.is_final
            self.has_streamed = True

    def end_utterance(self, timestamp_ms: int) -> None:
        """Finalize the streamed utterance; no effect if it has no audio."""
        if self.utterance_open:
            self.add(Piece(b"", 0, True, timestamp_ms))

    def cancel(self, utterance: WholeUtterance) -> None:
        """Its caller no longer waits: it is not sent, unless it was already."""
        if utterance in self._queue:
            self._queue.remove(utterance)
            self.used_bytes -= utterance.size_bytes
            if utterance.index >= 0:
                self._index_offset += 1  # it would have taken one of the new session's numbers
        elif self.is_resumable:
            utterance.is_cancelled = True
        elif self._utterances.get(utterance.wire_index) is utterance:
            self.acknowledge(utterance.wire_index, None)  # the mesh may never report its end

    # --- output -----------------------------------------------------------------------------------

    @property
    def is_all_sent(self) -> bool:
        """True if everything was sent on this connection."""
        return self._connected and not self._queue and not self._retries

    def take_due(self, now_ms: int, join_ms: int = 0) -> Sendable | None:
        """The next item to send, retries first; None if none is due. Pieces up to `join_ms` are joined to one chunk."""
        if not self._connected:
            return None
        while self._retries:
            kind, number = heapq.heappop(self._retries)
            pending: Sendable | None = self._chunks.get(number) if kind else self._utterances.get(number)
            if pending is not None:  # otherwise it has ended meanwhile
                return pending
        if not self._queue:
            return None
        if isinstance(self._queue[0], WholeUtterance):
            return None if self._pending_bytes else self._take_utterance(now_ms)
        return None if self._utterances else self._take_chunk(now_ms, join_ms)

    def _take_utterance(self, now_ms: int) -> WholeUtterance:
        utterance = self._queue.popleft()
        assert isinstance(utterance, WholeUtterance)
        utterance.wire_index, self._next_wire_index = self._next_wire_index, self._next_wire_index + 1
        if utterance.index < 0:
            utterance.index = utterance.wire_index + self._index_offset
            utterance.sent_ms = now_ms
        else:
            self._renumbered[utterance.wire_index] = utterance.index
        self._next_index = max(self._next_index, utterance.index + 1)
        self._utterances[utterance.wire_index] = utterance
        return utterance

    def _take_chunk(self, now_ms: int, join_ms: int) -> Chunk:
        pieces: list[Piece] = []
        total_ms = 0
        while self._queue and isinstance(self._queue[0], Piece):
            total_ms += self._queue[0].ms
            if pieces and (not join_ms or pieces[-1].is_final or total_ms > join_ms):
                break
            pieces.append(self._queue.popleft())  # type: ignore[arg-type]
        piece = pieces[0] if len(pieces) == 1 else _joined(pieces)
        self.used_bytes += piece.size_bytes - sum(part.size_bytes for part in pieces)
        chunk = Chunk(self._next_seq, piece, now_ms)
        self._next_seq += 1
        self._chunks[chunk.seq] = chunk
        if self.is_resumable:
            self._pending_bytes += len(piece.audio)
        elif len(self._chunks) > CHUNKS_RECENT_MAX:
            self._drop_chunk(next(iter(self._chunks)))
        return chunk

    # --- the connection ---------------------------------------------------------------------------

    def suspend(self) -> None:
        """The connection is lost: nothing is due until the session is resumed or restarted."""
        self._connected = False
        self._retries = []

    def on_resumed(self, resend_from_seq: int | None = None, next_wire_index: int | None = None) -> None:
        """The session was resumed: pending items are retried, chunks from `resend_from_seq` on (None: all of them).

        `next_wire_index`: the mesh continues its numbers there. Another edge may not know the latest failures: it
        uses their numbers again, and the user's indices continue.
        """
        if next_wire_index is not None:
            known = [self.last_index, *self._utterances, *self._early]
            next_wire_index = max(next_wire_index, max(known) + 1)
            if next_wire_index < self._next_wire_index:
                self._reuse_from(next_wire_index)
        first_seq = self.last_seq + 1 if resend_from_seq is None else resend_from_seq
        retried_seqs = [(1, seq) for seq in self._chunks if seq >= first_seq]
        self._connect([*((0, number) for number in self._utterances), *retried_seqs])

    def on_restarted(self) -> None:
        """A new session, the first or one that replaces a lost one: pending items are queued again."""
        for number in [number for number, utterance in self._utterances.items() if utterance.is_cancelled]:
            self._drop_utterance(number)
        pending: list[Piece | WholeUtterance] = [self._utterances[number] for number in sorted(self._utterances)]
        pending += [chunk.piece for chunk in self._chunks.values()]
        self._queue.extendleft(reversed(pending))
        # Utterances that have an index take the first numbers and keep it; the rest continues after the last index.
        indexed = sum(isinstance(item, WholeUtterance) and item.index >= 0 for item in self._queue)
        self._index_offset = self._next_index - indexed
        self._utterances, self._chunks, self._early, self._renumbered, self._rejected = {}, {}, {}, {}, set()
        self._next_seq = self._next_wire_index = self._pending_bytes = 0
        self.last_index = self.last_seq = -1
        self.has_streamed = any(isinstance(item, Piece) for item in self._queue)
        self._connect([])

    def _connect(self, retries: list[_Key]) -> None:
        assert not self._connected
        self._connected = True
        self._retries = retries
        heapq.heapify(self._retries)

    def _reuse_from(self, next_wire_index: int) -> None:
        """Wire indices from there on will belong to other utterances, which get new indices."""
        for wire_index in range(self.last_index + 1, next_wire_index):
            self._renumbered.setdefault(wire_index, wire_index + self._index_offset)
        self._index_offset += self._next_wire_index - next_wire_index
        self._next_wire_index = next_wire_index
        self._renumbered = {wire: index for wire, index in self._renumbered.items() if wire < next_wire_index}
        self._rejected = {wire for wire in self._rejected if wire < next_wire_index}

    # --- messages of the mesh ---------------------------------------------------------------------

    def pending_utterance(self, wire_index: int) -> WholeUtterance | None:
        """The whole utterance of that number, unless it has ended."""
        return self._utterances.get(wire_index)

    def only_pending_utterance(self) -> WholeUtterance | None:
        """The pending utterance, if there is exactly one and nothing was streamed."""
        return next(iter(self._utterances.values())) if len(self._utterances) == 1 and not self.has_streamed else None

    def sent_ms(self, wire_index: int, last_seq: int | None) -> int | None:
        """When that utterance, or its last chunk, was first sent."""
        utterance = self._utterances.get(wire_index)
        chunk = self._chunks.get(last_seq) if last_seq is not None else None
        return utterance.sent_ms if utterance else chunk.sent_ms if chunk else None

    def on_rejected(self, seq: int | None = None, wire_index: int | None = None) -> bool:
        """The mesh was too busy for that chunk, or that whole utterance: True if it is retried."""
        if seq is not None and seq in self._chunks:
            key = (1, seq)
        elif wire_index is not None and wire_index in self._utterances:
            key = (0, wire_index)
        else:
            return False
        if self._connected and key not in self._retries:
            heapq.heappush(self._retries, key)
        return True

    def on_failed(self, wire_index: int, *, accepted: bool = True) -> int | None:
        """A whole utterance failed; its index, or None if it is not pending.

        One that the mesh had accepted ends later, in order. Otherwise its number is free for the next one.
        """
        utterance = self._utterances.get(wire_index)
        if utterance is None:
            return None
        self._drop_utterance(wire_index)
        if not accepted:
            self._rejected.add(wire_index)
            while self._next_wire_index - 1 in self._rejected:
                self._reuse_from(self._next_wire_index - 1)
        elif not self.is_resumable:
            self.acknowledge(wire_index, None)
        return utterance.index

    def acknowledge(self, wire_index: int, last_seq: int | None) -> int | None:
        """An utterance has ended; its index, or None for a duplicate.

        Its chunks are freed once all earlier utterances have ended too: in a room the order is not guaranteed.
        """
        if not self.last_index < wire_index <= self.last_index + EARLY_MAX or wire_index in self._early:
            return None
        index = self._renumbered.get(wire_index, wire_index + self._index_offset)
        self._next_wire_index = max(self._next_wire_index, wire_index + 1)
        self._next_index = max(self._next_index, index + 1)
        self._drop_utterance(wire_index)
        self._early[wire_index] = last_seq
        while self.last_index + 1 in self._early:
            self.last_index += 1
            seq = self._early.pop(self.last_index)
            self._renumbered.pop(self.last_index, None)
            self._rejected.discard(self.last_index)
            self.last_seq = self.last_seq if seq is None else max(self.last_seq, seq)
        for seq in [seq for seq in self._chunks if seq <= self.last_seq]:
            self._drop_chunk(seq)
        return index

    def acknowledge_lost_before(self, wire_index: int) -> list[int]:
        """The mesh has lost the outcome of all utterances before that one; the indices that end by that."""
        first = max(self.last_index + 1, wire_index - EARLY_MAX)
        indices = [self.acknowledge(number, None) for number in range(first, wire_index)]
        return [index for index in indices if index is not None]

    # --- bookkeeping ------------------------------------------------------------------------------

    def _drop_chunk(self, seq: int) -> None:
        piece = self._chunks.pop(seq).piece
        self.used_bytes -= piece.size_bytes
        if self.is_resumable:
            self._pending_bytes -= len(piece.audio)

    def _drop_utterance(self, wire_index: int) -> None:
        utterance = self._utterances.pop(wire_index, None)
        if utterance is not None:
            self.used_bytes -= utterance.size_bytes

    def check(self) -> None:
        """Assert the invariants; tests call it after each step."""
        buffered = [*self._queue, *(chunk.piece for chunk in self._chunks.values()), *self._utterances.values()]
        assert self.used_bytes == sum(item.size_bytes for item in buffered)
        if self.is_resumable:
            assert self._pending_bytes == sum(len(chunk.piece.audio) for chunk in self._chunks.values())
        else:
            assert len(self._chunks) <= CHUNKS_RECENT_MAX and not self._pending_bytes
        assert list(self._chunks) == sorted(self._chunks) and all(seq < self._next_seq for seq in self._chunks)
        assert all(seq > self.last_seq for seq in self._chunks) and len(self._early) <= EARLY_MAX
        assert all(wire < self._next_wire_index for wire in (*self._utterances, *self._renumbered, *self._rejected))
        assert not (self._utterances and self._pending_bytes), "whole utterances and streamed audio take turns"
        assert len(set(self._retries)) == len(self._retries)


def _joined(pieces: list[Piece]) -> Piece:
    audio = b"".join(piece.audio for piece in pieces)
    return Piece(audio, sum(piece.ms for piece in pieces), pieces[-1].is_final, pieces[0].timestamp_ms)
