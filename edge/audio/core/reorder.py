"""Chunks in order: the pieces of a stream, sorted by their seq before anybody cuts them into utterances.

A chunk that the edge was too busy for is sent again, behind later ones, and a client that lost its connection repeats
what it does not know to have arrived. So:

- The first chunk sets the numbering, unless the session is resumed at a known place.
- The next seq is taken at once. That is nearly every chunk, and costs nothing more.
- A lower one, by up to REPEATS_WINDOW, came before (or was given up): it is dropped and counted.
- A higher one, by up to `early_max`, waits for those between. They get the hangover: `hangover_auto_ms` from the
  arrival of the first that waits, but once a final chunk waits, `hangover_manual_ms` from its arrival: somebody wants
  that cut now. Then the missing ones are given up and counted. Whatever waits is handed on, once and in order. Chunks
  that wait may not have more than `early_bytes_max` bytes together; beyond that nobody waits for the missing ones.
- A seq further away, in either direction, is a new numbering, and so is 0 or 1 behind a final chunk: clients may count
  anew after each utterance that they end. What waits is handed on before it. A repeat of those chunks looks the same,
  save that it is the final chunk itself or not newer than that by the client's clock: then it is a repeat. A client
  that resumes never counts anew (`renumbers` False): whatever is lower came before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

#: A chunk so far behind the next one is a repeat; one further behind begins a new numbering.
REPEATS_WINDOW: Final = 256
#: Clients count from 0 or from 1.
_FIRST_SEQ_MAX: Final = 1

#: Binary frames carry the lower 32 bits of the client's clock, which come round every 49 days.
_CLOCK_MASK: Final = 2**32 - 1
_CLOCK_HALF: Final = 2**31


class Chunk(NamedTuple):
    """A piece of streamed audio, perhaps without audio; is_final ends the utterance."""

    seq: int
    audio: bytes
    is_final: bool
    #: The client's clock; its upper bits may be missing.
    client_ms: int | None


class Arrived(NamedTuple):
    """A chunk, how much sound it has (in units of edge.audio.core.formats.Sound), and when it came."""

    chunk: Chunk
    units: int
    at_ms: int


@dataclass(slots=True)
class ChunkCounts:
    """What was not as it should be."""

    duplicates: int = 0
    #: Chunks that never came, or too late.
    gaps: int = 0
    #: Ends of utterances that had no audio.
    empty_finalizes: int = 0
    #: New numberings.
    restarts: int = 0


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
    """The chunks of one session: any order in, one order out."""

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
        "held_bytes",
        "next_seq",
    )

    def __init__(
        self,
        counts: ChunkCounts,
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
        #: When the missing chunks are given up; None while nothing waits for them.
        self.due_ms: int | None = None
        #: Audio of the chunks that wait.
        self.held_bytes = 0
        self._early: dict[int, Arrived] = {}
        #: The chunk that was handed on last, if it was a final one.
        self._final: _Final | None = None

    def __len__(self) -> int:
        return len(self._early)

    def drops(self, chunk: Chunk) -> bool:
        """True if the chunk came before, which is counted."""
        if self.next_seq is None:
            return False
        ahead = chunk.seq - self.next_seq
        is_past = ahead < 0 and not (self._renumbers and (ahead < -REPEATS_WINDOW or self._begins_anew(chunk)))
        repeated = is_past or chunk.seq in self._early
        self._counts.duplicates += repeated
        return repeated

    def put(self, came: Arrived) -> list[Arrived]:
        """A chunk that is no repeat came; those whose turn it is now."""
        chunk = came.chunk
        if self.next_seq is None:
            self.next_seq = chunk.seq
        ahead = chunk.seq - self.next_seq
        if ahead == 0 and not self._early:
            self._pass(chunk)
            return [came]
        if 0 <= ahead <= self._early_max:
            self._early[chunk.seq] = came
            self.held_bytes += len(chunk.audio)
            ready = self._ready()
            while self.held_bytes > self._bytes_max:
                ready += self._give_up()
            return ready
        ready = self.flush()
        self._counts.restarts += 1
        self._pass(chunk)
        return [*ready, came]

    def pop_due(self, now_ms: int) -> list[Arrived]:
        """Give up the chunks that were waited for long enough; those whose turn it is now."""
        ready: list[Arrived] = []
        while self.due_ms is not None and self.due_ms <= now_ms:
            ready += self._give_up()
        return ready

    def flush(self) -> list[Arrived]:
        """Wait for nothing any more: all that waited."""
        ready: list[Arrived] = []
        while self._early:
            ready += self._give_up()
        return ready

    def forget_early(self) -> None:
        """All from the next one on comes again."""
        self._early.clear()
        self.held_bytes = 0
        self.due_ms = None

    def _give_up(self) -> list[Arrived]:
        assert self.next_seq is not None
        first = min(self._early)
        self._counts.gaps += first - self.next_seq
        self.next_seq = first
        return self._ready()

    def _ready(self) -> list[Arrived]:
        """Those that wait for nothing; the wait for the next missing chunk begins."""
        ready: list[Arrived] = []
        while self.next_seq in self._early:
            came = self._early.pop(self.next_seq)
            self.held_bytes -= len(came.chunk.audio)
            self._pass(came.chunk)
            ready.append(came)
        self.due_ms = self._wait_until_ms()
        return ready

    def _pass(self, chunk: Chunk) -> None:
        self.next_seq = chunk.seq + 1
        self._final = _Final(chunk.seq, chunk.client_ms) if chunk.is_final else None

    def _wait_until_ms(self) -> int | None:
        if not self._early:
            return None
        finals = [seq for seq, came in self._early.items() if came.chunk.is_final]
        if finals:
            return self._early[min(finals)].at_ms + self._hangover_manual_ms
        return min(came.at_ms for came in self._early.values()) + self._hangover_auto_ms

    def _begins_anew(self, chunk: Chunk) -> bool:
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
        """What waits is within its bounds, is ahead of the next chunk, and has a time at which it waits no longer."""
        early = self._early
        assert self.held_bytes == sum(len(came.chunk.audio) for came in early.values()) <= self._bytes_max
        assert len(early) <= self._early_max
        assert (self.due_ms is None) == (not early) and self.due_ms == self._wait_until_ms()
        for seq, came in early.items():
            assert self.next_seq is not None and came.chunk.seq == seq
            assert self.next_seq < seq <= self.next_seq + self._early_max
