"""Packets: round trips, blobs, and a malformed entry that costs no frame but its own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.frames import FRAME_VERSION, Goodbye, Head, encode
from mesh.frames.packets import (
    UNREADABLE,
    OtherVersionError,
    encode_table,
    open_payload,
    read_opened,
    read_sealed,
    seal,
    seal_payload,
)
from tests.support.builders.packets import MALFORMED, with_entry

HEAD = Head(0, "edge:b:1", 3, "edge:a:1", 42, 7)
SOUND: list[Any] = [0, "", 0, "edge:a:1", 0, 0, 0, 0, ["Goodbye"], []]


def test_entry_round_trips_through_both_decoders() -> None:
    table = encode_table([seal(HEAD, Goodbye())])
    [sealed], sealed_bad = read_sealed(table)
    [opened], opened_bad = read_opened(encode_table([sealed]))
    assert (sealed_bad, opened_bad) == (0, 0)
    assert (opened.to, opened.cell, opened.source, opened.sent_us, opened.deadline_ms) == (
        "edge:b:1", 3, "edge:a:1", 42, 7,
    )  # fmt: skip
    assert opened.frame == Goodbye() and open_payload(opened, [table]) == []


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(1, 41))
def test_parts_from_the_bound_on_are_blobs_and_all_arrive_in_order(payload: list[bytes], bound: int) -> None:
    raw, blobs = seal_payload(payload, bound)
    assert blobs == [part for part in payload if len(part) >= bound]
    table = encode_table([seal(HEAD, Goodbye(), raw, len(blobs))])
    [entry], _ = read_opened(table)
    assert open_payload(entry, [table, *blobs]) == payload
    if blobs:
        assert open_payload(entry, [table, *blobs[1:]]) is None, "a blob is missing"


@settings(max_examples=60)
@given(MALFORMED, st.integers(0, 999))
def test_one_malformed_entry_of_a_thousand_costs_one_frame(wrong: Any, place: int) -> None:
    entries = with_entry([SOUND] * 1_000, place, wrong)
    for read in (read_sealed, read_opened):
        found, malformed = read(encode((FRAME_VERSION, entries)))
        assert (len(found), malformed) == (999, 1)


@pytest.mark.parametrize("data", [encode((1, [SOUND])), encode([1, 1, "", 0, "edge:a:1", 0, 0])])
def test_other_version_is_named(data: bytes) -> None:
    for read in (read_sealed, read_opened):
        with pytest.raises(OtherVersionError, match=f"frame version 1, expected {FRAME_VERSION}"):
            read(data)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_refused_as_a_whole(data: bytes) -> None:
    for read in (read_sealed, read_opened):
        try:
            read(data)
        except (*UNREADABLE, OtherVersionError):
            continue


def test_raw_frame_outlives_the_received_table() -> None:
    table = bytearray(encode_table([seal(HEAD, Goodbye())]))
    [sealed], _ = read_sealed(bytes(table))
    del table
    assert msgspec.msgpack.decode(sealed.frame) == ["Goodbye"]
