"""Chunks out of order: late, early, twice, never, and numbered anew; and what that does to utterances."""

from __future__ import annotations

import pytest

from edge.audio.core.reorder import REPEATS_WINDOW, Arrived, Chunk, ChunkCounts, ChunkReorder, client_gap_ms
from edge.audio.core.segmenter import FinalizeReason, Segment, SegmentStarted
from tests.support.builders.segments import Talk, sound

A, B, C, D = (sound(500, mark) for mark in (1, 2, 3, 4))


def order(
    next_seq: int | None = None, early_max: int = 4, early_bytes_max: int = 1_000, renumbers: bool = True
) -> ChunkReorder:
    return ChunkReorder(
        ChunkCounts(),
        early_max=early_max,
        early_bytes_max=early_bytes_max,
        hangover_manual_ms=200,
        hangover_auto_ms=150,
        next_seq=next_seq,
        renumbers=renumbers,
    )


def put(own: ChunkReorder, *seqs: int, at_ms: int = 0, final: bool = False) -> list[int]:
    out: list[int] = []
    for seq in seqs:
        chunk = Chunk(seq, b"xy", final, None)
        if not own.drops(chunk):
            out += [came.chunk.seq for came in own.put(Arrived(chunk, 1, at_ms))]
        own.check()
    return out


def given_up(own: ChunkReorder, now_ms: int) -> list[int]:
    out = [came.chunk.seq for came in own.pop_due(now_ms)]
    own.check()
    return out


def counted(own: ChunkReorder) -> ChunkCounts:
    return own._counts


# --- sorting --------------------------------------------------------------------------------------


def test_chunks_in_order_are_handed_on_at_once() -> None:
    own = order()
    assert [put(own, seq) for seq in (5, 6, 7)] == [[5], [6], [7]]
    assert own.next_seq == 8 and own.due_ms is None and counted(own) == ChunkCounts()


def test_an_early_chunk_waits_for_those_between() -> None:
    own = order(next_seq=0)
    assert put(own, 2, 1) == [] and len(own) == 2 and own.held_bytes == 4
    assert put(own, 0) == [0, 1, 2]
    assert own.due_ms is None and len(own) == 0 and counted(own) == ChunkCounts()


def test_missing_chunks_are_given_up_after_the_hangover_and_counted() -> None:
    own = order(next_seq=0)
    put(own, 2, at_ms=100)
    put(own, 3, at_ms=180)
    assert own.due_ms == 250 and given_up(own, 249) == []
    assert given_up(own, 250) == [2, 3] and counted(own).gaps == 2
    assert put(own, 1) == [] and counted(own).duplicates == 1, "too late"
    assert put(own, 4) == [4]


def test_each_gap_has_its_own_hangover() -> None:
    own = order(next_seq=0)
    put(own, 1, at_ms=0)
    put(own, 3, at_ms=100)
    assert given_up(own, 150) == [1] and own.due_ms == 250
    assert put(own, 2, at_ms=200) == [2, 3]
    put(own, 5, at_ms=300)
    put(own, 7, at_ms=310)
    assert given_up(own, 460) == [5, 7], "both are due"


def test_a_final_chunk_that_waits_sets_the_hangover_of_a_cut_that_was_asked_for() -> None:
    own = order(next_seq=0)
    put(own, 1, at_ms=0)
    put(own, 2, at_ms=100, final=True)
    put(own, 3, at_ms=110)
    put(own, 4, at_ms=120, final=True)
    assert own.due_ms == 300, "200 ms after the first of them"
    assert given_up(own, 300) == [1, 2, 3, 4]


def test_a_repeat_is_dropped_and_counted_taken_or_waiting() -> None:
    own = order(next_seq=0)
    assert put(own, 0, 0, 2, 2, 1, 1, 2) == [0, 1, 2]
    assert counted(own).duplicates == 4


def test_no_more_than_the_bound_may_wait() -> None:
    own = order(next_seq=0, early_max=4)
    assert put(own, 4, 3, 2, 1) == [] and len(own) == 4
    assert put(own, 5) == [1, 2, 3, 4, 5], "one further ahead than the bound is a new place"
    assert counted(own) == ChunkCounts(gaps=1, restarts=1) and own.due_ms is None


def test_no_more_bytes_than_the_bound_may_wait() -> None:
    own = order(next_seq=0, early_bytes_max=5)
    assert put(own, 1, 3) == [] and own.held_bytes == 4
    assert put(own, 4) == [1] and own.held_bytes == 4, "only as much is given up as must be"
    assert counted(own).gaps == 1 and own.next_seq == 2


def test_a_jump_takes_what_waited_with_it() -> None:
    own = order(next_seq=0)
    put(own, 2)
    assert put(own, 1_000_000) == [2, 1_000_000]
    assert own.next_seq == 1_000_001 and counted(own) == ChunkCounts(gaps=2, restarts=1)


def test_a_seq_far_behind_is_a_new_numbering() -> None:
    own = order(next_seq=1_000)
    assert put(own, 1_000 - REPEATS_WINDOW) == [] and counted(own) == ChunkCounts(duplicates=1)
    put(own, 1_002)
    assert put(own, 1_000 - REPEATS_WINDOW - 1) == [1_002, 1_000 - REPEATS_WINDOW - 1]
    assert own.next_seq == 1_000 - REPEATS_WINDOW and counted(own) == ChunkCounts(duplicates=1, gaps=2, restarts=1)


@pytest.mark.parametrize("first", [0, 1])
def test_a_client_may_count_anew_after_each_end(first: int) -> None:
    own = order()
    put(own, first, first + 1)
    put(own, first + 2, final=True)
    assert put(own, first, first + 1, first + 2) == [first, first + 1, first + 2]
    assert counted(own) == ChunkCounts(restarts=1)


@pytest.mark.parametrize("seq", [0, 1, 2])
def test_without_an_end_before_it_a_low_seq_is_a_repeat(seq: int) -> None:
    own = order()
    put(own, 0, 1, 2)
    assert put(own, seq) == [] and counted(own).duplicates == 1


def test_the_end_itself_sent_twice_is_a_repeat() -> None:
    own = order()
    put(own, 0)
    put(own, 1, final=True)
    assert put(own, 1, final=True) == [] and counted(own) == ChunkCounts(duplicates=1)


@pytest.mark.parametrize(("client_ms", "is_repeat"), [(4_900, True), (5_000, True), (5_001, False), (None, False)])
def test_the_client_s_clock_tells_a_repeat_from_a_new_numbering(client_ms: int | None, is_repeat: bool) -> None:
    own = order()
    put(own, 0, 1)
    own.put(Arrived(Chunk(2, b"", True, 5_000), 0, 0))
    assert own.drops(Chunk(0, b"xy", False, client_ms)) is is_repeat


def test_a_client_may_count_anew_while_its_end_still_waits() -> None:
    own = order(next_seq=5)
    put(own, 7, final=True)
    assert put(own, 0) == [7, 0] and counted(own) == ChunkCounts(gaps=2, restarts=1)


def test_behind_an_end_that_is_not_the_newest_nobody_counts_anew() -> None:
    own = order(next_seq=5)
    put(own, 5, final=True)
    put(own, 7)
    assert put(own, 0) == [] and counted(own).duplicates == 1


@pytest.mark.parametrize(
    ("before", "after", "gap"),
    [
        (0, 5, 5),
        (2**32 - 1, 4, 5),
        (1_790_000_000_000, 1_790_000_000_100, 100),
        (1_790_000_000_000, (1_790_000_000_000 + 7) % 2**32, 7),
        (-3, 4, 7),
        (5, 0, None),
        (None, 0, None),
        (0, None, None),
    ],
)
def test_gaps_of_a_clock_that_comes_round(before: int | None, after: int | None, gap: int | None) -> None:
    assert client_gap_ms(before, after) == gap


# --- what that does to utterances -----------------------------------------------------------------


def test_defect_07_chunks_are_put_in_order_by_their_seq() -> None:
    talk = Talk()
    talk.say(500, 1)
    assert talk.chunk(C, seq=2) == [] and talk.chunk(B, seq=1) == []
    talk.chunk(final=True, seq=3)
    assert talk.heard == [A + B + C]


def test_an_end_waits_for_chunks_that_are_missing_and_no_longer() -> None:
    talk = Talk(seq=10)
    talk.say(500, 1)
    assert talk.chunk(C, seq=12, final=True) == []
    assert talk.wait(199) == []
    (cut,) = talk.wait(1)
    assert isinstance(cut, Segment) and (cut.audio, cut.reason, cut.last_seq) == (A + C, FinalizeReason.MANUAL, 12)
    assert talk.segments.counts.gaps == 1
    assert talk.chunk(B, seq=11) == [] and talk.segments.is_empty, "too late"


def test_an_end_is_cut_as_soon_as_all_is_there() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.chunk(C, seq=2, final=True)
    talk.wait(100)
    (cut,) = talk.chunk(B, seq=1)
    assert isinstance(cut, Segment) and cut.audio == A + B + C


def test_defect_05_an_end_that_waits_holds_up_nobody() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.chunk(C, seq=2, final=True)
    talk.wait(50)
    talk.chunk(D, seq=3)
    talk.wait(50)
    made = talk.chunk(B, seq=1)
    assert [type(each) for each in made] == [Segment, SegmentStarted] and talk.heard == [A + B + C]
    talk.chunk(final=True, seq=4)
    assert talk.heard == [A + B + C, D]
    assert talk.cuts[1].began_ms == 1_000_050, "when it came, not when its turn came"


def test_defect_05_an_end_with_all_before_it_waits_for_nothing() -> None:
    talk = Talk()
    talk.say(500, 1)
    assert [type(each) for each in talk.chunk(final=True)] == [Segment]
    assert talk.segments.next_due_ms is None


def test_no_timeout_is_called_while_something_heard_waits() -> None:
    talk = Talk(hangover_auto_ms=1_000)
    talk.say(500, 1, client=0)
    talk.now += 3_990
    talk.chunk(C, seq=2, client=300)
    assert talk.wait(900) == []
    talk.chunk(B, seq=1, client=100)
    assert talk.close()[0] == talk.cuts[0] and talk.heard == [A + B + C]


def test_the_silence_before_a_chunk_that_waited_ends_when_it_came() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.now += 2_990
    talk.chunk(C, seq=2)
    assert talk.wait(150) == [] and talk.segments.next_seq == 3
    assert talk.segments.next_due_ms == talk.now - 150 + 3_150


def test_the_timer_goes_by_what_came_last_even_if_it_was_said_earlier() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.wait(100)
    talk.chunk(C, seq=2)
    talk.wait(40)
    talk.chunk(B, seq=1)
    assert talk.segments.next_due_ms == talk.now + 3_150


def test_without_a_hangover_nobody_waits() -> None:
    talk = Talk(hangover_auto_ms=0, hangover_manual_ms=0)
    talk.say(500, 1)
    assert talk.chunk(C, seq=2) == [] and talk.segments.next_seq == 3
    (cut,) = talk.chunk(final=True, seq=5)
    assert isinstance(cut, Segment) and cut.audio == A + C and talk.segments.counts.gaps == 3


def test_closing_cuts_what_waits_for_an_earlier_chunk() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.chunk(B, seq=2, final=True)
    talk.chunk(C, seq=4)
    talk.close()
    assert talk.heard == [A + B, C]
    assert [cut.reason for cut in talk.cuts] == [FinalizeReason.MANUAL, FinalizeReason.CLOSE]


def test_a_client_that_counts_anew_for_each_utterance_is_understood() -> None:
    talk = Talk()
    for _ in range(3):
        talk.chunk(A, seq=0)
        talk.chunk(B, seq=1)
        talk.chunk(final=True, seq=2)
    assert talk.heard == [A + B] * 3 and talk.segments.counts.restarts == 2


def test_a_client_that_ended_with_audio_and_counts_anew_is_understood() -> None:
    talk = Talk()
    for _ in range(3):
        talk.chunk(A, seq=1)
        talk.chunk(B, seq=2, final=True)
    assert talk.heard == [A + B] * 3 and talk.segments.counts.duplicates == 0


def test_chunks_sent_again_after_their_utterance_was_cut_change_nothing() -> None:
    talk = Talk()
    talk.chunk(A, seq=0, client=100)
    talk.chunk(B, seq=1, client=200, final=True)
    talk.chunk(A, seq=0, client=100)
    talk.chunk(B, seq=1, client=200, final=True)
    talk.chunk(C, seq=2, client=300, final=True)
    assert talk.heard == [A + B, C] and talk.segments.counts.duplicates == 2


# --- clients that resume --------------------------------------------------------------------------


def test_a_client_that_resumes_never_counts_anew() -> None:
    own = order(next_seq=0, renumbers=False)
    assert put(own, *range(400)) == list(range(400)) and put(own, 400, final=True) == [400]
    assert put(own, 0, 1, 5, 399, 400) == [], "whatever is lower came before"
    assert counted(own) == ChunkCounts(duplicates=5) and put(own, 401) == [401]


def test_what_came_too_early_is_forgotten_when_it_comes_again() -> None:
    own = order(next_seq=0)
    assert put(own, 1, 2) == [] and own.due_ms is not None
    own.forget_early()
    own.check()
    assert own.due_ms is None and len(own) == 0 and put(own, 0, 1, 2) == [0, 1, 2] and counted(own) == ChunkCounts()
