"""Segmenter: finalizes streamed audio into utterances. One per session; reorder.py puts its chunks in order.

When an utterance is finalized, and why then:

- MANUAL: the chunk with is_final is its last one. Once all earlier chunks are there it is finalized at once: to wait
  would add the hangover to every utterance and change no byte. Missing chunks get the hangover, as a due time; later
  chunks belong to the next utterance. With no audio there is no utterance: that is counted.
- PAUSE: a chunk with audio arrived more than `pause_ms` after the previous one. The chunk opens the next utterance, so
  no beginning is lost and no tail is glued on. The silence is measured by the client's clock if both chunks carry it:
  a stalled network is no pause, and audio that is resent in a burst is finalized as it was the first time. Otherwise,
  and if that clock went backwards, it is measured by arrival.
- TIMEOUT: no audio arrived for `pause_ms` and the hangover. A chunk within the hangover is judged by its own silence.
- MAX_DURATION, MAX_LENGTH: the utterance reached its maximum sound, or exceeded its bytes. The chunk that does so is
  the last one, unless that would make more than twice the bytes: then it opens the next utterance.
- CLOSE: the session ends; early chunks are included.

Of several reasons for one chunk MAX_LENGTH goes before MANUAL before MAX_DURATION. A pause before it finalizes an
utterance of its own. Chunks without audio are no sign of speech: only is_final counts.

Short merge: with less than `short_merge_ms` of sound a pause finalizes nothing yet. Audio that arrives within
`short_merge_wait_ms` after the TIMEOUT would have fired is added; otherwise the utterance is finalized alone, because a
short "yes" must be translated too.

Playing: pauses do not count while the client plays a result, and are measured from its end.

Turns: MAX_DURATION and MAX_LENGTH, in the middle of speech, leave the turn open for the next utterance, unless a pause
or is_final comes between. Every other reason ends it.

Resent audio: chunks with client times are finalized at the same chunks in a burst as they were in real time, short
merge included, because the timer and the next chunk both judge by the silence alone. Reasons may differ: PAUSE for
TIMEOUT, or MANUAL if the client finalized an utterance that had timed out. The chunks differ where this core has too
little information: after a stall that outlasted pause and hangover, so that the timer fired where the client did not
pause; where playing hid a pause; and where abandoned chunks arrive the second time. A turn that began before the resent
audio gets another id.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from edge.audio.core.formats import sound_of
from edge.audio.core.reorder import Arrived, Chunk, ChunkReorder, client_gap_ms
from edge.audio.core.segment import FinalizeReason, Segment, SegmentLimits, SegmentStarted
from mesh.errors import PeerError
from mesh.words import ChunkAnomaly

#: Pieces of an utterance before they are joined. Chunks of 100 ms make far fewer; tiny ones cost more than they hold.
_PIECES_MAX: Final = 1_024
_MID_SPEECH: Final = frozenset({FinalizeReason.MAX_DURATION, FinalizeReason.MAX_LENGTH})


class Segmenter:
    """The stream of one session: finalized utterances out, the current one buffered."""

    def __init__(
        self,
        session_id: str,
        audio_format: str,
        sample_rate: int,
        limits: SegmentLimits,
        next_index: int = 0,
        next_seq: int | None = None,
        renumbers: bool = True,
    ) -> None:
        self.limits = limits
        #: Irregularities so far. The session exports them as metrics and clears them.
        self.counts: Counter[ChunkAnomaly] = Counter()
        #: The index of the current utterance, or else of the next one.
        self.next_index = next_index
        self._session_id = session_id
        self._order = ChunkReorder(
            self.counts,
            early_max=limits.chunks_early_max,
            early_bytes_max=limits.utterance_bytes_max,
            hangover_manual_ms=limits.hangover_manual_ms,
            hangover_auto_ms=limits.hangover_auto_ms,
            next_seq=next_seq,
            renumbers=renumbers,
        )
        self._sound = sound_of(audio_format, sample_rate)
        self._max_units = self._sound.units(limits.max_duration_ms)
        self._short_units = self._sound.units(limits.short_merge_ms)
        # At least 1: a silence of exactly pause_ms is no pause, for the timer as for a chunk.
        self._timeout_ms = limits.pause_ms + max(limits.hangover_auto_ms, 1)
        self._short_timeout_ms = self._timeout_ms + limits.short_merge_wait_ms

        self._pieces: list[bytes] = []
        self._bytes = 0
        self._units = 0
        self._first_seq = self._last_seq = 0
        self._first_client_ms: int | None = None
        self._began_ms = 0
        #: Index of the first utterance of the turn; None = the next utterance begins one.
        self._turn_index: int | None = None
        #: Arrival and client time of the last chunk with audio.
        self._audio_ms = 0
        self._audio_client_ms: int | None = None
        #: The client plays a result until then (a bound), or played one until then.
        self._playing_until_ms = 0
        #: Effects of a chunk that was refused as malformed; the next call returns them.
        self._deferred: list[SegmentStarted | Segment] = []
        self._deferred_ms = 0

    # --- events -------------------------------------------------------------------------------------

    def on_chunk(self, chunk: Chunk, now_ms: int) -> list[SegmentStarted | Segment]:
        """A chunk arrived. PeerError INVALID_AUDIO if its audio is malformed: then only its seq counts as received."""
        if chunk.seq != self._order.next_seq and self._order.drops(chunk):
            return self._pop_deferred()
        try:
            units = self._sound.measure(chunk.audio)
        except PeerError:
            self._put(Arrived(chunk._replace(audio=b"", is_final=False), 0, now_ms), self._deferred)
            self._deferred_ms = now_ms
            raise
        effects = self._pop_deferred()
        self._put(Arrived(chunk, units, now_ms), effects)
        return effects

    def on_playing(self, playing: bool, now_ms: int) -> None:
        """The client began to play a result, or finished."""
        self._playing_until_ms = now_ms + self.limits.playing_ms_max if playing else now_ms

    def on_resumed(self, now_ms: int) -> None:
        """The client reattached: silence until now was the network's, unless the client's clock shows more.

        It resends all chunks from `next_seq` on, also those that were early.
        """
        self.on_stalled(now_ms)
        self._order.forget_early()

    def on_stalled(self, now_ms: int) -> None:
        """The client's messages waited in the inbound queue until now: that silence was not the client's."""
        self._audio_ms = max(self._audio_ms, now_ms)

    def passed(self, index: int) -> None:
        """That index belongs to an utterance that arrived whole: the current one gets a later index."""
        self.next_index = max(self.next_index, index + 1)

    def tick(self, now_ms: int) -> list[SegmentStarted | Segment]:
        """The effects that are due."""
        effects = self._pop_deferred()
        for arrived in self._order.pop_due(now_ms):
            self._add(arrived, effects)
        due_ms = self.next_due_ms
        if due_ms is not None and due_ms <= now_ms:
            self._finalize(FinalizeReason.TIMEOUT, effects)
        return effects

    def close(self, now_ms: int) -> list[SegmentStarted | Segment]:
        """The session ends: finalize all remaining audio."""
        effects = self._pop_deferred()
        for arrived in self._order.flush():
            self._add(arrived, effects)
        if self._pieces:
            self._finalize(FinalizeReason.CLOSE, effects)
        return effects

    # --- state ----------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When to tick; None if nothing is buffered."""
        if self._deferred:
            return self._deferred_ms
        if self._order.due_ms is not None:
            # Early chunks are audio that arrived: no timeout before they are released.
            return self._order.due_ms
        if not self._pieces:
            return None
        wait_ms = self._short_timeout_ms if self._units < self._short_units else self._timeout_ms
        return max(self._audio_ms, self._playing_until_ms) + wait_ms

    @property
    def next_seq(self) -> int | None:
        """The expected seq; None before the first chunk."""
        return self._order.next_seq

    # --- inside -----------------------------------------------------------------------------------

    def _pop_deferred(self) -> list[SegmentStarted | Segment]:
        deferred, self._deferred = self._deferred, []
        return deferred

    def _put(self, arrived: Arrived, effects: list[SegmentStarted | Segment]) -> None:
        order = self._order
        for ready in order.put(arrived):
            self._add(ready, effects)
        if order.due_ms is not None and order.due_ms <= arrived.at_ms:
            for ready in order.pop_due(arrived.at_ms):
                self._add(ready, effects)

    def _add(self, arrived: Arrived, effects: list[SegmentStarted | Segment]) -> None:
        """The next chunk in order."""
        chunk = arrived.chunk
        if chunk.audio:
            self._finalize_before(arrived, effects)
            if not self._pieces:
                self._open(arrived, effects)
            self._append(arrived)
        self._last_seq = chunk.seq
        if self._bytes > self.limits.utterance_bytes_max:
            self._finalize(FinalizeReason.MAX_LENGTH, effects)
        elif chunk.is_final:
            self._finalize_manually(effects)
        elif self._units >= self._max_units:
            self._finalize(FinalizeReason.MAX_DURATION, effects)
        if chunk.is_final:
            self._turn_index = None

    def _finalize_before(self, arrived: Arrived, effects: list[SegmentStarted | Segment]) -> None:
        """Finalize the current utterance if this chunk does not belong to it."""
        silence_ms = self._silence_ms(arrived)
        if not self._pieces:
            if silence_ms > self.limits.pause_ms:
                self._turn_index = None
        elif silence_ms > self.limits.pause_ms and not self._merges(silence_ms):
            self._finalize(FinalizeReason.PAUSE, effects)
        elif self._bytes + len(arrived.chunk.audio) > 2 * self.limits.utterance_bytes_max:
            self._finalize(FinalizeReason.MAX_LENGTH, effects)

    def _silence_ms(self, arrived: Arrived) -> int:
        """The silence before this chunk, without the time in which a result was played."""
        by_client = client_gap_ms(self._audio_client_ms, arrived.chunk.client_ms)
        silence_ms = arrived.at_ms - self._audio_ms if by_client is None else by_client
        if self._playing_until_ms > self._audio_ms:
            return min(silence_ms, arrived.at_ms - self._playing_until_ms)
        return silence_ms

    def _merges(self, silence_ms: int) -> bool:
        return self._units < self._short_units and silence_ms < self._short_timeout_ms

    def _open(self, arrived: Arrived, effects: list[SegmentStarted | Segment]) -> None:
        self._first_seq = arrived.chunk.seq
        self._first_client_ms = arrived.chunk.client_ms
        self._began_ms = arrived.at_ms
        if self._turn_index is None:
            self._turn_index = self.next_index
        effects.append(SegmentStarted(self.next_index))

    def _append(self, arrived: Arrived) -> None:
        audio = arrived.chunk.audio
        self._pieces.append(audio)
        self._bytes += len(audio)
        self._units += arrived.units
        # A late chunk may arrive after early ones that are released with it.
        self._audio_ms = max(self._audio_ms, arrived.at_ms)
        self._audio_client_ms = arrived.chunk.client_ms
        if len(self._pieces) > _PIECES_MAX:
            self._pieces = [b"".join(self._pieces)]

    def _finalize_manually(self, effects: list[SegmentStarted | Segment]) -> None:
        if self._pieces:
            self._finalize(FinalizeReason.MANUAL, effects)
        else:
            self.counts[ChunkAnomaly.EMPTY_FINALIZE] += 1

    def _finalize(self, reason: FinalizeReason, effects: list[SegmentStarted | Segment]) -> None:
        effects.append(
            Segment(
                index=self.next_index,
                audio=b"".join(self._pieces),
                audio_ms=self._sound.ms(self._units),
                reason=reason,
                first_seq=self._first_seq,
                last_seq=self._last_seq,
                turn_id=f"turn_{self._session_id}_{self._turn_index}",
                padding_ms=self._padding_ms(reason),
                first_client_ms=self._first_client_ms,
                began_ms=self._began_ms,
            )
        )
        self.next_index += 1
        self._pieces = []
        self._bytes = self._units = 0
        if reason not in _MID_SPEECH:
            self._turn_index = None

    def _padding_ms(self, reason: FinalizeReason) -> int:
        if reason is FinalizeReason.MAX_LENGTH:
            return 0
        return self.limits.padding_manual_ms if reason is FinalizeReason.MANUAL else self.limits.padding_auto_ms

    def check(self) -> None:
        """All counts are true, all bounds hold, and buffered audio has a due time."""
        self._order.check()
        assert self._bytes == sum(map(len, self._pieces)) <= self.limits.utterance_bytes_max
        assert self._units == self._sound.measure(b"".join(self._pieces)) < self._max_units
        assert all(self._pieces) and len(self._pieces) <= _PIECES_MAX
        is_empty = not (self._pieces or len(self._order) or self._deferred)
        assert is_empty == (self.next_due_ms is None)
        assert self._turn_index is None or self._turn_index <= self.next_index
        assert self._turn_index is not None or not self._pieces
