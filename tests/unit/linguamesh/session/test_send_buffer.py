"""What a session keeps and sends, and under which numbers: one case after another."""

from __future__ import annotations

from linguamesh.session.messages import utterance
from linguamesh.session.send_buffer import (
    AHEAD_MAX,
    CHUNKS_RECENT_MAX,
    PIECE_BYTES,
    Chunk,
    Piece,
    SendBuffer,
    Sent,
    Whole,
)


def speech(*, keeps: bool = True, kept_bytes_max: int = 1_000_000) -> SendBuffer:
    """An open session that nothing was said in."""
    new = SendBuffer(kept_bytes_max)
    new.keeps = keeps
    new.connected(resumed=False)
    return new


def piece(audio: bytes, *, is_final: bool = False, ms: int = 100) -> Piece:
    return Piece(audio, ms, is_final, timestamp_ms=7)


FINAL = Piece(b"", 0, True, 8)


def whole() -> Whole:
    return Whole(utterance(b"\1\0", "pcm16", 16_000, "en", "es", {}))


def sent(core: SendBuffer, join_ms: int = 0) -> list[Sent]:
    """Everything that may be sent now."""
    items: list[Sent] = []
    while (item := core.take(0, join_ms)) is not None:
        items.append(item)
        core.check()
    return items


def seqs(items: list[Sent]) -> list[int]:
    return [item.seq for item in items if isinstance(item, Chunk)]


def wires(items: list[Sent]) -> list[int]:
    return [item.wire_index for item in items if isinstance(item, Whole)]


def say(core: SendBuffer, *items: Piece | Whole) -> list[Sent]:
    for item in items:
        core.add(item)
    return sent(core)


def cut_and_back(core: SendBuffer, *, resumed: bool = True, resend_from_seq: int | None = None) -> list[Sent]:
    """The connection is lost and comes back; what is sent on it."""
    core.disconnected()
    assert core.take(0) is None
    core.connected(resumed=resumed, resend_from_seq=resend_from_seq)
    core.check()
    return sent(core)


def test_pieces_are_numbered_as_they_are_sent_and_sent_once() -> None:
    core = speech()
    chunks = say(core, piece(b"aa"), piece(b"bb"), FINAL)
    assert [(c.seq, c.piece.audio, c.piece.is_final) for c in chunks if isinstance(c, Chunk)] == [
        (0, b"aa", False),
        (1, b"bb", False),
        (2, b"", True),
    ]
    assert core.is_said and sent(core) == []


def test_chunks_are_kept_until_their_utterance_has_ended() -> None:
    core = speech()
    say(core, piece(b"aa"), FINAL, piece(b"bb"))
    assert core.kept_bytes == 4 + 3 * PIECE_BYTES
    assert core.ended(0, 1) == 0
    assert core.kept_bytes == 2 + PIECE_BYTES
    assert (core.last_index, core.last_seq) == (0, 1)
    assert core.ended(0, 1) is None  # a repeat
    assert core.ended(1, 2) == 1
    assert core.kept_bytes == 0
    core.check()


def test_an_end_that_comes_early_frees_nothing_of_the_utterances_before_it() -> None:
    core = speech()
    say(core, piece(b"aa"), piece(b"bb"))
    assert core.ended(1, 1) == 1
    assert (core.last_index, core.last_seq, core.kept_bytes) == (-1, -1, 4 + 2 * PIECE_BYTES)
    assert core.ended(1, 1) is None
    assert core.ended(0, 0) == 0
    assert (core.last_index, core.last_seq, core.kept_bytes) == (1, 1, 0)
    core.check()


def test_a_resumed_connection_gets_what_the_mesh_asks_for_and_the_rest() -> None:
    core = speech()
    first = say(core, piece(b"aa"), piece(b"bb"), piece(b"cc"))
    core.add(piece(b"dd"))
    again = cut_and_back(core, resend_from_seq=1)
    assert seqs(again) == [1, 2, 3]
    assert again[:2] == first[1:], "the same chunks, with the same times"
    assert seqs(cut_and_back(core, resend_from_seq=9)) == []
    core.ended(0, 1)
    assert seqs(cut_and_back(core)) == [2, 3], "without a word of the mesh: all that has not ended"


def test_whole_utterances_that_have_not_ended_are_sent_again() -> None:
    core = speech()
    first, second = whole(), whole()
    assert wires(say(core, first, second)) == [0, 1]
    core.ended(0, None)
    assert cut_and_back(core) == [second]
    assert cut_and_back(core) == [second]


def test_whole_utterances_and_streamed_audio_take_turns() -> None:
    core = speech()
    assert seqs(say(core, piece(b"aa"), FINAL, whole(), whole(), piece(b"bb"))) == [0, 1]
    core.ended(0, 1)
    assert wires(sent(core)) == [1, 2]
    core.ended(1, None)
    assert sent(core) == []
    core.ended(2, None)
    assert seqs(sent(core)) == [2]


def test_an_end_without_sound_holds_no_whole_utterance_up() -> None:
    core = speech()
    items = say(core, FINAL, whole())
    assert (seqs(items), wires(items)) == ([0], [0])


def test_what_the_mesh_refused_is_sent_again_and_first() -> None:
    core = speech()
    say(core, piece(b"aa"), piece(b"bb"))
    core.add(piece(b"cc"))
    assert core.refused_chunk(1) and core.refused_chunk(0) and core.refused_chunk(1)
    assert seqs(sent(core)) == [0, 1, 2]
    core.ended(0, 2)
    assert not core.refused_chunk(1), "it has ended all the same"
    say(core, whole(), whole())
    core.add(whole())
    assert core.refused_whole(2) and core.refused_whole(1)
    assert wires(sent(core)) == [1, 2, 3]


def test_what_was_refused_is_not_sent_twice_when_the_connection_is_lost_too() -> None:
    core = speech()
    say(core, piece(b"aa"))
    core.refused_chunk(0)
    assert seqs(cut_and_back(core, resend_from_seq=0)) == [0]


def test_a_new_session_numbers_anew_and_the_user_does_not_notice() -> None:
    core = speech()
    say(core, piece(b"aa"), FINAL)
    assert core.ended(0, 1) == 0
    say(core, piece(b"bb"), FINAL, piece(b"cc"))
    items = cut_and_back(core, resumed=False)
    assert [(c.seq, c.piece.audio) for c in items if isinstance(c, Chunk)] == [(0, b"bb"), (1, b""), (2, b"cc")]
    assert (core.last_index, core.last_seq) == (-1, -1)
    assert core.ended(0, 1) == 1
    assert core.ended(1, 2) == 2
    assert core.kept_bytes == 0


def test_whole_utterances_keep_their_index_in_a_new_session() -> None:
    core = speech()
    wholes = [whole() for _ in range(4)]
    say(core, *wholes)
    assert core.ended(0, None) == 0
    assert core.failed(2) == 2
    items = cut_and_back(core, resumed=False)
    assert [(w.wire_index, w.index) for w in items if isinstance(w, Whole)] == [(0, 1), (1, 3)]
    assert wires(say(core, whole())) == [2]
    assert [core.ended(number, None) for number in range(3)] == [1, 3, 4]
    core.check()


def test_one_that_nobody_waits_for_leaves_no_gap_in_a_new_session() -> None:
    core = speech()
    before, first, second = whole(), whole(), whole()
    say(core, before, first, second)
    core.withdraw(before)
    core.disconnected()
    core.connected(resumed=False)
    core.withdraw(first)
    assert wires(sent(core)) == [0]
    assert (second.index, core.ended(0, None)) == (2, 2)
    assert seqs(say(core, piece(b"aa"))) == [0]
    assert core.ended(1, 0) == 3
    core.check()


def test_one_that_nobody_waits_for_holds_its_number_while_the_mesh_may_have_it() -> None:
    core = speech()
    given_up = whole()
    say(core, given_up, piece(b"aa"))
    core.withdraw(given_up)
    assert sent(core) == [] and cut_and_back(core) == [given_up]
    core.ended(0, None)
    assert seqs(sent(core)) == [0]


def test_the_number_of_one_that_the_mesh_did_not_want_is_used_again() -> None:
    core = speech()
    say(core, *(whole() for _ in range(4)))
    assert core.failed(1, taken=False) == 1
    assert core.failed(3, taken=False) == 3
    assert core.failed(2, taken=False) == 2
    core.check()
    (fresh,) = say(core, whole())
    assert isinstance(fresh, Whole) and (fresh.wire_index, fresh.index) == (1, 4)
    assert [core.ended(0, None), core.ended(1, None)] == [0, 4]
    core.check()


def test_an_edge_that_knows_nothing_of_a_failure_uses_its_number_again() -> None:
    core = speech()
    say(core, whole(), whole())
    assert core.failed(1) == 1
    core.add(piece(b"aa"))
    core.ended(0, None)
    core.disconnected()
    core.connected(resumed=True, resend_from_seq=0, next_wire_index=1)
    assert seqs(sent(core)) == [0]
    assert core.ended(1, 0) == 2, "what was streamed has an index of its own"
    core.check()


def test_one_that_nobody_waits_for_is_not_sent_and_has_no_number() -> None:
    core = speech()
    core.disconnected()
    given_up, kept = whole(), whole()
    core.add(given_up)
    core.add(kept)
    core.withdraw(given_up)
    core.connected(resumed=True)
    assert (sent(core), kept.index) == ([kept], 0)
    core.withdraw(given_up)
    core.check()


def test_only_the_latest_chunks_are_kept_for_a_mesh_that_tells_no_ends() -> None:
    core = speech(keeps=False)
    say(core, *(piece(b"%d" % number) for number in range(CHUNKS_RECENT_MAX + 5)))
    assert not core.refused_chunk(4) and core.refused_chunk(5)
    assert seqs(sent(core)) == [5]


def test_a_mesh_that_tells_no_ends_is_not_waited_for() -> None:
    core = speech(keeps=False)
    given_up = whole()
    say(core, given_up, whole())
    core.withdraw(given_up)
    assert core.failed(1) == 1
    assert (core.last_index, core.kept_bytes) == (1, 0)


def test_pieces_are_joined_up_to_a_length_and_never_over_an_end() -> None:
    core = speech()
    for one in (piece(b"a"), piece(b"b"), piece(b"c"), FINAL, piece(b"d")):
        core.add(one)
    chunks = [item for item in sent(core, join_ms=200) if isinstance(item, Chunk)]
    assert [(c.piece.audio, c.piece.ms, c.piece.is_final) for c in chunks] == [
        (b"ab", 200, False),
        (b"c", 100, True),
        (b"d", 100, False),
    ]
    assert core.kept_bytes == 4 + 3 * PIECE_BYTES


def test_there_is_room_until_the_bound_and_for_one_thing_that_is_larger() -> None:
    core = speech(kept_bytes_max=2 * PIECE_BYTES + 10)
    assert core.has_room(10_000)
    core.add(piece(b"aa"))
    assert core.has_room(PIECE_BYTES + 8) and not core.has_room(PIECE_BYTES + 9)
    sent(core)
    assert not core.has_room(PIECE_BYTES + 9)
    core.ended(0, 0)
    assert core.has_room(10_000)


def test_indices_that_the_mesh_lost_end_when_a_later_one_does() -> None:
    core = speech()
    say(core, piece(b"aa"), FINAL, piece(b"bb"), FINAL, piece(b"cc"), FINAL)
    assert core.lost_before(0) == []
    assert core.lost_before(2) == [0, 1]
    assert core.kept_bytes > 0, "whose chunks were lost is only known by the end of the next one"
    assert core.ended(2, 5) == 2
    assert core.kept_bytes == 0


def test_an_end_that_is_absurdly_far_ahead_is_dropped() -> None:
    core = speech()
    assert core.ended(AHEAD_MAX, None) is None
    assert core.ended(AHEAD_MAX - 1, None) == AHEAD_MAX - 1
    assert core.lost_before(10**12) == []
    core.check()


def test_the_time_of_an_utterance_is_that_of_its_last_chunk() -> None:
    core = speech()
    core.add(piece(b"aa"))
    core.take(100)
    core.add(FINAL)
    core.take(250)
    assert core.sent_ms(0, 1) == 250 and core.sent_ms(0, None) is None
    core.add(whole())
    core.ended(0, 1)
    core.take(300)
    assert core.sent_ms(1, None) == 300
