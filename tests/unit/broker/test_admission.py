from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.admission import IDENTITY_BYTES_MAX, Admission, Dropped
from broker.core.counts import Counts
from broker.core.credit import Side
from broker.core.directory import Directory
from broker.core.queues import Envelope
from mesh.frames import BROKER, FRAME_VERSION, PACKET_FRAMES_MAX, PAYLOAD_PARTS_MAX, Lane, encode
from tests.support.builders.broker import EDGE, WORK, message, packet
from tests.support.builders.packets import MALFORMED, RawEntry, with_entry


def entry(number: int = 0, source: str = EDGE, lane: int = 1) -> RawEntry:
    return [lane, "", number, source, 0, 0, 0, 0, msgspec.Raw(b"\x90"), []]


def parts_of(entries: list[Any], *blobs: bytes, identity: str = EDGE) -> list[bytes]:
    return [identity.encode(), encode([FRAME_VERSION, entries]), *blobs]


class Gate:
    """An admission with its directory."""

    def __init__(self) -> None:
        self.directory = Directory(cells=16, peers_max=8, queue_max=4, queue_bytes_max=1_000, connection_start=7)
        self.greeted: list[str] = []
        self.counts = Counts()
        self.admission = Admission(self.directory, self.counts, lambda peer, out: self.greeted.append(peer.name))

    def admit(self, parts: list[Any]) -> list[Envelope]:
        return self.admission.admit(Side.FRONT, parts, 0, 0, [])


def test_valid_heads_are_decoded_and_frames_and_payloads_are_not() -> None:
    no_frame = encode(["no frame at all", b"\xff"])
    gate = Gate()
    (one, other) = gate.admit(
        parts_of([entry(4), [0, "x", 5, EDGE, 6, 7, 1, 2, msgspec.Raw(no_frame), 8]], b"a", b"b", b"c")
    )
    assert (one.entry.cell, one.entry.lane, one.blobs) == (4, Lane.WORK, None)
    found = other.entry
    assert (found.lane, found.to, found.cell, found.sent_us, found.deadline_ms) == (Lane.CONTROL, "x", 5, 6, 7)
    assert bytes(found.frame) == no_frame
    assert other.blobs == [b"b", b"c"]
    assert (gate.counts.frames_in, gate.counts.packets_in) == ([1, 1], 1)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([], "malformed"),
        ([EDGE.encode()], "malformed"),
        ([b"", b"\x93\x01", b""], "malformed"),
        ([b"", encode([FRAME_VERSION, 1, "", 0, b"\xff", 0]), b""], "malformed"),
        ([b"", b"\x92\x02\x91" + b"\x91" * 100_000], "malformed"),
        (parts_of([entry()] * (PACKET_FRAMES_MAX + 1)), "malformed"),
        ([b"", encode([FRAME_VERSION + 1, "anything"])], "version"),
        ([b"", encode([0, [entry()]])], "version"),
    ],
)
def test_packet_that_is_no_table_is_dropped_with_its_reason(parts: list[bytes], reason: str) -> None:
    gate = Gate()
    with pytest.raises(Dropped) as dropped:
        gate.admit(parts)
    assert not gate.directory.peers
    assert (dropped.value.reason, dropped.value.frames) == (reason, 1)


def test_message_of_version_1_is_refused_and_its_sender_named_once() -> None:
    gate = Gate()
    for _ in range(3):
        with pytest.raises(Dropped) as dropped:
            gate.admit([EDGE.encode(), encode([1, 0, "@broker", 0, EDGE, 5, 0]), encode(["Beat", "edge", 0, 0, False])])
        assert dropped.value.reason == "version"
    assert gate.directory.changes == [("peer_refused", EDGE, f"frame version 1, expected {FRAME_VERSION}")]


@given(st.lists(st.binary(max_size=80), max_size=20))
def test_arbitrary_bytes_are_decoded_or_dropped(parts: list[bytes]) -> None:
    gate = Gate()
    try:
        gate.admit(parts)
    except Dropped as dropped:
        assert dropped.reason in ("malformed", "version", "source")
        assert not gate.directory.peers


@given(st.integers(0, 999), MALFORMED)
def test_one_malformed_entry_of_a_thousand_costs_its_own_frame_alone(place: int, broken: RawEntry) -> None:
    gate = Gate()
    entries = [entry(number) for number in range(1_000)]
    admitted = gate.admit(parts_of(with_entry(entries, place, broken)))
    assert [one.entry.cell for one in admitted] == [number for number in range(1_000) if number != place]
    assert gate.counts.dropped.total() == 1


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ([1, "", 0, "edge:other:1", 0, 0, 0, 0, [], []], "source"),
        ([1, "", 0, EDGE, 0, 0, 1, 2, [], []], "malformed"),
        ([1, "", 0, EDGE, 0, 0, 9, 1, [], []], "malformed"),
        ([1, "", 0, EDGE, 0, 0, 0, PAYLOAD_PARTS_MAX + 1, [], []], "malformed"),
        ([2, "", 0, EDGE, 0, 0, 0, 0, [], []], "malformed"),
    ],
)
def test_nonsense_in_one_head_leaves_the_blobs_of_the_others_in_place(broken: RawEntry, reason: str) -> None:
    gate = Gate()
    first, last = entry(1), entry(2)
    first[6:8], last[6:8] = [0, 1], [1, 1]
    admitted = gate.admit(parts_of([first, broken, last], b"first", b"last"))
    assert [one.blobs for one in admitted] == [[b"first"], [b"last"]]
    assert +gate.counts.dropped == {reason: 1}


@pytest.mark.parametrize(
    ("identity", "source", "reason"),
    [
        (b"edge:b:1", EDGE, "source"),
        (b"\x00auto", EDGE, "source"),
        (b"", "", "source"),
        (BROKER.encode(), BROKER, "source"),
        (b"\xff", "\ufffd", "malformed"),
        (b"e" * (IDENTITY_BYTES_MAX + 1), "e" * (IDENTITY_BYTES_MAX + 1), "malformed"),
    ],
)
def test_new_peer_with_a_wrong_source_is_dropped(identity: bytes, source: str, reason: str) -> None:
    gate = Gate()
    with pytest.raises(Dropped) as dropped:
        gate.admit([identity, encode([FRAME_VERSION, [entry(source=source)] * 2])])
    assert not gate.greeted
    assert (dropped.value.reason, dropped.value.frames) == (reason, 2)


def test_new_peer_with_a_matching_source_is_greeted_once() -> None:
    gate = Gate()
    for _ in range(2):
        gate.admit(packet(message(EDGE, "", WORK), message(EDGE, "", WORK)))
    assert gate.greeted == [EDGE]
