"""Chunk reorder: puts the chunks of a stream in the order of their seq, before the segmenter finalizes utterances.

A chunk that was refused with SLOW_DOWN is resent behind later ones, and a client that reconnects resends every chunk
that is not acknowledged. So:

- The first chunk sets the numbering, unless the session is resumed at a known seq.
- The next seq is released at once. That is nearly every chunk, and costs nothing more.
- A lower one, by up to DUPLICATES_WINDOW, is a duplicate (or was abandoned): it is dropped and counted.
- A higher one, by up to `early_max`, waits for those between, for the hangover: `hangover_auto_ms` from the arrival of
  the first early chunk, but once a final chunk is early, `hangover_manual_ms` from its arrival: the client wants that
  utterance finalized now. Then the missing chunks are abandoned and counted as gaps, and the early ones are released,
  once and in order. Early chunks have at most `early_bytes_max` bytes; beyond that the missing ones are abandoned at
  once.
- A seq further away, in either direction, is a new numbering, and so is 0 or 1 behind a final chunk: clients may
  restart their numbering after each utterance that they finalize. Early chunks are released before it. A duplicate of
  those chunks looks the same, unless it is the final chunk itself or not newer than it by the client's clock: then it
  is a duplicate. A client that resumes never restarts (`renumbers` False): every lower seq is a duplicate.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from mesh.words import ChunkAnomaly

#: A chunk this far behind the next one is a duplicate; one further behind begins a new numbering.
DUPLICATES_WINDOW: Final = 256
#: Clients number from 0 or from 1.
_FIRST_SEQ_MAX: Final = 1

#: Binary frames carry the lower 32 bits of the client's clock, which wrap around every 49 days.
_CLOCK_MASK: Final = 2**32 - 1
_CLOCK_HALF: Final = 2**31


class Chunk(NamedTuple):
    """A piece of a stream, perhaps without audio; is_final finalizes the utterance."""

    seq: int
    audio: bytes
    is_final: bool
    #: The client's clock; its upper bits may be missing.
    client_ms: int | None


class Arrived(NamedTuple):
    """A chunk, its sound in units of edge.audio.core.formats.Sound, and its time of arrival."""

    chunk: Chunk
    units: int
    at_ms: int


def client_gap_ms(before: int | None, after: int | None) -> int | None:
    """From one time of a client's clock to a later one; None if either is unknown or the clock went backwards."""
    if before is None or after is None:
        return None
    gap = (after - before) & _CLOCK_MASK
    return gap if gap < _CLOCK_HALF else None


class _Final(NamedTuple):
    seq: int
    client_ms: int | None


class ChunkReorder:
    """The reorder buffer of one session."""

    __slots__ = (
        "_bytes_max",
        "_counts",
        "_early",
        "_early_max",
        "_final",
        "_hangover_auto_ms",
        "_hangover_manual_ms",
        "_renumbers",
        "due_ms",
        "early_bytes",
        "next_seq",
    )

    def __init__(
        self,
        counts: Counter[ChunkAnomaly],
        *,
        early_max: int,
        early_bytes_max: int,
        hangover_manual_ms: int,
        hangover_auto_ms: int,
        next_seq: int | None = None,
        renumbers: bool = True,
    ) -> None:
        self._counts = counts
        self._renumbers = renumbers
        self._early_max = early_max
        self._bytes_max = early_bytes_max
        self._hangover_manual_ms = hangover_manual_ms
        self._hangover_auto_ms = hangover_auto_ms
        #: The seq that is expected; None before the first chunk.
        self.next_seq = next_seq
        #: When the missing chunks are abandoned; None if there is no early chunk.
        self.due_ms: int | None = None
        #: Bytes of audio in early chunks.
        self.early_bytes = 0
        self._early: dict[int, Arrived] = {}
        #: The chunk that was released last, if it was a final one.
        self._final: _Final | None = None

    def __len__(self) -> int:
        return len(self._early)

    def drops(self, chunk: Chunk) -> bool:
        """True for a duplicate, which is counted: deduplicates by seq."""
        if self.next_seq is None:
            return False
        ahead = chunk.seq - self.next_seq
        is_past = ahead < 0 and not (self._renumbers and (ahead < -DUPLICATES_WINDOW or self._restarts(chunk)))
        is_duplicate = is_past or chunk.seq in self._early
        if is_duplicate:
            self._counts[ChunkAnomaly.DUPLICATE] += 1
        return is_duplicate

    def put(self, arrived: Arrived) -> list[Arrived]:
        """Add a chunk that is no duplicate; the chunks that are released by it."""
        chunk = arrived.chunk
        if self.next_seq is None:
            self.next_seq = chunk.seq
        ahead = chunk.seq - self.next_seq
        if ahead == 0 and not self._early:
            self._release(chunk)
            return [arrived]
        if 0 <= ahead <= self._early_max:
            self._early[chunk.seq] = arrived
            self.early_bytes += len(chunk.audio)
            ready = self._ready()
            while self.early_bytes > self._bytes_max:
                ready += self._abandon()
            return ready
        ready = self.flush()
        self._counts[ChunkAnomaly.RESTART] += 1
        self._release(chunk)
        return [*ready, arrived]

    def pop_due(self, now_ms: int) -> list[Arrived]:
        """Abandon the chunks whose hangover is over; the chunks that are released by it."""
        ready: list[Arrived] = []
        while self.due_ms is not None and self.due_ms <= now_ms:
            ready += self._abandon()
        return ready

    def flush(self) -> list[Arrived]:
        """Abandon all missing chunks; release every early one."""
        ready: list[Arrived] = []
        while self._early:
            ready += self._abandon()
        return ready

    def forget_early(self) -> None:
        """Drop the early chunks: the client resends all from `next_seq` on."""
        self._early.clear()
        self.early_bytes = 0
        self.due_ms = None

    def _abandon(self) -> list[Arrived]:
        assert self.next_seq is not None
        first = min(self._early)
        if first > self.next_seq:
            self._counts[ChunkAnomaly.GAP] += first - self.next_seq
        self.next_seq = first
        return self._ready()

    def _ready(self) -> list[Arrived]:
        """The early chunks that are next in order; the hangover of the next missing chunk begins."""
        ready: list[Arrived] = []
        while self.next_seq in self._early:
            arrived = self._early.pop(self.next_seq)
            self.early_bytes -= len(arrived.chunk.audio)
            self._release(arrived.chunk)
            ready.append(arrived)
        self.due_ms = self._wait_until_ms()
        return ready

    def _release(self, chunk: Chunk) -> None:
        self.next_seq = chunk.seq + 1
        self._final = _Final(chunk.seq, chunk.client_ms) if chunk.is_final else None

    def _wait_until_ms(self) -> int | None:
        if not self._early:
            return None
        finals = [seq for seq, arrived in self._early.items() if arrived.chunk.is_final]
        if finals:
            return self._early[min(finals)].at_ms + self._hangover_manual_ms
        return min(arrived.at_ms for arrived in self._early.values()) + self._hangover_auto_ms

    def _restarts(self, chunk: Chunk) -> bool:
        if chunk.seq > _FIRST_SEQ_MAX:
            return False
        final = self._final
        if self._early:
            newest = self._early[max(self._early)].chunk
            final = _Final(newest.seq, newest.client_ms) if newest.is_final else None
        if final is None or chunk.seq == final.seq:
            return False
        if chunk.client_ms is None or final.client_ms is None:
            return True
        return bool(client_gap_ms(final.client_ms, chunk.client_ms))

    def check(self) -> None:
        """Early chunks are within their bounds, ahead of the next chunk, and have a due time."""
        early = self._early
        assert self.early_bytes == sum(len(arrived.chunk.audio) for arrived in early.values()) <= self._bytes_max
        assert len(early) <= self._early_max
        assert (self.due_ms is None) == (not early) and self.due_ms == self._wait_until_ms()
        for seq, arrived in early.items():
            assert self.next_seq is not None and arrived.chunk.seq == seq
            assert self.next_seq < seq <= self.next_seq + self._early_max
