"""Malformed entries of packets, for tests of what decodes them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mesh.frames import PAYLOAD_PARTS_MAX

#: An entry as a plain list: lane, to, cell, source, sent_us, deadline_ms, blob, blobs, frame, payload.
RawEntry = list[Any]

_SOUND: list[Any] = [1, "", 0, "edge:a:1", 0, 0, 0, 0, ["Goodbye"], []]
#: Wrong values of each field that brokers and links decode.
_WRONG: list[list[Any]] = [
    [-1, 2, 1.5, None, "1", True],
    [None, 7, b"edge:b:1", b"\xff\xfe", []],
    [None, "x", 0.5, []],
    [None, 7, b"edge:a:1", []],
    [None, "now", 1.5],
    [None, "never"],
    [-1, None, "0"],
    [-1, PAYLOAD_PARTS_MAX + 1, None, [1]],
]


def _wrong_field(place: int, value: Any) -> RawEntry:
    return [*_SOUND[:place], value, *_SOUND[place + 1 :]]


#: Entries that neither a broker nor a link can decode.
MALFORMED: st.SearchStrategy[Any] = st.one_of(
    st.one_of(
        *[
            st.sampled_from(values).map(lambda value, place=place: _wrong_field(place, value))
            for place, values in enumerate(_WRONG)
        ]
    ),
    st.integers(0, len(_SOUND) - 1).map(lambda length: _SOUND[:length]),
    st.sampled_from([None, 1, "x", b"\xff", {}, {"lane": 1}]),
)


def with_entry(entries: list[RawEntry], place: int, entry: Any) -> list[Any]:
    """`entries` with the one at `place` replaced."""
    return [*entries[:place], entry, *entries[place + 1 :]]
