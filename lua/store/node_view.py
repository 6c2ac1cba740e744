"""What a snapshot knows of a node, and how it is packed into Redis.

A cell's view hash holds four fields per node, so that whoever knows only a part writes only that: `<id>` is the packed
NodeCaps, `<id>#load` the packed NodeLoad, `<id>#pools` its pools, and `<id>#now` is one line by the scripts: epoch,
status, edge, detached_ms, drain_until_ms, reason. Lua never looks into the packed parts.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

import msgspec

from mesh.frames import NodeCaps, NodeLoad
from mesh.states.speed import Speed

#: Characters of a reason that are kept.
REASON_MAX: Final = 100

_encoder = msgspec.msgpack.Encoder()
_caps_decoder = msgspec.msgpack.Decoder(NodeCaps)
_load_decoder = msgspec.msgpack.Decoder(NodeLoad)
_speeds_decoder = msgspec.msgpack.Decoder(dict[str, Speed])
_marks_decoder = msgspec.msgpack.Decoder(dict[str, int])

pack_caps = _encoder.encode
pack_load = _encoder.encode
unpack_speeds = _speeds_decoder.decode
unpack_marks = _marks_decoder.decode


class NodeView(msgspec.Struct, frozen=True):
    """One node as the snapshot sees it."""

    node_id: str
    edge: str
    epoch: int
    status: str
    caps: NodeCaps
    load: NodeLoad
    #: Sorted, with commas.
    pools: str = ""
    #: When its socket closed, by Redis's clock; 0: it is open.
    detached_ms: int = 0
    #: When its drain ends, by Redis's clock; 0: it has none.
    drain_until_ms: int = 0
    #: Why it has this status.
    reason: str = ""


def unpack_view(node_id: str, caps: bytes, now: bytes, load: bytes, pools: bytes) -> NodeView:
    """The view of `node_id` from its fields."""
    epoch, status, edge, detached_ms, drain_until_ms, reason = now.decode().split(" ", 5)
    return NodeView(
        node_id, edge, int(epoch), status, _caps_decoder.decode(caps), _load_decoder.decode(load), pools.decode(),
        int(detached_ms), int(drain_until_ms), read_reason(reason),
    )  # fmt: skip


def spell_reason(reason: str) -> str:
    """A reason as one word, because lines in Redis are separated by blanks."""
    return quote(reason[:REASON_MAX], safe=":,;()'")


def read_reason(word: str) -> str:
    """The reason that a word spells."""
    return unquote(word)
