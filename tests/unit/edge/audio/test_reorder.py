"""Chunks out of order: late, early, duplicate, missing and renumbered; and the utterances made of them."""

from __future__ import annotations

from collections import Counter

import pytest

from edge.audio.core.reorder import DUPLICATES_WINDOW, Arrived, Chunk, ChunkReorder, client_gap_ms
from edge.audio.core.segment import FinalizeReason, Segment, SegmentStarted
from mesh.words import ChunkAnomaly
from tests.support.builders.segments import Talk, sound

A, B, C, D = (sound(500, mark) for mark in (1, 2, 3, 4))


def order(
    next_seq: int | None = None, early_max: int = 4, early_bytes_max: int = 1_000, renumbers: bool = True
) -> ChunkReorder:
    return ChunkReorder(
        Counter(),
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


def counted(own: ChunkReorder) -> dict[ChunkAnomaly, int]:
    return own._counts


# --- sorting --------------------------------------------------------------------------------------


def test_chunks_in_order_are_released_at_once() -> None:
    own = order()
    assert [put(own, seq) for seq in (5, 6, 7)] == [[5], [6], [7]]
    assert own.next_seq == 8 and own.due_ms is None and counted(own) == {}


def test_early_chunk_waits_for_missing_ones() -> None:
    own = order(next_seq=0)
    assert put(own, 2, 1) == [] and len(own) == 2 and own.early_bytes == 4
    assert put(own, 0) == [0, 1, 2]
    assert own.due_ms is None and len(own) == 0 and counted(own) == {}


def test_missing_chunks_are_abandoned_after_the_hangover_and_counted() -> None:
    own = order(next_seq=0)
    put(own, 2, at_ms=100)
    put(own, 3, at_ms=180)
    assert own.due_ms == 250 and given_up(own, 249) == []
    assert given_up(own, 250) == [2, 3] and own._counts[ChunkAnomaly.GAP] == 2
    assert put(own, 1) == [] and own._counts[ChunkAnomaly.DUPLICATE] == 1, "too late"
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


def test_early_final_chunk_sets_the_manual_hangover() -> None:
    own = order(next_seq=0)
    put(own, 1, at_ms=0)
    put(own, 2, at_ms=100, final=True)
    put(own, 3, at_ms=110)
    put(own, 4, at_ms=120, final=True)
    assert own.due_ms == 300, "200 ms after the first of them"
    assert given_up(own, 300) == [1, 2, 3, 4]


def test_duplicate_is_dropped_and_counted_whether_released_or_early() -> None:
    own = order(next_seq=0)
    assert put(own, 0, 0, 2, 2, 1, 1, 2) == [0, 1, 2]
    assert own._counts[ChunkAnomaly.DUPLICATE] == 4


def test_early_chunks_are_bounded_in_number() -> None:
    own = order(next_seq=0, early_max=4)
    assert put(own, 4, 3, 2, 1) == [] and len(own) == 4
    assert put(own, 5) == [1, 2, 3, 4, 5], "one further ahead than the bound is a new place"
    assert counted(own) == {"gap": 1, "restart": 1} and own.due_ms is None


def test_early_chunks_are_bounded_in_bytes() -> None:
    own = order(next_seq=0, early_bytes_max=5)
    assert put(own, 1, 3) == [] and own.early_bytes == 4
    assert put(own, 4) == [1] and own.early_bytes == 4, "only as much is given up as must be"
    assert own._counts[ChunkAnomaly.GAP] == 1 and own.next_seq == 2


def test_jump_releases_early_chunks() -> None:
    own = order(next_seq=0)
    put(own, 2)
    assert put(own, 1_000_000) == [2, 1_000_000]
    assert own.next_seq == 1_000_001 and counted(own) == {"gap": 2, "restart": 1}


def test_seq_far_behind_is_a_new_numbering() -> None:
    own = order(next_seq=1_000)
    assert put(own, 1_000 - DUPLICATES_WINDOW) == [] and counted(own) == {"duplicate": 1}
    put(own, 1_002)
    assert put(own, 1_000 - DUPLICATES_WINDOW - 1) == [1_002, 1_000 - DUPLICATES_WINDOW - 1]
    assert own.next_seq == 1_000 - DUPLICATES_WINDOW and counted(own) == {"duplicate": 1, "gap": 2, "restart": 1}


@pytest.mark.parametrize("first", [0, 1])
def test_client_may_restart_its_numbering_after_a_final_chunk(first: int) -> None:
    own = order()
    put(own, first, first + 1)
    put(own, first + 2, final=True)
    assert put(own, first, first + 1, first + 2) == [first, first + 1, first + 2]
    assert counted(own) == {"restart": 1}


@pytest.mark.parametrize("seq", [0, 1, 2])
def test_low_seq_without_a_final_chunk_before_it_is_a_duplicate(seq: int) -> None:
    own = order()
    put(own, 0, 1, 2)
    assert put(own, seq) == [] and own._counts[ChunkAnomaly.DUPLICATE] == 1


def test_final_chunk_sent_twice_is_a_duplicate() -> None:
    own = order()
    put(own, 0)
    put(own, 1, final=True)
    assert put(own, 1, final=True) == [] and counted(own) == {"duplicate": 1}


@pytest.mark.parametrize(("client_ms", "is_repeat"), [(4_900, True), (5_000, True), (5_001, False), (None, False)])
def test_client_clock_distinguishes_duplicate_from_new_numbering(client_ms: int | None, is_repeat: bool) -> None:
    own = order()
    put(own, 0, 1)
    own.put(Arrived(Chunk(2, b"", True, 5_000), 0, 0))
    assert own.drops(Chunk(0, b"xy", False, client_ms)) is is_repeat


def test_client_may_restart_its_numbering_while_its_final_chunk_is_early() -> None:
    own = order(next_seq=5)
    put(own, 7, final=True)
    assert put(own, 0) == [7, 0] and counted(own) == {"gap": 2, "restart": 1}


def test_low_seq_behind_a_final_chunk_that_is_not_the_newest_is_a_duplicate() -> None:
    own = order(next_seq=5)
    put(own, 5, final=True)
    put(own, 7)
    assert put(own, 0) == [] and own._counts[ChunkAnomaly.DUPLICATE] == 1


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
def test_gap_of_a_client_clock_that_wraps_around(before: int | None, after: int | None, gap: int | None) -> None:
    assert client_gap_ms(before, after) == gap


# --- what that does to utterances -----------------------------------------------------------------


def test_defect_07_chunks_are_reordered_by_seq() -> None:
    talk = Talk()
    talk.say(500, 1)
    assert talk.chunk(C, seq=2) == [] and talk.chunk(B, seq=1) == []
    talk.chunk(final=True, seq=3)
    assert talk.heard == [A + B + C]


def test_final_chunk_waits_for_missing_chunks_within_the_hangover() -> None:
    talk = Talk(seq=10)
    talk.say(500, 1)
    assert talk.chunk(C, seq=12, final=True) == []
    assert talk.wait(199) == []
    (cut,) = talk.wait(1)
    assert isinstance(cut, Segment) and (cut.audio, cut.reason, cut.last_seq) == (A + C, FinalizeReason.MANUAL, 12)
    assert talk.segments.counts[ChunkAnomaly.GAP] == 1
    assert talk.chunk(B, seq=11) == [] and talk.segments.next_due_ms is None, "too late"


def test_utterance_is_finalized_when_the_last_missing_chunk_arrives() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.chunk(C, seq=2, final=True)
    talk.wait(100)
    (cut,) = talk.chunk(B, seq=1)
    assert isinstance(cut, Segment) and cut.audio == A + B + C


def test_defect_05_early_final_chunk_does_not_block_later_chunks() -> None:
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


def test_defect_05_final_chunk_in_order_finalizes_at_once() -> None:
    talk = Talk()
    talk.say(500, 1)
    assert [type(each) for each in talk.chunk(final=True)] == [Segment]
    assert talk.segments.next_due_ms is None


def test_no_timeout_while_early_chunks_wait() -> None:
    talk = Talk(hangover_auto_ms=1_000)
    talk.say(500, 1, client=0)
    talk.now += 3_990
    talk.chunk(C, seq=2, client=300)
    assert talk.wait(900) == []
    talk.chunk(B, seq=1, client=100)
    assert talk.close()[0] == talk.cuts[0] and talk.heard == [A + B + C]


def test_silence_before_an_early_chunk_ends_at_its_arrival() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.now += 2_990
    talk.chunk(C, seq=2)
    assert talk.wait(150) == [] and talk.segments.next_seq == 3
    assert talk.segments.next_due_ms == talk.now - 150 + 3_150


def test_timeout_is_measured_from_the_latest_arrival() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.wait(100)
    talk.chunk(C, seq=2)
    talk.wait(40)
    talk.chunk(B, seq=1)
    assert talk.segments.next_due_ms == talk.now + 3_150


def test_early_chunks_do_not_wait_without_a_hangover() -> None:
    talk = Talk(hangover_auto_ms=0, hangover_manual_ms=0)
    talk.say(500, 1)
    assert talk.chunk(C, seq=2) == [] and talk.segments.next_seq == 3
    (cut,) = talk.chunk(final=True, seq=5)
    assert isinstance(cut, Segment) and cut.audio == A + C and talk.segments.counts[ChunkAnomaly.GAP] == 3


def test_close_finalizes_early_chunks() -> None:
    talk = Talk()
    talk.say(500, 1)
    talk.chunk(B, seq=2, final=True)
    talk.chunk(C, seq=4)
    talk.close()
    assert talk.heard == [A + B, C]
    assert [cut.reason for cut in talk.cuts] == [FinalizeReason.MANUAL, FinalizeReason.CLOSE]


def test_numbering_that_restarts_for_each_utterance_is_accepted() -> None:
    talk = Talk()
    for _ in range(3):
        talk.chunk(A, seq=0)
        talk.chunk(B, seq=1)
        talk.chunk(final=True, seq=2)
    assert talk.heard == [A + B] * 3 and talk.segments.counts[ChunkAnomaly.RESTART] == 2


def test_numbering_that_restarts_after_a_final_chunk_with_audio_is_accepted() -> None:
    talk = Talk()
    for _ in range(3):
        talk.chunk(A, seq=1)
        talk.chunk(B, seq=2, final=True)
    assert talk.heard == [A + B] * 3 and talk.segments.counts[ChunkAnomaly.DUPLICATE] == 0


def test_chunks_resent_after_their_utterance_was_finalized_are_dropped() -> None:
    talk = Talk()
    talk.chunk(A, seq=0, client=100)
    talk.chunk(B, seq=1, client=200, final=True)
    talk.chunk(A, seq=0, client=100)
    talk.chunk(B, seq=1, client=200, final=True)
    talk.chunk(C, seq=2, client=300, final=True)
    assert talk.heard == [A + B, C] and talk.segments.counts[ChunkAnomaly.DUPLICATE] == 2


# --- clients that resume --------------------------------------------------------------------------


def test_resuming_client_never_restarts_its_numbering() -> None:
    own = order(next_seq=0, renumbers=False)
    assert put(own, *range(400)) == list(range(400)) and put(own, 400, final=True) == [400]
    assert put(own, 0, 1, 5, 399, 400) == [], "whatever is lower came before"
    assert counted(own) == {"duplicate": 5} and put(own, 401) == [401]


def test_early_chunks_are_dropped_when_the_client_resends_them() -> None:
    own = order(next_seq=0)
    assert put(own, 1, 2) == [] and own.due_ms is not None
    own.forget_early()
    own.check()
    assert own.due_ms is None and len(own) == 0 and put(own, 0, 1, 2) == [0, 1, 2] and counted(own) == {}
