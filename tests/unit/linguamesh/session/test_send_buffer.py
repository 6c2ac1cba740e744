"""The send buffer: order, numbers, retries and capacity, case by case."""

from __future__ import annotations

from linguamesh.session.messages import utterance
from linguamesh.session.send_buffer import (
    CHUNKS_RECENT_MAX,
    EARLY_MAX,
    ITEM_OVERHEAD_BYTES,
    Chunk,
    Piece,
    Sendable,
    SendBuffer,
    WholeUtterance,
)


def open_buffer(*, is_resumable: bool = True, bytes_max: int = 1_000_000) -> SendBuffer:
    """The buffer of an open session, empty."""
    new = SendBuffer(bytes_max)
    new.is_resumable = is_resumable
    new.on_restarted()
    return new


def piece(audio: bytes, *, is_final: bool = False, ms: int = 100) -> Piece:
    return Piece(audio, ms, is_final, timestamp_ms=7)


FINAL = Piece(b"", 0, True, 8)


def whole() -> WholeUtterance:
    return WholeUtterance(utterance("pcm16", 16_000, "en", "es", {}), b"\1\0")


def take_all(buffer: SendBuffer, join_ms: int = 0) -> list[Sendable]:
    """All items that are due."""
    items: list[Sendable] = []
    while (item := buffer.take_due(0, join_ms)) is not None:
        items.append(item)
        buffer.check()
    return items


def seqs(items: list[Sendable]) -> list[int]:
    return [item.seq for item in items if isinstance(item, Chunk)]


def wires(items: list[Sendable]) -> list[int]:
    return [item.wire_index for item in items if isinstance(item, WholeUtterance)]


def add_and_send(buffer: SendBuffer, *items: Piece | WholeUtterance) -> list[Sendable]:
    for item in items:
        buffer.add(item)
    return take_all(buffer)


def reconnect(buffer: SendBuffer, *, resumed: bool = True, resend_from_seq: int | None = None) -> list[Sendable]:
    """The connection is lost and a new one opens; the items sent on it."""
    buffer.suspend()
    assert buffer.take_due(0) is None
    if resumed:
        buffer.on_resumed(resend_from_seq)
    else:
        buffer.on_restarted()
    buffer.check()
    return take_all(buffer)


def test_pieces_are_numbered_when_sent_and_sent_once() -> None:
    buffer = open_buffer()
    chunks = add_and_send(buffer, piece(b"aa"), piece(b"bb"), FINAL)
    assert [(c.seq, c.piece.audio, c.piece.is_final) for c in chunks if isinstance(c, Chunk)] == [
        (0, b"aa", False),
        (1, b"bb", False),
        (2, b"", True),
    ]
    assert buffer.is_all_sent and take_all(buffer) == []


def test_chunks_are_kept_until_their_utterance_has_ended() -> None:
    buffer = open_buffer()
    add_and_send(buffer, piece(b"aa"), FINAL, piece(b"bb"))
    assert buffer.used_bytes == 4 + 3 * ITEM_OVERHEAD_BYTES
    assert buffer.acknowledge(0, 1) == 0
    assert buffer.used_bytes == 2 + ITEM_OVERHEAD_BYTES
    assert (buffer.last_index, buffer.last_seq) == (0, 1)
    assert buffer.acknowledge(0, 1) is None  # a duplicate
    assert buffer.acknowledge(1, 2) == 1
    assert buffer.used_bytes == 0
    buffer.check()


def test_utterance_that_ends_early_frees_no_chunks_of_earlier_ones() -> None:
    buffer = open_buffer()
    add_and_send(buffer, piece(b"aa"), piece(b"bb"))
    assert buffer.acknowledge(1, 1) == 1
    assert (buffer.last_index, buffer.last_seq, buffer.used_bytes) == (-1, -1, 4 + 2 * ITEM_OVERHEAD_BYTES)
    assert buffer.acknowledge(1, 1) is None
    assert buffer.acknowledge(0, 0) == 0
    assert (buffer.last_index, buffer.last_seq, buffer.used_bytes) == (1, 1, 0)
    buffer.check()


def test_resume_retries_chunks_from_the_requested_seq() -> None:
    buffer = open_buffer()
    first = add_and_send(buffer, piece(b"aa"), piece(b"bb"), piece(b"cc"))
    buffer.add(piece(b"dd"))
    again = reconnect(buffer, resend_from_seq=1)
    assert seqs(again) == [1, 2, 3]
    assert again[:2] == first[1:], "the same chunks, with the same times"
    assert seqs(reconnect(buffer, resend_from_seq=9)) == []
    buffer.acknowledge(0, 1)
    assert seqs(reconnect(buffer)) == [2, 3], "without resend_from_seq: all pending chunks"


def test_resume_retries_pending_whole_utterances() -> None:
    buffer = open_buffer()
    first, second = whole(), whole()
    assert wires(add_and_send(buffer, first, second)) == [0, 1]
    buffer.acknowledge(0, None)
    assert reconnect(buffer) == [second]
    assert reconnect(buffer) == [second]


def test_whole_utterances_and_streamed_audio_take_turns() -> None:
    buffer = open_buffer()
    assert seqs(add_and_send(buffer, piece(b"aa"), FINAL, whole(), whole(), piece(b"bb"))) == [0, 1]
    buffer.acknowledge(0, 1)
    assert wires(take_all(buffer)) == [1, 2]
    buffer.acknowledge(1, None)
    assert take_all(buffer) == []
    buffer.acknowledge(2, None)
    assert seqs(take_all(buffer)) == [2]


def test_final_piece_without_audio_does_not_block_a_whole_utterance() -> None:
    buffer = open_buffer()
    items = add_and_send(buffer, FINAL, whole())
    assert (seqs(items), wires(items)) == ([0], [0])


def test_rejected_items_are_retried_first() -> None:
    buffer = open_buffer()
    add_and_send(buffer, piece(b"aa"), piece(b"bb"))
    buffer.add(piece(b"cc"))
    assert buffer.on_rejected(seq=1) and buffer.on_rejected(seq=0) and buffer.on_rejected(seq=1)
    assert seqs(take_all(buffer)) == [0, 1, 2]
    buffer.acknowledge(0, 2)
    assert not buffer.on_rejected(seq=1), "it has ended meanwhile"
    add_and_send(buffer, whole(), whole())
    buffer.add(whole())
    assert buffer.on_rejected(wire_index=2) and buffer.on_rejected(wire_index=1)
    assert wires(take_all(buffer)) == [1, 2, 3]


def test_rejected_chunk_is_retried_once_after_a_reconnect() -> None:
    buffer = open_buffer()
    add_and_send(buffer, piece(b"aa"))
    buffer.on_rejected(seq=0)
    assert seqs(reconnect(buffer, resend_from_seq=0)) == [0]


def test_restart_numbers_from_zero_and_continues_user_indices() -> None:
    buffer = open_buffer()
    add_and_send(buffer, piece(b"aa"), FINAL)
    assert buffer.acknowledge(0, 1) == 0
    add_and_send(buffer, piece(b"bb"), FINAL, piece(b"cc"))
    items = reconnect(buffer, resumed=False)
    assert [(c.seq, c.piece.audio) for c in items if isinstance(c, Chunk)] == [(0, b"bb"), (1, b""), (2, b"cc")]
    assert (buffer.last_index, buffer.last_seq) == (-1, -1)
    assert buffer.acknowledge(0, 1) == 1
    assert buffer.acknowledge(1, 2) == 2
    assert buffer.used_bytes == 0


def test_restart_keeps_indices_of_whole_utterances() -> None:
    buffer = open_buffer()
    wholes = [whole() for _ in range(4)]
    add_and_send(buffer, *wholes)
    assert buffer.acknowledge(0, None) == 0
    assert buffer.on_failed(2) == 2
    items = reconnect(buffer, resumed=False)
    assert [(w.wire_index, w.index) for w in items if isinstance(w, WholeUtterance)] == [(0, 1), (1, 3)]
    assert wires(add_and_send(buffer, whole())) == [2]
    assert [buffer.acknowledge(number, None) for number in range(3)] == [1, 3, 4]
    buffer.check()


def test_restart_leaves_no_gap_for_a_cancelled_utterance() -> None:
    buffer = open_buffer()
    before, first, second = whole(), whole(), whole()
    add_and_send(buffer, before, first, second)
    buffer.cancel(before)
    buffer.suspend()
    buffer.on_restarted()
    buffer.cancel(first)
    assert wires(take_all(buffer)) == [0]
    assert (second.index, buffer.acknowledge(0, None)) == (2, 2)
    assert seqs(add_and_send(buffer, piece(b"aa"))) == [0]
    assert buffer.acknowledge(1, 0) == 3
    buffer.check()


def test_cancelled_utterance_keeps_its_number_while_the_mesh_may_have_it() -> None:
    buffer = open_buffer()
    cancelled = whole()
    add_and_send(buffer, cancelled, piece(b"aa"))
    buffer.cancel(cancelled)
    assert take_all(buffer) == [] and reconnect(buffer) == [cancelled]
    buffer.acknowledge(0, None)
    assert seqs(take_all(buffer)) == [0]


def test_number_of_an_unaccepted_utterance_is_reused() -> None:
    buffer = open_buffer()
    add_and_send(buffer, *(whole() for _ in range(4)))
    assert buffer.on_failed(1, accepted=False) == 1
    assert buffer.on_failed(3, accepted=False) == 3
    assert buffer.on_failed(2, accepted=False) == 2
    buffer.check()
    (fresh,) = add_and_send(buffer, whole())
    assert isinstance(fresh, WholeUtterance) and (fresh.wire_index, fresh.index) == (1, 4)
    assert [buffer.acknowledge(0, None), buffer.acknowledge(1, None)] == [0, 4]
    buffer.check()


def test_resume_at_an_edge_without_the_failure_reuses_its_number() -> None:
    buffer = open_buffer()
    add_and_send(buffer, whole(), whole())
    assert buffer.on_failed(1) == 1
    buffer.add(piece(b"aa"))
    buffer.acknowledge(0, None)
    buffer.suspend()
    buffer.on_resumed(resend_from_seq=0, next_wire_index=1)
    assert seqs(take_all(buffer)) == [0]
    assert buffer.acknowledge(1, 0) == 2, "the streamed utterance has an index of its own"
    buffer.check()


def test_utterance_cancelled_in_the_queue_is_not_sent_and_has_no_number() -> None:
    buffer = open_buffer()
    buffer.suspend()
    cancelled, kept = whole(), whole()
    buffer.add(cancelled)
    buffer.add(kept)
    buffer.cancel(cancelled)
    buffer.on_resumed()
    assert (take_all(buffer), kept.index) == ([kept], 0)
    buffer.cancel(cancelled)
    buffer.check()


def test_session_without_resume_keeps_only_recent_chunks() -> None:
    buffer = open_buffer(is_resumable=False)
    add_and_send(buffer, *(piece(b"%d" % number) for number in range(CHUNKS_RECENT_MAX + 5)))
    assert not buffer.on_rejected(seq=4) and buffer.on_rejected(seq=5)
    assert seqs(take_all(buffer)) == [5]


def test_session_without_resume_frees_failed_and_cancelled_utterances() -> None:
    buffer = open_buffer(is_resumable=False)
    cancelled = whole()
    add_and_send(buffer, cancelled, whole())
    buffer.cancel(cancelled)
    assert buffer.on_failed(1) == 1
    assert (buffer.last_index, buffer.used_bytes) == (1, 0)


def test_pieces_are_joined_up_to_join_ms_and_never_across_a_final() -> None:
    buffer = open_buffer()
    for one in (piece(b"a"), piece(b"b"), piece(b"c"), FINAL, piece(b"d")):
        buffer.add(one)
    chunks = [item for item in take_all(buffer, join_ms=200) if isinstance(item, Chunk)]
    assert [(c.piece.audio, c.piece.ms, c.piece.is_final) for c in chunks] == [
        (b"ab", 200, False),
        (b"c", 100, True),
        (b"d", 100, False),
    ]
    assert buffer.used_bytes == 4 + 3 * ITEM_OVERHEAD_BYTES


def test_capacity_is_bounded_and_one_oversized_item_fits_alone() -> None:
    buffer = open_buffer(bytes_max=2 * ITEM_OVERHEAD_BYTES + 10)
    assert buffer.has_capacity_for(10_000)
    buffer.add(piece(b"aa"))
    assert buffer.has_capacity_for(ITEM_OVERHEAD_BYTES + 8) and not buffer.has_capacity_for(ITEM_OVERHEAD_BYTES + 9)
    take_all(buffer)
    assert not buffer.has_capacity_for(ITEM_OVERHEAD_BYTES + 9)
    buffer.acknowledge(0, 0)
    assert buffer.has_capacity_for(10_000)


def test_lost_indices_end_when_a_later_one_does() -> None:
    buffer = open_buffer()
    add_and_send(buffer, piece(b"aa"), FINAL, piece(b"bb"), FINAL, piece(b"cc"), FINAL)
    assert buffer.acknowledge_lost_before(0) == []
    assert buffer.acknowledge_lost_before(2) == [0, 1]
    assert buffer.used_bytes > 0, "which chunks were lost is only known when the next one ends"
    assert buffer.acknowledge(2, 5) == 2
    assert buffer.used_bytes == 0


def test_index_too_far_ahead_is_ignored() -> None:
    buffer = open_buffer()
    assert buffer.acknowledge(EARLY_MAX, None) is None
    assert buffer.acknowledge(EARLY_MAX - 1, None) == EARLY_MAX - 1
    assert buffer.acknowledge_lost_before(10**12) == []
    buffer.check()


def test_sent_time_of_an_utterance_is_that_of_its_last_chunk() -> None:
    buffer = open_buffer()
    buffer.add(piece(b"aa"))
    buffer.take_due(100)
    buffer.add(FINAL)
    buffer.take_due(250)
    assert buffer.sent_ms(0, 1) == 250 and buffer.sent_ms(0, None) is None
    buffer.add(whole())
    buffer.acknowledge(0, 1)
    buffer.take_due(300)
    assert buffer.sent_ms(1, None) == 300


def test_end_utterance_adds_one_final_piece_and_none_without_audio() -> None:
    buffer = open_buffer()
    buffer.end_utterance(1)
    assert take_all(buffer) == []
    buffer.add(piece(b"aa"))
    buffer.end_utterance(2)
    buffer.end_utterance(3)
    chunks = [item for item in take_all(buffer) if isinstance(item, Chunk)]
    assert [(c.piece.audio, c.piece.is_final) for c in chunks] == [(b"aa", False), (b"", True)]


def test_restart_without_streamed_audio_resets_has_streamed() -> None:
    buffer = open_buffer()
    add_and_send(buffer, piece(b"aa"), FINAL)
    buffer.acknowledge(0, 1)
    assert buffer.has_streamed
    reconnect(buffer, resumed=False)
    assert not buffer.has_streamed
