from __future__ import annotations

import msgspec
import pytest

from broker.core.counts import Counts
from broker.core.credit import Peer, Side
from broker.core.directory import Directory, RemovalReason
from broker.core.link_frames import LinkFrames
from broker.core.queues import Envelope
from mesh.frames import (
    BROKER,
    FRAME_VERSION,
    Beat,
    Bounce,
    BrokerBeat,
    Busy,
    Credit,
    Frame,
    Goodbye,
    Head,
    Lane,
    encode,
)
from mesh.frames.packets import seal
from tests.support.builders.broker import (
    CONTROL,
    EDGE,
    LIMITS,
    PUSH,
    SELECTOR,
    WORK,
    Bench,
    frames_to,
    message,
    names,
    two_selectors,
)

BOUNCE = {reason: Bounce(reason) for reason in ("unroutable", "queue_full", "expired", "no_selector")}
BUSY = Busy(LIMITS.busy_retry_ms)


def test_selector_gets_no_work_before_it_replied_in_its_counters() -> None:
    bench = Bench()
    bench.edge()
    out = bench.back(message(SELECTOR, BROKER, Beat("selector", 5, 0)))
    assert frames_to(bench.front(message(EDGE, "", WORK))) == [(EDGE, BUSY)]
    beat = frames_to(out)[0][1]
    assert isinstance(beat, BrokerBeat)
    bench.back(message(SELECTOR, BROKER, Beat("selector", 5, beat.sent)))
    assert frames_to(bench.front(message(EDGE, "", WORK))) == [(SELECTOR, WORK)]


def test_beat_of_the_wrong_kind_removes_the_peer() -> None:
    bench = Bench()
    bench.front(message(SELECTOR, BROKER, Beat("selector", 5, 0)))
    assert not bench.switch.directory.peers


@pytest.mark.parametrize("frame", [b"\x00", b"\xc0", encode(WORK), encode(["Nonsense", 1])])
def test_message_to_the_broker_without_a_link_frame_is_dropped(frame: bytes) -> None:
    bench = Bench()
    bench.edge()
    entry = [Lane.CONTROL, BROKER, 0, EDGE, 0, 0, 0, 0, msgspec.Raw(frame), []]
    assert bench.front([EDGE.encode(), encode([FRAME_VERSION, [entry]])]) == []
    assert bench.switch.counts.dropped == {"malformed": 1}


def test_draining_selector_gets_no_new_work() -> None:
    bench = Bench()
    bench.edge()
    first, second = two_selectors(bench)
    bench.beat(first, 2, draining=True)
    assert names(bench.front(message(EDGE, "", WORK), message(EDGE, "", CONTROL))) == [second, second]


def test_consumed_work_frees_credit() -> None:
    bench = Bench()
    bench.edge()
    peer = bench.selector(window=1)
    assert names(bench.front(message(EDGE, "", WORK), message(EDGE, "", WORK))) == [SELECTOR, EDGE]
    bench.back(message(SELECTOR, BROKER, Credit(peer.window.sent)))
    assert names(bench.front(message(EDGE, "", WORK))) == [SELECTOR]


def test_beat_carries_the_sent_counter_of_each_selector() -> None:
    bench = Bench()
    bench.edge()
    peer = bench.selector(window=5)
    base = peer.window.sent
    bench.front(*[message(EDGE, "", WORK)] * 1, message(EDGE, "", WORK), message(EDGE, SELECTOR, PUSH))
    beats = dict(frames_to(bench.switch.tick(bench.now_ms + LIMITS.beat_ms)))
    assert beats[SELECTOR] == BrokerBeat("b1", "x", 1, base + 2)


def test_goodbye_removes_the_peer_and_redirects_its_queue() -> None:
    bench = Bench()
    bench.edge()
    first, second = two_selectors(bench, window=9)
    bench.switch.directory.block(bench.peer(first))
    bench.switch.directory.block(bench.peer(second))
    assert bench.front(message(EDGE, "", WORK), message(EDGE, first, PUSH)) == []
    bench.switch.directory.unblock(bench.peer(second))
    out = bench.back(message(first, BROKER, Goodbye()))
    assert frames_to(out) == [(second, WORK), (EDGE, BOUNCE["unroutable"])]


class LinkFramesBench:
    """Link frames of one selector, without a switch; removals are only noted."""

    def __init__(self) -> None:
        self.directory = Directory(cells=16, peers_max=8, queue_max=4, queue_bytes_max=1_000, connection_start=7)
        self.peer = self.directory.add(SELECTOR.encode(), Side.BACK, now_ms=0)
        self.counts = Counts()
        self.removed: list[RemovalReason] = []
        self._frames = LinkFrames(self.directory, self.counts, self._remove)

    def _remove(self, peer: Peer, reason: RemovalReason, out: list[Envelope]) -> None:
        self.removed.append(reason)

    def handle(self, frame: Frame) -> None:
        head = Head(Lane.CONTROL, BROKER, 0, SELECTOR, 0)
        self._frames.handle(Envelope(seal(head, frame), self.peer), [])


@pytest.mark.parametrize(
    ("frame", "reason"),
    [(Goodbye(), RemovalReason.GOODBYE), (Beat("edge", 5, 0), RemovalReason.WRONG_SIDE)],
)
def test_peer_is_removed_with_the_reason(frame: Frame, reason: RemovalReason) -> None:
    bench = LinkFramesBench()
    bench.handle(frame)
    assert bench.removed == [reason]
    assert bench.counts.dropped == ({"source": 1} if reason is RemovalReason.WRONG_SIDE else {})


def test_negative_window_means_no_credit() -> None:
    bench = LinkFramesBench()
    bench.handle(Beat("selector", -3, bench.peer.window.sent))
    assert (bench.peer.window.size, bench.peer.credit()) == (0, 0)


def test_link_frame_of_a_removed_peer_is_counted_and_ignored() -> None:
    bench = LinkFramesBench()
    bench.directory.remove(bench.peer, RemovalReason.SILENT)
    bench.handle(Goodbye())
    bench.handle(Beat("selector", 5, bench.peer.window.sent))
    assert (bench.removed, bench.peer.window.size, bench.counts.for_broker) == ([], 0, 2)
