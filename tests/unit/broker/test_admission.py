from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.admission import IDENTITY_BYTES_MAX, PARTS_MAX, Admission, Dropped
from broker.core.counts import Counts
from broker.core.credit import Side
from broker.core.directory import Directory
from broker.core.queues import Envelope
from mesh.frames import BROKER, FRAME_VERSION, Head, encode
from tests.support.builders.broker import EDGE, WORK, message


def head(source: str = EDGE, version: int = FRAME_VERSION, lane: int = 1) -> Head:
    return Head(version, lane, "", 0, source, 0)


class Gate:
    """An admission with its directory."""

    def __init__(self) -> None:
        self.directory = Directory(cells=16, peers_max=8, queue_max=4, connection_start=7)
        self.greeted: list[str] = []
        self.admission = Admission(self.directory, Counts(), lambda peer, out: self.greeted.append(peer.name))

    def admit(self, parts: list[bytes]) -> Envelope:
        return self.admission.admit(Side.FRONT, parts, 0, 0, [])


def test_valid_head_is_decoded_and_the_other_parts_are_not() -> None:
    assert Gate().admit([EDGE.encode(), encode(head()), b"\xc1 no frame at all", b"\xff"]).head == head()


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([], "malformed"),
        (message(EDGE, "", WORK)[:2], "malformed"),
        (message(EDGE, "", WORK, *[b""] * PARTS_MAX), "malformed"),
        ([b"", b"\x93\x01", b""], "malformed"),
        ([b"", encode([FRAME_VERSION, 1, "", 0, b"\xff", 0]), b""], "malformed"),
        ([b"", encode(head(version=0)), b""], "version"),
        ([b"", encode(head(lane=2)), b""], "malformed"),
        ([b"", encode(head(lane=-1)), b""], "malformed"),
    ],
)
def test_invalid_head_is_dropped_with_its_reason(parts: list[bytes], reason: str) -> None:
    gate = Gate()
    with pytest.raises(Dropped) as dropped:
        gate.admit(parts)
    assert not gate.directory.peers
    assert dropped.value.reason == reason


@given(st.lists(st.binary(max_size=80), max_size=20))
def test_arbitrary_bytes_are_decoded_or_dropped(parts: list[bytes]) -> None:
    gate = Gate()
    try:
        gate.admit(parts)
    except Dropped as dropped:
        assert dropped.reason in ("malformed", "version", "source")
        assert not gate.directory.peers


@pytest.mark.parametrize(
    ("identity", "source", "reason"),
    [
        (b"edge:b:1", EDGE, "source"),
        (b"\x00auto", EDGE, "source"),
        (b"", "", "source"),
        (BROKER.encode(), BROKER, "source"),
        (b"e" * (IDENTITY_BYTES_MAX + 1), "e" * (IDENTITY_BYTES_MAX + 1), "malformed"),
    ],
)
def test_new_peer_with_a_wrong_source_is_dropped(identity: bytes, source: str, reason: str) -> None:
    gate = Gate()
    with pytest.raises(Dropped) as dropped:
        gate.admit([identity, encode(head(source)), b""])
    assert not gate.greeted
    assert dropped.value.reason == reason


def test_new_peer_with_a_matching_source_is_greeted_once() -> None:
    gate = Gate()
    for _ in range(2):
        gate.admit([EDGE.encode(), encode(head()), b""])
    assert gate.greeted == [EDGE]
