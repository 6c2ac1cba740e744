"""Codec of the node view, which snapshots read from Redis, and of its changes (script node_changes).

A cell's view hash has four fields per node, so that a writer that knows one part writes only that: `<id>` is the packed
NodeCaps, `<id>#load` the packed NodeLoad, `<id>#pools` its pools, and `<id>#now` is one line by the scripts: epoch,
status, edge, detached_ms, drain_until_ms, reason. Lua never decodes the packed parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from lua.engine.batch import Answer
from lua.store.types.nodes import NodeFacts
from mesh.errors import StoreError
from mesh.frames import NodeCaps, NodeLoad
from mesh.states.speed import Speed

#: Characters of a reason that are stored.
REASON_MAX: Final = 100
#: Fields of one row of node_changes.
ROW_FIELDS: Final = 11

_encoder = msgspec.msgpack.Encoder()
_caps_decoder = msgspec.msgpack.Decoder(NodeCaps)
_load_decoder = msgspec.msgpack.Decoder(NodeLoad)
_speeds_decoder = msgspec.msgpack.Decoder(dict[str, Speed])
_marks_decoder = msgspec.msgpack.Decoder(dict[str, int])

pack_caps = _encoder.encode
pack_load = _encoder.encode
unpack_speeds = _speeds_decoder.decode
unpack_marks = _marks_decoder.decode


class ChangedNode(NamedTuple):
    """One changed node. `view`, `speeds` and `marks` are None while unchanged; a removed node has `used` -1."""

    node_id: str
    used: int
    last_seen_ms: int
    view: NodeFacts | None
    #: Version of this row: a reply with a higher version of the node is newer.
    version: int
    #: Language pair, or mesh.states.speed.ANY_PAIR -> speed.
    speeds: dict[str, Speed] | None = None
    #: Missing service -> expiry of the mark, by Redis's clock.
    marks: dict[str, int] | None = None
    #: Slots that did not match the running jobs at the last audit.
    drift: int = 0


class Changes(NamedTuple):
    """Changed nodes of a cell. `version` is the `since` of the next call, which follows at once if `more`.

    `reset`: Redis lost data of the cell, so the rows start from the beginning.
    `unreadable`: number of skipped rows that could not be decoded.
    """

    version: int
    now_ms: int
    more: bool
    rows: list[ChangedNode]
    reset: bool
    unreadable: int


def read_changes(answers: Iterable[Answer]) -> list[Changes | StoreError]:
    """The cells' replies to node_changes. Rows that cannot be decoded are counted: other processes wrote them."""
    found: list[Changes | StoreError] = []
    for answer in answers:
        if isinstance(answer, StoreError):
            found.append(answer)
            continue
        version, now_ms, more, reset, flat = answer
        rows, unreadable = [], 0
        for start in range(0, len(flat), ROW_FIELDS):
            try:
                rows.append(_read_row(*flat[start : start + ROW_FIELDS]))
            except (ValueError, TypeError, AttributeError, msgspec.DecodeError):
                unreadable += 1
        found.append(Changes(version, now_ms, bool(more), rows, bool(reset), unreadable))
    return found


def _read_row(
    raw_id: bytes,
    version: int,
    used: int,
    last_seen_ms: int,
    caps: Any,
    now: Any,
    load: Any,
    pools: Any,
    speeds: Any,
    marks: Any,
    drift: int,
) -> ChangedNode:
    node_id = raw_id.decode()
    return ChangedNode(
        node_id,
        used,
        last_seen_ms,
        None if caps is None else unpack_view(caps, now, load, pools),
        version,
        None if speeds is None else unpack_speeds(speeds),
        None if marks is None else unpack_marks(marks),
        drift,
    )


def unpack_view(caps: bytes, now: bytes, load: bytes, pools: bytes) -> NodeFacts:
    """A node's facts from the fields of its view."""
    epoch, status, edge, detached_ms, drain_until_ms, reason = now.decode().split(" ", 5)
    return NodeFacts(
        edge,
        int(epoch),
        status,
        _caps_decoder.decode(caps),
        _load_decoder.decode(load),
        pools.decode(),
        int(detached_ms),
        int(drain_until_ms),
        unquote_reason(reason),
    )


def quote_reason(reason: str) -> str:
    """A reason without blanks, because blanks separate the fields of a line in Redis."""
    return quote(reason[:REASON_MAX], safe=":,;()'")


def unquote_reason(quoted: str) -> str:
    """Inverse of quote_reason."""
    return unquote(quoted)
