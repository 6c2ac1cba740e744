"""Segmenter, properties: no byte is lost or moved, and resent audio is finalized as before."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.audio.core.reorder import DUPLICATES_WINDOW, Chunk
from edge.audio.core.segment import FinalizeReason, Segment, SegmentLimits, SegmentStarted
from edge.audio.core.segmenter import Segmenter
from mesh.words import ChunkAnomaly
from tests.support.builders.segments import LIMITS

#: Two bytes per millisecond: short enough to read.
RATE = 1_000
#: Around every bound: the pause, the hangover after it, and the wait of a short sound.
GAPS_MS = st.sampled_from([0, 1, 20, 100, 149, 150, 200, 2_999, 3_000, 3_001, 3_149, 3_150, 3_151, 4_149, 4_150, 9_000])
#: Small bounds, so that all of them are met.
SMALL = LIMITS._replace(utterance_bytes_max=600, max_duration_ms=450, chunks_early_max=8)


class Said(NamedTuple):
    """A chunk to be sent, so long after the one before."""

    gap_ms: int
    audio: bytes
    is_final: bool


class Step(NamedTuple):
    """What the world does between two chunks."""

    ticks: bool
    repeats: int
    playing: bool | None


def pcm(max_ms: int) -> st.SearchStrategy[bytes]:
    return st.integers(1, max_ms).map(lambda samples: bytes(2 * samples))


def opus(packets_max: int) -> st.SearchStrategy[bytes]:
    packet = st.integers(1, 30).map(lambda size: size.to_bytes(2, "little") + bytes(size))
    return st.lists(packet, min_size=1, max_size=packets_max).map(b"".join)


def marked(audio: bytes, number: int, audio_format: str) -> bytes:
    """The same audio, told from all other chunks; lengths of Opus packets stay."""
    mark = number % 251 + 1
    if audio_format == "pcm16":
        return bytes([mark]) * len(audio)
    out, place = bytearray(audio), 0
    while place < len(audio):
        length = audio[place] | audio[place + 1] << 8
        out[place + 2 : place + 2 + length] = bytes([mark]) * length
        place += 2 + length
    return bytes(out)


@st.composite
def speeches(draw: st.DrawFn, audio_format: str) -> list[Said]:
    audio = pcm(250) if audio_format == "pcm16" else opus(12)
    # Mostly no end and no long gap, so that utterances grow.
    gaps = st.one_of(st.just(100), st.just(20), GAPS_MS)
    finals = st.sampled_from([False, False, False, False, True])
    said = draw(st.lists(st.builds(Said, gaps, st.one_of(audio, audio, st.just(b"")), finals), max_size=40))
    return [each._replace(audio=marked(each.audio, number, audio_format)) for number, each in enumerate(said)]


FORMATS = st.sampled_from(["pcm16", "opus"])
STEPS = st.builds(Step, st.booleans(), st.integers(0, 2), st.sampled_from([None, None, None, True, False]))
CLOCKS = st.sampled_from(["none", "all", "some", "round"])


def client_time(clock: str, number: int, time_ms: int) -> int | None:
    if clock == "none" or (clock == "some" and number % 3 == 0):
        return None
    return (time_ms + 2**32 - 5_000) % 2**32 if clock == "round" else 1_790_000_000_000 + time_ms


def chunks_of(said: list[Said], clock: str, first_seq: int) -> list[tuple[int, Chunk]]:
    """Each chunk and when it is sent."""
    time_ms, out = 0, []
    for number, each in enumerate(said):
        time_ms += each.gap_ms
        client_ms = client_time(clock, number, time_ms)
        out.append((time_ms, Chunk(first_seq + number, each.audio, each.is_final, client_ms)))
    return out


def tick_when_due(segments: Segmenter, until_ms: int) -> list[SegmentStarted | Segment]:
    """What a rim does that is never late."""
    made: list[SegmentStarted | Segment] = []
    while (due := segments.next_due_ms) is not None and due < until_ms:
        made += segments.tick(due)
        segments.check()
    return made


def check_story(made: list[SegmentStarted | Segment], said: list[Said]) -> list[Segment]:
    """Each utterance starts once and is cut once, in order; together they are what was said."""
    cuts = [one for one in made if isinstance(one, Segment)]
    assert [one.index for one in made] == [index for cut in cuts for index in (cut.index, cut.index)]
    assert [isinstance(one, SegmentStarted) for one in made] == [True, False] * len(cuts)
    assert [cut.index for cut in cuts] == list(range(len(cuts)))
    assert b"".join(cut.audio for cut in cuts) == b"".join(each.audio for each in said)
    assert all(cut.audio for cut in cuts)
    return cuts


# --- no byte is lost ------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(st.data(), FORMATS, CLOCKS, st.sampled_from([LIMITS, SMALL]))
def test_any_sequence_finalizes_exactly_the_audio_sent(
    data: st.DataObject, audio_format: str, clock: str, limits: SegmentLimits
) -> None:
    said = data.draw(speeches(audio_format))
    segments = Segmenter("s-1", audio_format, RATE, limits)
    made: list[SegmentStarted | Segment] = []
    sent: list[Chunk] = []
    now_ms = 0
    for time_ms, chunk in chunks_of(said, clock, first_seq=2):
        step = data.draw(STEPS)
        if step.ticks:
            made += tick_when_due(segments, time_ms)
        else:
            made += segments.tick(data.draw(st.integers(now_ms, time_ms)))
        now_ms = time_ms
        if step.playing is not None:
            segments.on_playing(step.playing, now_ms)
        made += segments.on_chunk(chunk, now_ms)
        sent.append(chunk)
        segments.check()
        for _ in range(step.repeats):
            assert segments.on_chunk(data.draw(st.sampled_from(sent)), now_ms) == []
            segments.check()
    made += segments.close(now_ms)
    assert segments.next_due_ms is None, "no audio is left"
    cuts = check_story(made, said)
    assert (
        segments.next_index == len(cuts)
        and segments.counts[ChunkAnomaly.GAP] == segments.counts[ChunkAnomaly.RESTART] == 0
    )
    assert all(before.last_seq < after.first_seq for before, after in pairwise(cuts))
    assert all(len(cut.audio) <= 2 * limits.utterance_bytes_max or cut.first_seq == cut.last_seq for cut in cuts)


@settings(deadline=None, max_examples=200)
@given(st.data(), FORMATS, CLOCKS, st.integers(1, 8))
def test_chunks_in_any_order_within_the_window_lose_nothing(
    data: st.DataObject, audio_format: str, clock: str, window: int
) -> None:
    said = data.draw(speeches(audio_format))
    # What waits has its own bound in bytes, which is not met here.
    limits = SMALL._replace(utterance_bytes_max=window * 500)
    segments = Segmenter("s-1", audio_format, RATE, limits, next_seq=2)
    made: list[SegmentStarted | Segment] = []
    sent = chunks_of(said, clock, first_seq=2)
    for start in range(0, len(sent), window):
        batch = sent[start : start + window]
        now_ms = batch[-1][0]
        made += tick_when_due(segments, now_ms)
        for _, chunk in data.draw(st.permutations(batch + batch[: data.draw(st.integers(0, len(batch)))])):
            made += segments.on_chunk(chunk, now_ms)
            segments.check()
            assert segments.next_due_ms is None or segments.next_due_ms >= now_ms
        assert segments.next_seq == batch[-1][1].seq + 1
    made += segments.close(sent[-1][0] if sent else 0)
    check_story(made, said)
    assert segments.counts[ChunkAnomaly.GAP] == segments.counts[ChunkAnomaly.RESTART] == 0


@settings(deadline=None, max_examples=200)
@given(st.data(), FORMATS, st.lists(st.integers(0, 2**40), max_size=40))
def test_arbitrary_seqs_keep_all_invariants(data: st.DataObject, audio_format: str, wild: list[int]) -> None:
    """Nothing is promised about a client that numbers as it likes, but that no chunk which was taken is lost."""
    near = st.integers(0, 20)
    seqs = data.draw(st.lists(st.one_of(near, near, st.sampled_from([*wild, DUPLICATES_WINDOW * 2])), max_size=60))
    segments = Segmenter("s-1", audio_format, RATE, SMALL)
    made: list[SegmentStarted | Segment] = []
    taken, now_ms = b"", 0
    for number, seq in enumerate(seqs):
        now_ms += data.draw(GAPS_MS)
        made += tick_when_due(segments, now_ms)
        audio = marked(data.draw(pcm(50) if audio_format == "pcm16" else opus(3)), number, audio_format)
        dropped = segments.counts[ChunkAnomaly.DUPLICATE]
        made += segments.on_chunk(Chunk(seq, audio, data.draw(st.booleans()), None), now_ms)
        segments.check()
        if segments.counts[ChunkAnomaly.DUPLICATE] == dropped:
            taken += audio
    made += segments.close(now_ms)
    cuts = [one for one in made if isinstance(one, Segment)]
    assert sorted(b"".join(cut.audio for cut in cuts)) == sorted(taken)
    assert [cut.index for cut in cuts] == list(range(len(cuts)))


# --- what is sent again is cut as before ----------------------------------------------------------


def in_real_time(
    sent: list[tuple[int, Chunk]], audio_format: str, limits: SegmentLimits, latency_ms: int
) -> list[Segment]:
    segments = Segmenter("s-1", audio_format, RATE, limits)
    made: list[SegmentStarted | Segment] = []
    for time_ms, chunk in sent:
        made += tick_when_due(segments, time_ms + latency_ms + 1)
        made += segments.on_chunk(chunk, time_ms + latency_ms)
        segments.check()
    made += tick_when_due(segments, 10**9)
    return [one for one in made if isinstance(one, Segment)]


def in_a_burst(sent: list[tuple[int, Chunk]], audio_format: str, limits: SegmentLimits) -> list[Segment]:
    segments = Segmenter("s-1", audio_format, RATE, limits)
    made: list[SegmentStarted | Segment] = []
    for _, chunk in sent:
        made += segments.on_chunk(chunk, 77_000)
        segments.check()
    made += tick_when_due(segments, 10**9)
    return [one for one in made if isinstance(one, Segment)]


def naive(sent: list[tuple[int, Chunk]], audio_format: str, limits: SegmentLimits) -> list[bytes]:
    """Where the rules cut, told by somebody who sees all chunks at once."""
    out: list[bytes] = []
    spoken, spoken_ms, heard_ms = b"", 0.0, 0

    def cut() -> None:
        nonlocal spoken, spoken_ms
        out.extend([spoken] if spoken else [])
        spoken, spoken_ms = b"", 0.0

    for time_ms, chunk in sent:
        if chunk.audio:
            silence = time_ms - heard_ms
            merge_until = limits.pause_ms + limits.hangover_auto_ms + limits.short_merge_wait_ms
            is_short = spoken_ms < limits.short_merge_ms
            if silence > limits.pause_ms and not (is_short and silence < merge_until):
                cut()
            if len(spoken) + len(chunk.audio) > 2 * limits.utterance_bytes_max:
                cut()
            spoken += chunk.audio
            spoken_ms = milliseconds(spoken, audio_format)
            heard_ms = time_ms
        if len(spoken) > limits.utterance_bytes_max or chunk.is_final or spoken_ms >= limits.max_duration_ms:
            cut()
    cut()
    return out


def milliseconds(audio: bytes, audio_format: str) -> float:
    if audio_format == "pcm16":
        return len(audio) * 1_000 / (2 * RATE)
    packets = 0
    while audio:
        audio = audio[2 + int.from_bytes(audio[:2], "little") :]
        packets += 1
    return packets * 20.0


@settings(deadline=None, max_examples=200)
@given(st.data(), FORMATS, st.sampled_from(["all", "round"]), st.sampled_from([LIMITS, SMALL]), st.integers(0, 5_000))
def test_burst_is_finalized_at_the_same_chunks_as_real_time(
    data: st.DataObject, audio_format: str, clock: str, limits: SegmentLimits, latency_ms: int
) -> None:
    said = data.draw(speeches(audio_format))
    sent = chunks_of(said, clock, first_seq=5)
    live = in_real_time(sent, audio_format, limits, latency_ms)
    burst = in_a_burst(sent, audio_format, limits)
    assert [cut.audio for cut in live] == [cut.audio for cut in burst] == naive(sent, audio_format, limits)
    assert [(cut.index, cut.first_seq, cut.turn_id, cut.first_client_ms) for cut in live] == [
        (cut.index, cut.first_seq, cut.turn_id, cut.first_client_ms) for cut in burst
    ]
    for first, again in zip(live, burst, strict=True):
        if first.reason is FinalizeReason.TIMEOUT:
            assert again.reason in (FinalizeReason.TIMEOUT, FinalizeReason.PAUSE, FinalizeReason.MANUAL)
        else:
            assert again.reason is first.reason


@settings(deadline=None, max_examples=200)
@given(st.data(), FORMATS)
def test_session_resumed_after_any_segment_is_finalized_alike(data: st.DataObject, audio_format: str) -> None:
    said = data.draw(speeches(audio_format))
    sent = chunks_of(said, "all", first_seq=0)
    live = in_real_time(sent, audio_format, SMALL, 30)
    done = data.draw(st.integers(0, len(live)))
    next_seq = live[done - 1].last_seq + 1 if done else 0
    segments = Segmenter("s-1", audio_format, RATE, SMALL, next_index=done, next_seq=next_seq)
    made: list[SegmentStarted | Segment] = []
    for _, chunk in sent[next_seq:]:
        made += segments.on_chunk(chunk, 99)
    made += segments.close(99)
    cuts = [one for one in made if isinstance(one, Segment)]
    assert [(cut.index, cut.audio) for cut in cuts] == [(cut.index, cut.audio) for cut in live[done:]]
