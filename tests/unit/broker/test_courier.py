from __future__ import annotations

from typing import Any

from broker.core.courier import Courier, Outcome
from broker.core.credit import Peer
from mesh.frames import Bounce, Busy
from mesh.frames.packets import open_payload, read_opened
from tests.support.builders.broker import (
    CONTROL,
    EDGE,
    EDGE_B,
    LIMITS,
    PUSH,
    SELECTOR,
    WALL_US,
    WORK,
    Bench,
    message,
    packet,
)


class Sockets:
    """Pipes that are full or gone by name; remembers what went through."""

    def __init__(self) -> None:
        self.outcome: dict[str, Outcome] = {}
        self.sent: list[tuple[str, object]] = []
        self.packets: list[tuple[str, list[tuple[object, object]]]] = []

    def __call__(self, peer: Peer, table: bytes, blobs: list[Any]) -> Outcome:
        outcome = self.outcome.get(peer.name, Outcome.SENT)
        if outcome is Outcome.SENT:
            entries, malformed = read_opened(table)
            assert not malformed
            self.packets.append((peer.name, [(entry.frame, open_payload(entry, [table, *blobs])) for entry in entries]))
            self.sent += [(peer.name, entry.frame) for entry in entries]
        return outcome


def test_full_pipe_is_tried_once_and_no_message_overtakes() -> None:
    bench, sockets = Bench(), Sockets()
    courier = Courier(bench.switch, sockets)
    bench.edge(EDGE)
    bench.edge(EDGE_B)
    sockets.outcome[EDGE_B] = Outcome.PIPE_FULL
    courier.send_all(bench.front(message(EDGE, EDGE_B, PUSH), message(EDGE, EDGE_B, PUSH)))
    assert sockets.sent == []
    courier.flush(WALL_US)
    assert len(bench.peer(EDGE_B).queues) == 2
    del sockets.outcome[EDGE_B]
    courier.flush(WALL_US)
    assert sockets.sent == [(EDGE_B, PUSH)] * 2
    bench.switch.check()


def test_work_for_unreachable_selectors_is_rerouted_until_it_bounces() -> None:
    bench, sockets = Bench(), Sockets()
    courier = Courier(bench.switch, sockets)
    bench.edge()
    for number in range(3):
        bench.selector(f"selector:s{number}:1")
        sockets.outcome[f"selector:s{number}:1"] = Outcome.UNREACHABLE
    courier.send_all(bench.front(message(EDGE, "", WORK)))
    assert sockets.sent == [(EDGE, Bounce("no_selector"))]
    assert set(bench.switch.directory.by_name) == {EDGE}
    bench.switch.check()


def test_work_is_refused_when_all_selectors_are_blocked_and_their_queues_full() -> None:
    bench, sockets = Bench(), Sockets()
    courier = Courier(bench.switch, sockets)
    bench.edge()
    for name in ("selector:a:1", "selector:b:1"):
        bench.selector(name, window=2)
        sockets.outcome[name] = Outcome.PIPE_FULL
    courier.send_all(bench.front(*[message(EDGE, "", WORK) for _ in range(6)]))
    assert [type(frame) for _, frame in sockets.sent] == [Busy, Busy]
    bench.switch.check()


def test_messages_of_a_peer_lost_during_its_flush_are_redirected() -> None:
    bench, sockets = Bench(), Sockets()
    courier = Courier(bench.switch, sockets)
    bench.edge(EDGE)
    bench.switch.directory.block(bench.edge(EDGE_B))
    courier.send_all(bench.front(message(EDGE, EDGE_B, PUSH), message(EDGE, EDGE_B, PUSH, deadline_ms=1)))
    sockets.outcome[EDGE_B] = Outcome.UNREACHABLE
    courier.flush(WALL_US)
    assert sockets.sent == [(EDGE, Bounce("expired")), (EDGE, Bounce("unroutable"))]
    bench.switch.check()


def test_frames_of_all_packets_of_one_pass_are_one_packet_for_each_receiver() -> None:
    bench, sockets = Bench(), Sockets()
    courier = Courier(bench.switch, sockets)
    for name in (EDGE, EDGE_B):
        bench.edge(name)
    bench.selector(window=9)
    audio = b"a" * LIMITS.inline_bytes_max
    courier.send_all(
        bench.front(
            packet(message(EDGE, "", WORK, audio + b"1", b"small"), message(EDGE, EDGE_B, PUSH, audio + b"2")),
            packet(message(EDGE_B, "", CONTROL), message(EDGE_B, "", WORK, audio + b"3")),
        )
    )
    assert sorted(sockets.packets) == [
        (EDGE_B, [(PUSH, [audio + b"2"])]),
        (SELECTOR, [(CONTROL, []), (WORK, [audio + b"1", b"small"]), (WORK, [audio + b"3"])]),
    ]
    counts = bench.switch.counts
    assert (sum(counts.frames_out), counts.packets_out) == (4, 2)
    assert counts.bytes_out > 3 * len(audio)


def test_packet_is_cut_at_its_bounds() -> None:
    bench, sockets = Bench(), Sockets()
    courier = Courier(bench.switch, sockets)
    bench.edge(EDGE)
    bench.edge(EDGE_B)
    count = 2 * LIMITS.batch_frames_max + 1
    courier.send_all(bench.front(*[message(EDGE, EDGE_B, PUSH) for _ in range(count)]))
    assert [len(frames) for _, frames in sockets.packets] == [LIMITS.batch_frames_max] * 2 + [1]
    sockets.packets.clear()
    half, whole = bytes(LIMITS.batch_bytes_max // 2), bytes(LIMITS.batch_bytes_max)
    courier.send_all(bench.front(*[message(EDGE, EDGE_B, PUSH, part) for part in (half, half, whole, b"", b"")]))
    assert [len(frames) for _, frames in sockets.packets] == [1, 1, 1, 2]


def test_flush_sends_packets_within_the_bounds_and_puts_back_the_one_that_fails() -> None:
    bench, sockets = Bench(LIMITS._replace(batch_frames_max=3)), Sockets()
    courier = Courier(bench.switch, sockets)
    bench.edge(EDGE)
    stuck = bench.edge(EDGE_B)
    bench.switch.directory.block(stuck)
    bench.front(*[message(EDGE, EDGE_B, PUSH, b"%d" % number) for number in range(4)], message(EDGE, EDGE_B, CONTROL))
    sockets.outcome[EDGE_B] = Outcome.PIPE_FULL
    courier.flush(WALL_US)
    bench.switch.check()
    assert (stuck.blocked, len(stuck.queues)) == (True, 5)
    del sockets.outcome[EDGE_B]
    courier.flush(WALL_US)
    bench.switch.check()
    assert sockets.packets == [
        (EDGE_B, [(CONTROL, []), (PUSH, [b"0"]), (PUSH, [b"1"])]),
        (EDGE_B, [(PUSH, [b"2"]), (PUSH, [b"3"])]),
    ]
    assert not stuck.blocked


def test_queued_frame_does_not_keep_its_packet_in_memory() -> None:
    bench = Bench()
    bench.edge(EDGE)
    stuck = bench.edge(EDGE_B)
    bench.switch.directory.block(stuck)
    table = bytearray(message(EDGE, EDGE_B, PUSH)[1])
    bench.front([EDGE.encode(), table])
    table.extend(b"a buffer with a view cannot be resized")
    assert len(stuck.queues) == 1
