"""Outbox: the bounds of a packet, and what another broker may take of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.frames import BROKER, Goodbye, Head
from mesh.frames.packets import Sealed, read_sealed, seal
from mesh.link.outbox import Outbox


def entry(to: str = "edge:b:1", number: int = 0, blobs: int = 0) -> Sealed:
    return seal(Head(0, to, 0, "edge:a:1", number), Goodbye(), blobs=blobs)


@given(st.lists(st.integers(1, 40), max_size=40))
def test_no_packet_exceeds_a_bound_and_order_is_kept(sizes: list[int]) -> None:
    outbox, packets = Outbox(frames_max=5, bytes_max=64), []
    for number, size in enumerate(sizes):
        if not outbox.fits(size):
            packets.append(outbox.take())
        if outbox.add(entry(number=number), size):
            packets.append(outbox.take())
    packets.append(outbox.take())
    assert not outbox
    assert [one.sent_us for packet in packets for one in packet.entries] == list(range(len(sizes)))
    for packet in packets:
        assert len(packet.entries) <= 5
        assert sum(sizes[one.sent_us] for one in packet.entries) < 64 + 40


def test_entries_name_the_place_of_their_blobs() -> None:
    outbox = Outbox(10, 1_000)
    outbox.add(entry(blobs=2), 10, [b"a", b"b"])
    outbox.add(entry(), 10)
    outbox.add(entry(blobs=1), 10, [b"c"])
    table, *blobs = outbox.take().parts()
    assert blobs == [b"a", b"b", b"c"]
    assert [(one.blob, one.blobs) for one in read_sealed(table)[0]] == [(0, 2), (0, 0), (2, 1)]


def test_frames_of_the_link_itself_are_not_diverted() -> None:
    outbox = Outbox(10, 1_000)
    outbox.add(entry(BROKER), 10, own=True)
    outbox.add(entry(), 10)
    batch = outbox.take()
    assert (len(batch.entries), batch.own) == (2, 1)
    assert [one.to for one in batch.diverted().entries] == ["edge:b:1"]
