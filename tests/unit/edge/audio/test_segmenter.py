"""Segmenter: which bytes go into which utterance, when it is finalized, and its fields."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edge.audio.core.reorder import Chunk
from edge.audio.core.segment import FinalizeReason, Segment, SegmentLimits, SegmentStarted
from edge.audio.core.segmenter import Segmenter
from mesh.config.sessions import SpeechConfig
from mesh.errors import ErrorCode, PeerError
from mesh.words import ChunkAnomaly
from tests.support.builders.segments import LIMITS, Talk, sound

A, B, C = sound(500, 1), sound(500, 2), sound(500, 3)


def one(made: list[SegmentStarted | Segment]) -> Segment:
    (cut,) = (each for each in made if isinstance(each, Segment))
    return cut


# --- each reason ----------------------------------------------------------------------------------


def by_final_with_audio(talk: Talk) -> None:
    talk.say(500, 1)
    talk.say(500, 2, final=True)


def by_final_without_audio(talk: Talk) -> None:
    talk.say(500, 1)
    talk.say(500, 2)
    talk.wait(2_999)
    talk.chunk(final=True)


def by_pause(talk: Talk) -> None:
    talk.say(500, 1)
    talk.say(500, 2)
    talk.wait(3_001)
    talk.say(500, 3)


def by_pause_of_the_client(talk: Talk) -> None:
    talk.say(500, 1, client=10_000)
    talk.say(500, 2, client=10_100)
    talk.say(500, 3, client=13_101)


def by_timeout(talk: Talk) -> None:
    talk.say(500, 1)
    talk.say(500, 2)
    talk.wait(3_150)


def by_duration(talk: Talk) -> None:
    talk.segments = Segmenter("s-1", "pcm16", 16_000, LIMITS._replace(max_duration_ms=1_000))
    talk.say(500, 1)
    talk.say(500, 2)


def by_length(talk: Talk) -> None:
    talk.segments = Segmenter("s-1", "pcm16", 16_000, LIMITS._replace(utterance_bytes_max=31_999))
    talk.say(500, 1)
    talk.say(500, 2)


def by_close(talk: Talk) -> None:
    talk.say(500, 1)
    talk.say(500, 2)
    talk.close()


@pytest.mark.parametrize(
    ("story", "reason", "last_seq", "padding_ms", "flags"),
    [
        (by_final_with_audio, FinalizeReason.MANUAL, 1, 280, (True, False, False, False)),
        (by_final_without_audio, FinalizeReason.MANUAL, 2, 280, (True, False, False, False)),
        (by_pause, FinalizeReason.PAUSE, 1, 220, (False, True, False, False)),
        (by_pause_of_the_client, FinalizeReason.PAUSE, 1, 220, (False, True, False, False)),
        (by_timeout, FinalizeReason.TIMEOUT, 1, 220, (False, False, True, False)),
        (by_duration, FinalizeReason.MAX_DURATION, 1, 220, (False, False, False, True)),
        (by_length, FinalizeReason.MAX_LENGTH, 1, 0, (False, False, False, False)),
        (by_close, FinalizeReason.CLOSE, 1, 220, (False, False, False, False)),
    ],
)
def test_each_reason_finalizes_the_same_audio(
    story: Callable[[Talk], None],
    reason: FinalizeReason,
    last_seq: int,
    padding_ms: int,
    flags: tuple[bool, bool, bool, bool],
) -> None:
    talk = Talk()
    story(talk)
    cut = one(talk.told)
    assert talk.told[:2] == [SegmentStarted(0), cut]
    assert (cut.index, cut.audio, cut.audio_ms) == (0, A + B, 1_000)
    assert (cut.reason, cut.first_seq, cut.last_seq) == (reason, 0, last_seq)
    assert (cut.padding_ms, cut.turn_id, cut.began_ms) == (padding_ms, "turn_s-1_0", 1_000_000)
    assert (
        cut.is_manual_cut,
        cut.is_pause_triggered,
        cut.is_timeout_triggered,
        cut.is_max_duration_triggered,
    ) == flags
    assert talk.segments.next_index == 1

    talk.close()
    rest = [C] if reason is FinalizeReason.PAUSE else []
    assert talk.heard == [A + B, *rest], "what came after a pause is the next utterance, and nothing is lost"


def test_limits_come_from_the_configuration() -> None:
    limits = SegmentLimits.of(SpeechConfig(pause_ms=1_234, chunks_early_max=5))
    assert (limits.pause_ms, limits.chunks_early_max, limits.max_duration_ms) == (1_234, 5, 20_000)
    assert set(SegmentLimits._fields) <= set(SpeechConfig.__struct_fields__)


# --- pauses ---------------------------------------------------------------------------------------


def test_defect_01_first_chunk_after_a_pause_opens_the_next_utterance() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.wait(3_001)
    assert [type(each) for each in talk.say(500, 2)] == [Segment, SegmentStarted]
    talk.say(500, 3, final=True)
    assert talk.heard == [A, B + C], "neither a tail on the first nor a beginning cut off the second"


def test_defect_01_first_chunk_after_the_timeout_is_not_finalized_alone() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.wait(60_000)
    talk.say(500, 2)
    talk.wait(100)
    talk.say(500, 3, final=True)
    assert talk.heard == [A, B + C]
    assert [cut.reason for cut in talk.cuts] == [FinalizeReason.TIMEOUT, FinalizeReason.MANUAL]


def test_silence_of_exactly_the_pause_is_no_pause() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.wait(3_000)
    assert talk.say(500, 2) == []
    talk.wait(3_000)
    assert talk.tick() == [] and talk.segments.next_due_ms == talk.now + 150


def test_without_a_hangover_the_timer_and_a_chunk_agree_on_the_pause() -> None:
    talk = Talk(hangover_auto_ms=0, short_merge_ms=0)
    talk.say(500, 1)
    talk.wait(3_000)
    assert talk.told == [SegmentStarted(0)] and talk.say(500, 2) == []
    assert one(talk.wait(3_001)).audio == A + B


def test_chunk_within_the_hangover_of_the_timer_is_after_the_pause() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.wait(3_149)
    assert one(talk.say(500, 2)).reason is FinalizeReason.PAUSE
    assert talk.heard == [A]


def test_stalled_network_is_no_pause() -> None:
    talk = Talk()
    talk.say(500, 1, client=10_000)
    talk.now += 3_140
    assert talk.say(500, 2, client=10_100) == []
    assert talk.now + 3_150 == talk.segments.next_due_ms, "the timer goes by arrival"


def test_pause_hidden_by_the_network_counts_by_the_client_clock() -> None:
    talk = Talk()
    talk.say(500, 1, client=10_000)
    assert one(talk.say(500, 2, client=13_001)).reason is FinalizeReason.PAUSE


@pytest.mark.parametrize(("before", "after"), [(None, 99_000), (10_000, None), (10_000, 9_000)])
def test_missing_or_backward_client_clock_is_ignored(before: int | None, after: int | None) -> None:
    talk = Talk()
    talk.say(500, 1, client=before)
    assert talk.say(500, 2, client=after) == []
    talk.wait(3_001)
    assert one(talk.say(500, 3, client=None)).audio == A + B


@pytest.mark.parametrize(("gap", "cuts"), [(100, 0), (3_000, 0), (3_001, 1)])
def test_client_clock_of_32_bits_may_wrap_around(gap: int, cuts: int) -> None:
    talk = Talk()
    talk.say(500, 1, client=2**32 - 50)
    talk.say(500, 2, client=gap - 50)
    assert len(talk.cuts) == cuts


def test_text_and_binary_chunks_share_a_clock() -> None:
    now = 1_790_000_000_000
    talk = Talk()
    talk.say(500, 1, client=now)
    assert talk.say(500, 2, client=(now + 100) % 2**32) == []
    assert one(talk.say(500, 3, client=now + 3_101)).audio == A + B


def test_chunks_without_audio_are_no_speech() -> None:
    talk = Talk()
    talk.say(500, 1)
    for _ in range(30):
        talk.wait(100)
        assert talk.chunk() == []
    talk.wait(1)
    assert one(talk.say(500, 2)).last_seq == 30
    talk.now += 3_000
    talk.chunk()
    assert one(talk.wait(150)).reason is FinalizeReason.TIMEOUT


def test_final_chunk_without_audio_after_a_pause_finalizes_the_utterance_before() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.wait(3_100)
    assert one(talk.chunk(final=True)).reason is FinalizeReason.MANUAL


# --- ends without audio ---------------------------------------------------------------------------


def test_final_chunk_without_audio_makes_no_utterance_and_is_counted() -> None:
    talk = Talk()
    talk.say(500, 1, final=True)
    assert talk.chunk(final=True) == [] and talk.chunk(final=True) == []
    assert talk.segments.next_index == 1 and talk.segments.counts[ChunkAnomaly.EMPTY_FINALIZE] == 2
    assert one(talk.say(500, 2, final=True)).index == 1


def test_close_without_audio_makes_no_utterance() -> None:
    talk = Talk()
    assert (
        talk.close() == [] and talk.segments.next_index == 0 and talk.segments.counts[ChunkAnomaly.EMPTY_FINALIZE] == 0
    )


# --- the longest utterances -----------------------------------------------------------------------


def test_chunk_that_reaches_the_duration_is_the_last_one() -> None:
    talk = Talk(max_duration_ms=1_200)
    talk.say(500, 1)
    talk.say(500, 2)
    assert one(talk.say(500, 3)).audio == A + B + C


def test_opus_is_measured_by_its_packets() -> None:
    talk = Talk("opus", max_duration_ms=1_000)
    for number in range(9):
        talk.say(100, number)
    assert talk.cuts == []
    cut = one(talk.say(100, 9))
    assert (cut.audio_ms, cut.reason) == (1_000, FinalizeReason.MAX_DURATION)


def test_defect_06_pcm_lasts_as_long_as_it_sounds() -> None:
    talk = Talk(utterance_bytes_max=1_000_000)
    for number in range(199):
        talk.say(100, number)
        talk.wait(100)
    assert talk.cuts == []
    cut = one(talk.say(100, 199))
    assert (cut.reason, cut.audio_ms) == (FinalizeReason.MAX_DURATION, 20_000)


def test_defect_06_chunks_that_are_no_whole_milliseconds_do_not_drift() -> None:
    talk = Talk(max_duration_ms=1_000)
    for _ in range(1_599):
        talk.chunk(bytes(20))  # 10 samples: 0.625 ms
    assert talk.cuts == []
    assert one(talk.chunk(bytes(20))).audio_ms == 1_000


def test_chunk_that_exceeds_the_length_is_the_last_one() -> None:
    talk = Talk(utterance_bytes_max=2 * len(A))
    talk.say(500, 1)
    assert talk.say(500, 2) == [], "exactly the bound is within it"
    assert one(talk.say(500, 3)).audio == A + B + C


def test_chunk_that_would_double_the_length_opens_the_next_utterance() -> None:
    talk = Talk(utterance_bytes_max=len(A))
    talk.say(500, 1)
    made = talk.chunk(B + C)
    assert [type(each) for each in made] == [Segment, SegmentStarted, Segment]
    assert talk.heard == [A, B + C]
    assert [cut.reason for cut in talk.cuts] == [FinalizeReason.MAX_LENGTH] * 2
    assert [(cut.first_seq, cut.last_seq) for cut in talk.cuts] == [(0, 0), (1, 1)]


def test_chunk_that_exactly_doubles_the_length_is_still_the_last_one() -> None:
    talk = Talk(utterance_bytes_max=len(A))
    talk.say(500, 1)
    assert one(talk.say(500, 2)).audio == A + B


@pytest.mark.parametrize(
    ("limits", "final", "reason"),
    [
        ({"utterance_bytes_max": 31_999, "max_duration_ms": 1_000}, True, FinalizeReason.MAX_LENGTH),
        ({"utterance_bytes_max": 31_999, "max_duration_ms": 1_000}, False, FinalizeReason.MAX_LENGTH),
        ({"utterance_bytes_max": 32_000, "max_duration_ms": 1_000}, True, FinalizeReason.MANUAL),
        ({"utterance_bytes_max": 32_000, "max_duration_ms": 1_000}, False, FinalizeReason.MAX_DURATION),
    ],
)
def test_of_several_reasons_max_length_goes_before_manual_before_max_duration(
    limits: dict[str, int], final: bool, reason: FinalizeReason
) -> None:
    talk = Talk("pcm16", 0, None, **limits)
    talk.say(500, 1)
    assert one(talk.say(500, 2, final=final)).reason is reason


def test_pause_finalizes_an_utterance_of_its_own_first() -> None:
    talk = Talk(max_duration_ms=500)
    talk.say(450, 1)
    talk.wait(3_100)
    talk.say(500, 2, final=True)
    assert talk.heard == [sound(450, 1), B]
    assert [cut.reason for cut in talk.cuts] == [FinalizeReason.PAUSE, FinalizeReason.MANUAL]


def test_many_tiny_chunks_are_joined() -> None:
    talk = Talk()
    for number in range(3_000):
        talk.chunk(bytes([number % 251] * 2))
    assert talk.segments._bytes == 6_000
    assert one(talk.close()).audio == b"".join(bytes([number % 251] * 2) for number in range(3_000))


# --- turns ----------------------------------------------------------------------------------------


def turns(talk: Talk) -> list[str]:
    return [cut.turn_id.removeprefix("turn_s-1_") for cut in talk.cuts]


def test_finalize_for_duration_keeps_the_turn() -> None:
    talk = Talk(max_duration_ms=1_000)
    for number in range(5):
        talk.say(500, number)
    talk.chunk(final=True)
    talk.say(500, 9, final=True)
    assert turns(talk) == ["0", "0", "0", "3"]
    assert [cut.reason for cut in talk.cuts] == [FinalizeReason.MAX_DURATION] * 2 + [FinalizeReason.MANUAL] * 2


def test_finalize_for_length_keeps_the_turn() -> None:
    talk = Talk(utterance_bytes_max=len(A) - 1)
    talk.say(500, 1)
    talk.say(500, 2)
    assert turns(talk) == ["0", "0"]


@pytest.mark.parametrize("reason", [FinalizeReason.MANUAL, FinalizeReason.PAUSE, FinalizeReason.TIMEOUT])
def test_every_other_reason_ends_the_turn(reason: FinalizeReason) -> None:
    talk = Talk()
    talk.say(500, 1, final=reason is FinalizeReason.MANUAL)
    talk.wait({FinalizeReason.PAUSE: 3_100, FinalizeReason.TIMEOUT: 3_200}.get(reason, 0))
    talk.say(500, 2)
    talk.close()
    assert talk.cuts[0].reason is reason and turns(talk) == ["0", "1"]


def test_kept_turn_ends_with_a_final_chunk_or_pause_without_audio() -> None:
    talk = Talk(max_duration_ms=500)
    talk.say(500, 1)
    talk.chunk(final=True)
    talk.say(500, 2)
    talk.wait(3_001)
    talk.say(500, 3)
    talk.wait(3_000)
    talk.say(500, 4)
    assert turns(talk) == ["0", "1", "2", "2"]


def test_final_chunk_with_too_many_bytes_ends_the_turn() -> None:
    talk = Talk(utterance_bytes_max=len(A) - 1)
    talk.say(500, 1, final=True)
    talk.say(500, 2)
    assert talk.cuts[0].reason is FinalizeReason.MAX_LENGTH and turns(talk) == ["0", "1"]


# --- short merge ----------------------------------------------------------------------------------


def test_defect_07_short_audio_before_a_pause_waits_to_be_merged() -> None:
    talk = Talk()
    talk.say(380, 1)
    talk.wait(4_149)
    assert talk.say(500, 2) == []
    assert one(talk.wait(3_150)).audio == sound(380, 1) + B


def test_defect_07_short_audio_is_finalized_alone_if_nothing_follows() -> None:
    talk = Talk()
    talk.say(380, 1)
    assert talk.wait(4_149) == []
    assert (talk.wait(1), talk.cuts[0].reason, talk.heard) == ([talk.cuts[0]], FinalizeReason.TIMEOUT, [sound(380, 1)])


def test_defect_07_audio_after_the_merge_wait_opens_the_next_utterance() -> None:
    talk = Talk()
    talk.say(380, 1, client=0)
    cut = one(talk.say(500, 2, client=4_150))
    assert (cut.audio, cut.reason) == (sound(380, 1), FinalizeReason.PAUSE)


def test_merged_audio_that_is_still_short_waits_again() -> None:
    talk = Talk()
    talk.say(180, 1)
    talk.wait(3_500)
    talk.say(180, 2)
    talk.wait(3_500)
    assert talk.cuts == []
    talk.say(40, 3)
    assert one(talk.wait(3_150)).audio == sound(180, 1) + sound(180, 2) + sound(40, 3)


def test_audio_of_exactly_the_minimum_is_not_short() -> None:
    talk = Talk()
    talk.say(400, 1)
    assert one(talk.wait(3_150)).audio_ms == 400
    talk.say(400, 2)
    talk.wait(3_100)
    assert one(talk.say(400, 3)).audio_ms == 400


def test_other_reasons_never_merge() -> None:
    talk = Talk(max_duration_ms=300)
    talk.say(100, 1, final=True)
    talk.say(300, 2)
    talk.say(100, 3)
    talk.close()
    assert [cut.reason for cut in talk.cuts] == [
        FinalizeReason.MANUAL,
        FinalizeReason.MAX_DURATION,
        FinalizeReason.CLOSE,
    ]


def test_final_chunk_finalizes_short_audio_that_waits() -> None:
    talk = Talk()
    talk.say(380, 1)
    talk.wait(3_500)
    assert one(talk.chunk(final=True)).reason is FinalizeReason.MANUAL


# --- playing --------------------------------------------------------------------------------------


def test_defect_08_no_pause_counts_while_the_client_plays() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.play(True)
    assert talk.wait(20_000) == []
    assert talk.say(500, 2) == [], "nor a gap"
    talk.wait(20_000)
    talk.play(False)
    assert talk.wait(3_149) == []
    assert one(talk.wait(1)).audio == A + B


def test_defect_08_pause_is_measured_from_the_end_of_playing() -> None:
    talk = Talk()
    talk.say(500, 1, client=0)
    talk.play(True)
    talk.wait(10_000)
    talk.play(False)
    talk.wait(3_000)
    assert talk.say(500, 2, client=13_000) == []
    talk.play(True)
    talk.play(False)
    talk.wait(3_001)
    assert one(talk.say(500, 3, client=16_001)).audio == A + B


def test_playing_is_bounded_in_time() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.play(True)
    assert talk.wait(63_149) == []
    assert one(talk.wait(1)).reason is FinalizeReason.TIMEOUT


def test_end_of_playing_without_its_start_restarts_the_pause() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.wait(2_000)
    talk.play(False)
    assert talk.wait(3_149) == [] and one(talk.wait(1)).audio == A


def test_speech_while_playing_is_finalized_by_client_and_length() -> None:
    talk = Talk(max_duration_ms=1_000)
    talk.play(True)
    talk.say(500, 1)
    talk.say(500, 2)
    talk.say(500, 3, final=True)
    assert [cut.reason for cut in talk.cuts] == [FinalizeReason.MAX_DURATION, FinalizeReason.MANUAL]


# --- coming back ----------------------------------------------------------------------------------


def test_network_outage_is_no_pause_for_a_client_that_reattaches() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.now += 30_000
    talk.segments.on_resumed(talk.now)
    assert talk.tick() == [] and talk.say(500, 2) == []


def test_pause_while_detached_counts_by_the_client_clock() -> None:
    talk = Talk()
    talk.say(500, 1, client=0)
    talk.now += 30_000
    talk.segments.on_resumed(talk.now)
    assert talk.say(500, 2, client=100) == []
    assert one(talk.say(500, 3, client=5_000)).audio == A + B


def test_session_resumed_at_another_edge_continues_its_numbering() -> None:
    segments = Segmenter("s-1", "pcm16", 16_000, LIMITS, next_index=7, next_seq=40)
    assert (segments.next_index, segments.next_seq, segments.next_due_ms) == (7, 40, None)
    assert segments.on_chunk(Chunk(39, A, True, None), 0) == [] and segments.counts[ChunkAnomaly.DUPLICATE] == 1
    started, cut = segments.on_chunk(Chunk(40, B, True, None), 0)
    assert started == SegmentStarted(7) and isinstance(cut, Segment)
    assert (cut.index, cut.audio, cut.turn_id, cut.first_seq) == (7, B, "turn_s-1_7", 40)
    assert (segments.next_index, segments.next_seq) == (8, 41)


# --- each utterance for itself --------------------------------------------------------------------


def test_defect_07_first_time_is_that_of_each_utterance() -> None:
    talk = Talk()
    talk.say(500, 1, client=10_000)
    talk.now += 100
    talk.say(500, 2, final=True, client=10_100)
    talk.now += 900
    talk.chunk(client=10_900)
    talk.say(500, 3, client=11_000)
    talk.say(500, 4, final=True)
    talk.say(500, 5, final=True)
    assert [cut.first_client_ms for cut in talk.cuts] == [10_000, 11_000, None]
    assert [cut.began_ms for cut in talk.cuts] == [1_000_000, 1_001_000, 1_001_000]
    assert [(cut.first_seq, cut.last_seq) for cut in talk.cuts] == [(0, 1), (3, 4), (5, 5)]


def test_buffered_audio_has_a_due_time_and_moves_the_expected_seq() -> None:
    talk = Talk()
    assert talk.segments.next_seq is None and talk.segments.next_due_ms is None
    talk.say(500, 1)
    assert talk.segments.next_due_ms is not None and talk.segments.next_seq == 1
    talk.chunk(B, seq=2)
    assert talk.segments.next_seq == 1, "an early chunk does not move it"
    talk.chunk(final=True)
    assert talk.segments.next_due_ms is not None, "a final chunk and one after it"


# --- malformed audio ------------------------------------------------------------------------------


@pytest.mark.parametrize(("audio_format", "bad"), [("pcm16", b"odd"), ("opus", b"\x09\x00torn")])
def test_defect_07_malformed_audio_is_refused_and_only_its_seq_counts(audio_format: str, bad: bytes) -> None:
    talk = Talk(audio_format)
    talk.say(500, 1)
    with pytest.raises(PeerError) as caught:
        talk.chunk(bad, final=True)
    assert caught.value.code is ErrorCode.INVALID_AUDIO
    assert talk.segments.next_seq == 2 and talk.cuts == []
    assert one(talk.say(500, 2, final=True)).audio == sound(500, 1, audio_format) + sound(500, 2, audio_format)
    assert talk.segments.counts[ChunkAnomaly.GAP] == 0


def test_malformed_chunk_releases_early_chunks() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.chunk(B, seq=2, final=True)
    with pytest.raises(PeerError):
        talk.chunk(b"odd", seq=1)
    assert talk.segments.next_due_ms == talk.now
    assert one(talk.tick()).audio == A + B and talk.segments.next_due_ms is None


def test_effects_of_a_malformed_chunk_are_returned_by_the_next_call() -> None:
    for comes_next in (lambda talk: talk.say(500, 3), lambda talk: talk.chunk(A, seq=0), Talk.close):
        talk = Talk()
        talk.say(500, 1)
        talk.chunk(B, seq=2, final=True)
        with pytest.raises(PeerError):
            talk.chunk(b"odd", seq=1)
        talk.seq = 3
        assert one(comes_next(talk)[:1]).audio == A + B


def test_malformed_early_chunk_fills_its_seq() -> None:
    talk = Talk()
    talk.say(500, 1)
    with pytest.raises(PeerError):
        talk.chunk(b"odd", seq=2)
    talk.chunk(C, seq=3)
    talk.chunk(B, seq=1)
    assert one(talk.close()).audio == A + B + C and talk.segments.counts[ChunkAnomaly.GAP] == 0


def test_duplicate_is_dropped_before_its_audio_is_measured() -> None:
    talk = Talk()
    talk.say(500, 1)
    assert talk.chunk(b"odd", seq=0) == [] and talk.segments.counts[ChunkAnomaly.DUPLICATE] == 1
