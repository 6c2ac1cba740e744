"""Received frames: lanes, credit in order of arrival, beats, and entries without their blobs."""

from __future__ import annotations

import pytest
import zmq

from mesh.frames import BROKER, BrokerBeat, Dispatch, Frame, Goodbye, Head
from mesh.frames.packets import encode_table, seal, seal_payload
from mesh.link.credit import LinkCredit
from mesh.link.received import Lanes, bytes_of
from mesh.words import ProcessKind
from tests.support.builders.golden_frames import plain


def credit() -> LinkCredit:
    return LinkCredit(kind=ProcessKind.SELECTOR, window=8, dead_ms=1_000)


@pytest.mark.parametrize(
    ("to", "frame", "costs"),
    [
        ("", plain(Dispatch), True),
        ("", Goodbye(), False),
        ("selector:a:1", plain(Dispatch), False),
        (BROKER, Goodbye(), False),
    ],
)
def test_only_work_for_any_selector_costs_credit(to: str, frame: Frame, costs: bool) -> None:
    own, lanes = credit(), Lanes()
    table = encode_table([seal(Head(frame.lane, to, 0, "edge:a:1", 0), frame)])
    lanes.add_packet([table], "ipc://b", own, lambda beat: None)
    [received] = lanes.in_order()
    assert (received.frame, received.costs_credit, received.broker) == (frame, costs, "ipc://b")
    assert (own.received, own.outstanding) == (int(costs), int(costs))


def test_control_comes_first_and_beats_are_not_passed_on() -> None:
    beats: list[BrokerBeat] = []
    work, control, beat = plain(Dispatch), Goodbye(), plain(BrokerBeat)
    entries = [seal(Head(frame.lane, "s", 0, "edge:a:1", 0), frame) for frame in (work, beat, control)]
    lanes = Lanes()
    lanes.add_packet([encode_table(entries)], "ipc://b", credit(), beats.append)
    assert [message.frame for message in lanes.in_order()] == [control, work]
    assert beats == [beat] and (lanes.count, lanes.malformed) == (2, 0)


def test_entry_without_its_blobs_costs_one_frame() -> None:
    raw, blobs = seal_payload([b"x" * 10], 5)
    head = Head(1, "s", 0, "edge:a:1", 0)
    entries = [seal(head, plain(Dispatch), raw, len(blobs)), seal(head, plain(Dispatch))]
    lanes = Lanes()
    lanes.add_packet([encode_table(entries)], "ipc://b", credit(), lambda beat: None)
    assert (lanes.count, lanes.malformed) == (1, 1)


def test_part_as_bytes() -> None:
    assert bytes_of(b"a") == bytes_of(zmq.Frame(b"a")) == b"a"
