from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.routes import rank
from mesh.frames import (
    BROKER,
    FRAME_VERSION,
    Beat,
    Bounce,
    BrokerBeat,
    Busy,
    Credit,
    Goodbye,
    Head,
    Lane,
    NodeStale,
    Placed,
    encode,
)
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
    message,
    names,
    told,
)

BOUNCE = {reason: Bounce(reason) for reason in ("unroutable", "queue_full", "expired", "no_selector")}
BUSY = Busy(LIMITS.busy_retry_ms)


def two_selectors(bench: Bench, window: int = 2) -> tuple[str, str]:
    """Two selectors, in the order of the sample's cell."""
    pair = sorted(["selector:a:1", "selector:b:1"], key=lambda name: rank(3, name), reverse=True)
    for name in pair:
        bench.selector(name, window)
    return pair[0], pair[1]


# --- meeting ----------------------------------------------------------------------------------------


def test_the_first_message_of_a_peer_is_answered_by_a_beat() -> None:
    bench = Bench()
    out = bench.front(message(EDGE, BROKER, Beat("edge", 0, 0)))
    assert [(name, type(frame)) for name, frame in told(out)] == [(EDGE, BrokerBeat)]
    assert bench.front(message(EDGE, BROKER, Beat("edge", 0, 0))) == []


def test_a_selector_gets_no_work_before_it_has_answered_in_its_counters() -> None:
    bench = Bench()
    bench.edge()
    out = bench.back(message(SELECTOR, BROKER, Beat("selector", 5, 0)))
    assert told(bench.front(message(EDGE, "", WORK))) == [(EDGE, BUSY)]
    beat = told(out)[0][1]
    assert isinstance(beat, BrokerBeat)
    bench.back(message(SELECTOR, BROKER, Beat("selector", 5, beat.sent)))
    assert told(bench.front(message(EDGE, "", WORK))) == [(SELECTOR, WORK)]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([EDGE.encode(), encode(WORK)], "malformed"),
        ([EDGE.encode(), b"\xc1", encode(WORK)], "malformed"),
        ([EDGE.encode(), b"", b""], "malformed"),
        ([EDGE.encode(), encode(Head(FRAME_VERSION, 7, "", 0, EDGE, 0)), encode(WORK)], "malformed"),
        ([EDGE.encode(), encode(Head(FRAME_VERSION + 1, 0, "", 0, EDGE, 0)), encode(WORK)], "version"),
        (message(EDGE, "", WORK, *[b"x"] * 100), "malformed"),
        (message("edge:" + "x" * 200, "", WORK), "malformed"),
        ([b"edge:thief:1", *message(EDGE, "", WORK)[1:]], "source"),
        ([b"\xff\xfe", *message(EDGE, "", WORK)[1:]], "source"),
        (message(BROKER, "", WORK), "source"),
    ],
)
def test_a_message_that_cannot_be_trusted_is_dropped_and_counted(parts: list[bytes], reason: str) -> None:
    bench = Bench()
    assert bench.front(parts) == []
    assert bench.switch.counts.dropped == {reason: 1}
    assert not bench.switch.directory.peers


def test_a_known_peer_cannot_speak_for_another() -> None:
    bench = Bench()
    bench.edge(EDGE)
    bench.edge(EDGE_B)
    assert bench.front([EDGE.encode(), *message(EDGE_B, "", WORK)[1:]]) == []
    assert bench.switch.counts.dropped["source"] == 1


def test_an_identity_is_bound_to_its_side() -> None:
    bench = Bench()
    bench.edge()
    assert bench.back(message(EDGE, "", WORK)) == []
    assert bench.switch.counts.dropped["source"] == 1


def test_a_beat_of_the_wrong_kind_makes_the_peer_forgotten() -> None:
    bench = Bench()
    bench.front(message(SELECTOR, BROKER, Beat("selector", 5, 0)))
    assert not bench.switch.directory.peers


def test_peers_beyond_the_limit_are_dropped_and_counted() -> None:
    bench = Bench()
    for number in range(LIMITS.peers_max + 3):
        bench.front(message(f"edge:{number}:1", BROKER, Beat("edge", 0, 0)))
    assert len(bench.switch.directory.peers) == LIMITS.peers_max
    assert bench.switch.counts.dropped["too_many_peers"] == 3


@pytest.mark.parametrize("frame", [b"\xc1", b"", encode(WORK), encode(["Nonsense", 1])])
def test_what_is_no_link_frame_does_the_broker_no_harm(frame: bytes) -> None:
    bench = Bench()
    bench.edge()
    head = encode(Head(FRAME_VERSION, Lane.CONTROL, BROKER, 0, EDGE, 0))
    assert bench.front([EDGE.encode(), head, frame]) == []
    assert bench.switch.counts.dropped == {"malformed": 1}


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6))
def test_random_bytes_do_no_harm(parts: list[bytes]) -> None:
    bench = Bench()
    bench.edge()
    bench.front([EDGE.encode(), *parts])


# --- routing ----------------------------------------------------------------------------------------


def test_work_goes_to_the_first_selector_of_its_cell_with_frame_and_payload_untouched() -> None:
    bench = Bench()
    bench.edge()
    first, _ = two_selectors(bench)
    sent = message(EDGE, "", WORK, b"audio", b"")
    (envelope,) = bench.front(list(sent))
    assert envelope.parts == [first.encode(), *sent[1:]]


def test_work_spills_to_the_next_selector_and_then_the_sender_hears_busy() -> None:
    bench = Bench()
    bench.edge()
    first, second = two_selectors(bench, window=2)
    out = bench.front(*[message(EDGE, "", WORK) for _ in range(5)])
    assert names(out) == [first, first, second, second, EDGE]
    assert told(out)[-1] == (EDGE, BUSY)
    assert bench.switch.counts.spilled == 2


def test_an_answer_carries_the_original_head_and_frame() -> None:
    bench = Bench()
    bench.edge()
    sent = message(EDGE, "edge:nobody:1", WORK, b"audio")
    (envelope,) = bench.front(list(sent))
    assert envelope.parts[3:] == sent[1:3]


def test_control_needs_no_credit_and_is_served_first() -> None:
    bench = Bench()
    bench.edge()
    bench.selector(window=1)
    out = bench.front(message(EDGE, "", WORK), message(EDGE, "", WORK), message(EDGE, "", CONTROL))
    assert told(out) == [(SELECTOR, CONTROL), (SELECTOR, WORK), (EDGE, BUSY)]


@pytest.mark.parametrize(
    ("source", "to"), [(EDGE, EDGE_B), (EDGE, SELECTOR), (SELECTOR, EDGE), (SELECTOR, SELECTOR), (EDGE, EDGE)]
)
def test_a_message_for_one_peer_goes_there_whatever_its_side(source: str, to: str) -> None:
    bench = Bench()
    bench.edge(EDGE)
    bench.edge(EDGE_B)
    bench.selector(window=0)
    send = bench.back if source == SELECTOR else bench.front
    assert told(send(message(source, to, PUSH))) == [(to, PUSH)]


@pytest.mark.parametrize(
    ("to", "deadline_ms", "reason"),
    [("", 0, "no_selector"), ("edge:nobody:1", 0, "unroutable"), ("", WALL_MS - 1, "expired")],
)
@pytest.mark.parametrize("frame", [WORK, CONTROL])
def test_what_cannot_be_delivered_goes_back_to_its_sender(
    to: str, deadline_ms: int, reason: str, frame: object
) -> None:
    bench = Bench()
    bench.edge()
    out = bench.front(message(EDGE, to, frame, deadline_ms=deadline_ms))  # type: ignore[arg-type]
    assert told(out) == [(EDGE, BOUNCE[reason])]
    assert bench.switch.counts.bounced == {reason: 1}


def test_a_deadline_that_has_not_passed_is_no_reason_to_bounce() -> None:
    bench = Bench()
    bench.edge()
    bench.selector()
    assert names(bench.front(message(EDGE, "", WORK, deadline_ms=WALL_MS))) == [SELECTOR]


def test_a_draining_selector_gets_no_new_work() -> None:
    bench = Bench()
    bench.edge()
    first, second = two_selectors(bench)
    bench.beat(first, 2, draining=True)
    assert names(bench.front(message(EDGE, "", WORK), message(EDGE, "", CONTROL))) == [second, second]


def test_when_all_selectors_drain_they_still_get_control_and_work_waits() -> None:
    bench = Bench()
    bench.edge()
    bench.selector(draining=True)
    out = bench.front(message(EDGE, "", WORK), message(EDGE, "", CONTROL))
    assert told(out) == [(SELECTOR, CONTROL), (EDGE, BUSY)]


# --- credit -----------------------------------------------------------------------------------------


def test_consumed_work_frees_credit() -> None:
    bench = Bench()
    bench.edge()
    peer = bench.selector(window=1)
    assert names(bench.front(message(EDGE, "", WORK), message(EDGE, "", WORK))) == [SELECTOR, EDGE]
    bench.back(message(SELECTOR, BROKER, Credit(peer.window.sent)))
    assert names(bench.front(message(EDGE, "", WORK))) == [SELECTOR]


def test_beats_tell_each_selector_how_much_it_was_sent() -> None:
    bench = Bench()
    bench.edge()
    peer = bench.selector(window=5)
    base = peer.window.sent
    bench.front(*[message(EDGE, "", WORK)] * 1, message(EDGE, "", WORK), message(EDGE, SELECTOR, PUSH))
    beats = dict(told(bench.switch.tick(bench.now_ms + LIMITS.beat_ms)))
    assert beats[SELECTOR] == BrokerBeat("b1", "x", 1, base + 2)


# --- time -------------------------------------------------------------------------------------------


def test_a_silent_selector_is_forgotten_and_its_cells_move() -> None:
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


def test_any_message_is_a_sign_of_life() -> None:
    bench = Bench()
    bench.edge()
    for _ in range(6):
        bench.now_ms += LIMITS.beat_ms
        bench.front(message(EDGE, "edge:nobody:1", CONTROL))
        bench.switch.tick(bench.now_ms)
    assert EDGE in bench.switch.directory.by_name


def test_our_own_pause_is_not_the_peers_silence() -> None:
    bench = Bench()
    bench.edge()
    bench.switch.tick(bench.now_ms + 10 * LIMITS.dead_ms)
    assert EDGE in bench.switch.directory.by_name


def test_tick_does_nothing_before_it_is_due() -> None:
    bench = Bench()
    bench.edge()
    assert bench.switch.tick(bench.switch.next_due_ms() - 1) == []


def test_goodbye_ends_it_and_moves_what_waits() -> None:
    bench = Bench()
    bench.edge()
    first, second = two_selectors(bench, window=9)
    bench.switch.directory.block(bench.peer(first))
    bench.switch.directory.block(bench.peer(second))
    assert bench.front(message(EDGE, "", WORK), message(EDGE, first, PUSH)) == []
    bench.switch.directory.unblock(bench.peer(second))
    out = bench.back(message(first, BROKER, Goodbye()))
    assert told(out) == [(second, WORK), (EDGE, BOUNCE["unroutable"])]


# --- full pipes and lost peers ------------------------------------------------------------------------


def test_work_for_a_full_pipe_goes_to_another_selector() -> None:
    bench = Bench()
    bench.edge()
    first, second = two_selectors(bench)
    (envelope,) = bench.front(message(EDGE, "", WORK))
    assert names(bench.switch.on_pipe_full(envelope)) == [second]
    bench.switch.check()
    assert bench.peer(first).credit() == 2
    assert bench.peer(second).credit() == 1


def test_with_every_pipe_full_work_waits_and_holds_its_credit() -> None:
    bench = Bench()
    bench.edge()
    peer = bench.selector(window=2)
    (envelope,) = bench.front(message(EDGE, "", WORK))
    assert bench.switch.on_pipe_full(envelope) == []
    bench.switch.check()
    assert (peer.queues.depth(Lane.WORK), peer.credit()) == (1, 1)
    (flushed,) = bench.switch.flush(peer, WALL_US)
    assert flushed is envelope
    bench.switch.check()
    assert (peer.blocked, peer.credit(), peer.window.outstanding()) == (False, 1, 1)


def test_control_overtakes_work_that_waits() -> None:
    bench = Bench()
    bench.edge(EDGE)
    stuck = bench.edge(EDGE_B)
    (first,) = bench.front(message(EDGE, EDGE_B, PUSH))
    bench.switch.on_pipe_full(first)
    placed = Placed("r", 1, "j", "n", "s", 0)
    assert bench.front(message(EDGE, EDGE_B, PUSH), message(EDGE, EDGE_B, placed)) == []
    assert [type(frame) for _, frame in told(list(bench.switch.flush(stuck, WALL_US)))] == [
        type(placed),
        *[type(PUSH)] * 2,
    ]


def test_a_flush_that_fails_keeps_the_order() -> None:
    bench = Bench()
    bench.edge(EDGE)
    stuck = bench.edge(EDGE_B)
    bench.switch.directory.block(stuck)
    bench.front(message(EDGE, EDGE_B, PUSH, b"1"), message(EDGE, EDGE_B, PUSH, b"2"))
    bench.switch.put_back(next(bench.switch.flush(stuck, WALL_US)))
    bench.switch.check()
    assert [envelope.parts[3] for envelope in bench.switch.flush(stuck, WALL_US)] == [b"1", b"2"]


def test_a_queue_that_is_full_bounces() -> None:
    bench = Bench()
    bench.edge(EDGE)
    bench.switch.directory.block(bench.edge(EDGE_B))
    out = bench.front(*[message(EDGE, EDGE_B, PUSH) for _ in range(LIMITS.queue_max + 1)])
    assert told(out) == [(EDGE, BOUNCE["queue_full"])]


def test_what_expires_while_it_waits_bounces_at_the_flush() -> None:
    bench = Bench()
    bench.edge(EDGE)
    stuck = bench.edge(EDGE_B)
    bench.switch.directory.block(stuck)
    bench.front(message(EDGE, EDGE_B, PUSH, deadline_ms=WALL_MS + 5))
    assert told(list(bench.switch.flush(stuck, WALL_US + 6_000))) == [(EDGE, BOUNCE["expired"])]
    bench.switch.check()


def test_beats_are_never_queued() -> None:
    bench = Bench()
    peer = bench.edge()
    (beat,) = bench.switch.tick(bench.now_ms + LIMITS.beat_ms)
    assert bench.switch.on_pipe_full(beat) == []
    assert not len(peer.queues)


def test_answers_for_a_full_sender_wait_and_then_are_dropped_and_counted() -> None:
    bench = Bench()
    peer = bench.edge()
    bench.switch.directory.block(peer)
    bench.front(*[message(EDGE, "edge:nobody:1", NodeStale("n", 1, "x")) for _ in range(LIMITS.queue_max + 2)])
    assert peer.queues.depth(Lane.CONTROL) == LIMITS.queue_max
    assert bench.switch.counts.dropped == {"queue_full": 2}


def test_a_peer_that_is_gone_is_forgotten_and_its_work_goes_to_the_next() -> None:
    bench = Bench()
    bench.edge()
    first, second = two_selectors(bench)
    envelopes = bench.front(message(EDGE, "", WORK), message(EDGE, first, PUSH))
    assert names(envelopes) == [first, first]
    out = [new for envelope in envelopes for new in bench.switch.on_unreachable(envelope)]
    bench.switch.check()
    assert told(out) == [(second, WORK), (EDGE, BOUNCE["unroutable"])]
    assert first not in bench.switch.directory.by_name


def test_when_the_last_selector_is_gone_its_work_bounces() -> None:
    bench = Bench()
    bench.edge()
    bench.selector()
    (envelope,) = bench.front(message(EDGE, "", WORK))
    assert told(bench.switch.on_unreachable(envelope)) == [(EDGE, BOUNCE["no_selector"])]


def test_an_answer_for_a_sender_that_is_gone_is_dropped_and_counted() -> None:
    bench = Bench()
    bench.edge()
    (bounce,) = bench.front(message(EDGE, "edge:nobody:1", WORK))
    assert bench.switch.on_unreachable(bounce) == []
    assert bench.switch.counts.dropped == {"unroutable": 1}


def test_check_notices_a_message_that_vanished() -> None:
    bench = Bench()
    bench.edge(EDGE)
    peer = bench.edge(EDGE_B)
    bench.switch.directory.block(peer)
    bench.front(message(EDGE, EDGE_B, PUSH))
    peer.queues.pop()
    with pytest.raises(AssertionError, match="1 messages neither sent"):
        bench.switch.check()
