from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.frames import (
    BROKER,
    FRAME_VERSION,
    Beat,
    Bounce,
    BrokerBeat,
    Busy,
    Head,
    Lane,
    NodeStale,
    Placed,
    decode_frame,
    decode_head,
    encode,
)
from mesh.frames.packets import encode_table, read_opened
from tests.support.builders.broker import (
    CONTROL,
    EDGE,
    EDGE_B,
    LIMITS,
    PUSH,
    SELECTOR,
    WALL_MS,
    WALL_US,
    WORK,
    Bench,
    frames_to,
    message,
    names,
    two_selectors,
)

BOUNCE = {reason: Bounce(reason) for reason in ("unroutable", "queue_full", "expired", "no_selector")}
BUSY = Busy(LIMITS.busy_retry_ms)


# --- admission --------------------------------------------------------------------------------------


def test_first_message_of_a_peer_is_answered_by_a_beat() -> None:
    bench = Bench()
    out = bench.front(message(EDGE, BROKER, Beat("edge", 0, 0)))
    assert [(name, type(frame)) for name, frame in frames_to(out)] == [(EDGE, BrokerBeat)]
    assert bench.front(message(EDGE, BROKER, Beat("edge", 0, 0))) == []


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([EDGE.encode()], "malformed"),
        ([EDGE.encode(), encode(WORK)], "malformed"),
        ([EDGE.encode(), b"\xc1", encode(WORK)], "malformed"),
        ([EDGE.encode(), b"", b""], "malformed"),
        ([EDGE.encode(), encode([FRAME_VERSION, [[7, "", 0, EDGE, 0, 0, 0, 0, [], []]]])], "malformed"),
        ([EDGE.encode(), encode([FRAME_VERSION + 1, []])], "version"),
        ([EDGE.encode(), encode([1, 0, "", 0, EDGE, 0, 0]), encode(WORK)], "version"),
        (message("edge:" + "x" * 200, "", WORK), "malformed"),
        ([b"edge:thief:1", *message(EDGE, "", WORK)[1:]], "source"),
        ([b"\xff\xfe", *message(EDGE, "", WORK)[1:]], "source"),
        (message(BROKER, "", WORK), "source"),
    ],
)
def test_inadmissible_message_is_dropped_and_counted(parts: list[bytes], reason: str) -> None:
    bench = Bench()
    assert bench.front(parts) == []
    assert bench.switch.counts.dropped == {reason: 1}
    assert not bench.switch.directory.peers


def test_message_with_the_source_of_another_peer_is_dropped() -> None:
    bench = Bench()
    bench.edge(EDGE)
    bench.edge(EDGE_B)
    assert bench.front([EDGE.encode(), *message(EDGE_B, "", WORK)[1:]]) == []
    assert bench.switch.counts.dropped["source"] == 1


def test_identity_of_the_other_side_is_dropped() -> None:
    bench = Bench()
    bench.edge()
    assert bench.back(message(EDGE, "", WORK)) == []
    assert bench.switch.counts.dropped["source"] == 1


def test_peers_beyond_the_limit_are_dropped_and_counted() -> None:
    bench = Bench()
    for number in range(LIMITS.peers_max + 3):
        bench.front(message(f"edge:{number}:1", BROKER, Beat("edge", 0, 0)))
    assert len(bench.switch.directory.peers) == LIMITS.peers_max
    assert bench.switch.counts.dropped["too_many_peers"] == 3


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6))
def test_arbitrary_bytes_keep_the_invariants(parts: list[bytes]) -> None:
    bench = Bench()
    bench.edge()
    bench.front([EDGE.encode(), *parts])


# --- routing ----------------------------------------------------------------------------------------


def test_work_goes_to_the_first_selector_of_its_cell_with_frame_and_payload_untouched() -> None:
    bench = Bench()
    bench.edge()
    first, _ = two_selectors(bench)
    sent = message(EDGE, "", WORK, bytes(LIMITS.inline_bytes_max), b"small", b"")
    (envelope,) = bench.front(list(sent))
    assert envelope.receiver is bench.peer(first)
    assert [encode_table([envelope.entry]), *(envelope.blobs or [])] == sent[1:]


def test_work_spills_to_the_next_selector_and_then_is_refused_as_busy() -> None:
    bench = Bench()
    bench.edge()
    first, second = two_selectors(bench, window=2)
    out = bench.front(*[message(EDGE, "", WORK) for _ in range(5)])
    assert names(out) == [first, first, second, second, EDGE]
    assert frames_to(out)[-1] == (EDGE, BUSY)
    assert bench.switch.counts.spilled == 2


def test_reply_carries_the_original_head_and_frame() -> None:
    bench = Bench()
    bench.edge()
    (envelope,) = bench.front(message(EDGE, "edge:nobody:1", WORK, b"audio", deadline_ms=WALL_MS))
    (bounce,), _ = read_opened(encode_table([envelope.entry]))
    head, frame = bounce.payload
    assert head is not None and frame is not None
    assert decode_head(head) == Head(WORK.lane, "edge:nobody:1", 3, EDGE, WALL_US, WALL_MS)
    assert decode_frame(frame) == WORK


def test_reply_to_a_large_frame_has_it_as_a_blob() -> None:
    bench = Bench()
    bench.edge()
    frame = NodeStale("n", 1, "x" * LIMITS.inline_bytes_max)
    (envelope,) = bench.front(message(EDGE, "edge:nobody:1", frame))
    assert envelope.blobs is not None
    assert [decode_frame(blob) for blob in envelope.blobs] == [frame]
    assert envelope.entry.blobs == 1


def test_control_needs_no_credit_and_is_served_first() -> None:
    bench = Bench()
    bench.edge()
    bench.selector(window=1)
    out = bench.front(message(EDGE, "", WORK), message(EDGE, "", WORK), message(EDGE, "", CONTROL))
    assert frames_to(out) == [(SELECTOR, CONTROL), (SELECTOR, WORK), (EDGE, BUSY)]


@pytest.mark.parametrize(
    ("source", "to"), [(EDGE, EDGE_B), (EDGE, SELECTOR), (SELECTOR, EDGE), (SELECTOR, SELECTOR), (EDGE, EDGE)]
)
def test_addressed_message_is_sent_to_a_peer_of_either_side(source: str, to: str) -> None:
    bench = Bench()
    bench.edge(EDGE)
    bench.edge(EDGE_B)
    bench.selector(window=0)
    send = bench.back if source == SELECTOR else bench.front
    assert frames_to(send(message(source, to, PUSH))) == [(to, PUSH)]


@pytest.mark.parametrize(
    ("to", "deadline_ms", "reason"),
    [("", 0, "no_selector"), ("edge:nobody:1", 0, "unroutable"), ("", WALL_MS - 1, "expired")],
)
@pytest.mark.parametrize("frame", [WORK, CONTROL])
def test_undeliverable_message_is_bounced_to_its_sender(to: str, deadline_ms: int, reason: str, frame: object) -> None:
    bench = Bench()
    bench.edge()
    out = bench.front(message(EDGE, to, frame, deadline_ms=deadline_ms))  # type: ignore[arg-type]
    assert frames_to(out) == [(EDGE, BOUNCE[reason])]
    assert bench.switch.counts.bounced == {reason: 1}


def test_message_before_its_deadline_is_not_bounced() -> None:
    bench = Bench()
    bench.edge()
    bench.selector()
    assert names(bench.front(message(EDGE, "", WORK, deadline_ms=WALL_MS))) == [SELECTOR]


def test_control_is_sent_and_work_refused_when_all_selectors_drain() -> None:
    bench = Bench()
    bench.edge()
    bench.selector(draining=True)
    out = bench.front(message(EDGE, "", WORK), message(EDGE, "", CONTROL))
    assert frames_to(out) == [(SELECTOR, CONTROL), (EDGE, BUSY)]


# --- time -------------------------------------------------------------------------------------------


def test_silent_selector_is_removed_and_its_cells_move() -> None:
    bench = Bench()
    bench.edge()
    first, second = two_selectors(bench)
    for _ in range(3):
        bench.now_ms += LIMITS.beat_ms
        bench.front(message(EDGE, BROKER, Beat("edge", 0, 0)))
        bench.beat(second, 2)
        bench.switch.tick(bench.now_ms)
        bench.switch.check()
    assert first not in bench.switch.directory.by_name
    assert names(bench.front(message(EDGE, "", WORK))) == [second]


def test_any_message_renews_the_liveness_of_a_peer() -> None:
    bench = Bench()
    bench.edge()
    for _ in range(6):
        bench.now_ms += LIMITS.beat_ms
        bench.front(message(EDGE, "edge:nobody:1", CONTROL))
        bench.switch.tick(bench.now_ms)
    assert EDGE in bench.switch.directory.by_name


def test_stall_of_the_broker_does_not_count_as_silence_of_peers() -> None:
    bench = Bench()
    bench.edge()
    bench.switch.tick(bench.now_ms + 10 * LIMITS.dead_ms)
    assert EDGE in bench.switch.directory.by_name


def test_tick_does_nothing_before_it_is_due() -> None:
    bench = Bench()
    bench.edge()
    assert bench.switch.tick(bench.switch.next_due_ms - 1) == []


# --- full pipes and lost peers ------------------------------------------------------------------------


def test_work_for_a_full_pipe_is_sent_to_another_selector() -> None:
    bench = Bench()
    bench.edge()
    first, second = two_selectors(bench)
    (envelope,) = bench.front(message(EDGE, "", WORK))
    assert names(bench.switch.on_pipe_full(envelope)) == [second]
    bench.switch.check()
    assert bench.peer(first).credit() == 2
    assert bench.peer(second).credit() == 1


def test_work_is_queued_with_its_credit_when_every_pipe_is_full() -> None:
    bench = Bench()
    bench.edge()
    peer = bench.selector(window=2)
    (envelope,) = bench.front(message(EDGE, "", WORK))
    assert bench.switch.on_pipe_full(envelope) == []
    bench.switch.check()
    assert (peer.queues.depth(Lane.WORK), peer.credit()) == (1, 1)
    assert bench.switch.flush(peer, WALL_US) == ([envelope], [])
    assert bench.switch.flush(peer, WALL_US) == ([], [])
    bench.switch.check()
    assert (peer.blocked, peer.credit(), peer.window.outstanding()) == (False, 1, 1)


def test_control_overtakes_queued_work() -> None:
    bench = Bench()
    bench.edge(EDGE)
    stuck = bench.edge(EDGE_B)
    (first,) = bench.front(message(EDGE, EDGE_B, PUSH))
    bench.switch.on_pipe_full(first)
    placed = Placed("r", 1, "j", "n", "s", 0)
    assert bench.front(message(EDGE, EDGE_B, PUSH), message(EDGE, EDGE_B, placed)) == []
    assert [type(frame) for _, frame in frames_to(bench.switch.flush(stuck, WALL_US)[0])] == [
        type(placed),
        *[type(PUSH)] * 2,
    ]


def test_failed_flush_keeps_the_order() -> None:
    bench = Bench()
    bench.edge(EDGE)
    stuck = bench.edge(EDGE_B)
    bench.switch.directory.block(stuck)
    bench.front(message(EDGE, EDGE_B, PUSH, b"1"), message(EDGE, EDGE_B, PUSH, b"2"), message(EDGE, EDGE_B, CONTROL))
    before, _ = bench.switch.flush(stuck, WALL_US)
    bench.switch.put_back(before)
    bench.switch.check()
    assert stuck.blocked
    after, _ = bench.switch.flush(stuck, WALL_US)
    assert [decode_frame(one.entry.frame) for one in after] == [CONTROL, PUSH, PUSH]
    assert list(map(id, after)) == list(map(id, before))


def test_message_for_a_full_queue_is_bounced() -> None:
    bench = Bench()
    bench.edge(EDGE)
    bench.switch.directory.block(bench.edge(EDGE_B))
    out = bench.front(*[message(EDGE, EDGE_B, PUSH) for _ in range(LIMITS.queue_max + 1)])
    assert frames_to(out) == [(EDGE, BOUNCE["queue_full"])]


def test_queued_message_that_expired_is_bounced_at_the_flush() -> None:
    bench = Bench()
    bench.edge(EDGE)
    stuck = bench.edge(EDGE_B)
    bench.switch.directory.block(stuck)
    bench.front(message(EDGE, EDGE_B, PUSH, deadline_ms=WALL_MS + 5))
    batch, expired = bench.switch.flush(stuck, WALL_US + 6_000)
    assert not batch
    assert frames_to(bench.switch.expire(expired)) == [(EDGE, BOUNCE["expired"])]
    bench.switch.check()


def test_beats_are_never_queued() -> None:
    bench = Bench()
    peer = bench.edge()
    (beat,) = bench.switch.tick(bench.now_ms + LIMITS.beat_ms)
    assert bench.switch.on_pipe_full(beat) == []
    assert not len(peer.queues)


def test_replies_to_a_blocked_sender_are_queued_then_dropped_and_counted() -> None:
    bench = Bench()
    peer = bench.edge()
    bench.switch.directory.block(peer)
    bench.front(*[message(EDGE, "edge:nobody:1", NodeStale("n", 1, "x")) for _ in range(LIMITS.queue_max + 2)])
    assert peer.queues.depth(Lane.CONTROL) == LIMITS.queue_max
    assert bench.switch.counts.dropped == {"queue_full": 2}


def test_unreachable_peer_is_removed_and_its_work_rerouted() -> None:
    bench = Bench()
    bench.edge()
    first, second = two_selectors(bench)
    envelopes = bench.front(message(EDGE, "", WORK), message(EDGE, first, PUSH))
    assert names(envelopes) == [first, first]
    out = [new for envelope in envelopes for new in bench.switch.on_unreachable(envelope)]
    bench.switch.check()
    assert frames_to(out) == [(second, WORK), (EDGE, BOUNCE["unroutable"])]
    assert first not in bench.switch.directory.by_name


def test_work_of_the_last_unreachable_selector_is_bounced() -> None:
    bench = Bench()
    bench.edge()
    bench.selector()
    (envelope,) = bench.front(message(EDGE, "", WORK))
    assert frames_to(bench.switch.on_unreachable(envelope)) == [(EDGE, BOUNCE["no_selector"])]


def test_reply_to_a_removed_sender_is_dropped_and_counted() -> None:
    bench = Bench()
    bench.edge()
    (bounce,) = bench.front(message(EDGE, "edge:nobody:1", WORK))
    assert bench.switch.on_unreachable(bounce) == []
    assert bench.switch.counts.dropped == {"unroutable": 1}


def test_check_detects_a_lost_message() -> None:
    bench = Bench()
    bench.edge(EDGE)
    peer = bench.edge(EDGE_B)
    bench.switch.directory.block(peer)
    bench.front(message(EDGE, EDGE_B, PUSH))
    peer.queues.pop()
    with pytest.raises(AssertionError, match="1 frames neither sent"):
        bench.switch.check()
