"""What a snapshot knows of a node, and how it is packed into Redis.

A cell's view hash holds two fields per node, so that a heartbeat without capabilities cannot overwrite newer ones:
`<id>` is the packed NodeCaps, `<id>#now` is `epoch status edge ` followed by the packed NodeLoad. Lua writes the first
three words, because only the script knows the epoch; it never looks into the packed parts.
"""

from __future__ import annotations

import msgspec

from mesh.frames import NodeCaps, NodeLoad

_encoder = msgspec.msgpack.Encoder()
_caps_decoder = msgspec.msgpack.Decoder(NodeCaps)
_load_decoder = msgspec.msgpack.Decoder(NodeLoad)

pack_caps = _encoder.encode
pack_load = _encoder.encode


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


def unpack_view(node_id: str, caps: bytes, now: bytes) -> NodeView:
    """The view of `node_id` from its two packed fields."""
    epoch, status, edge, load = now.split(b" ", 3)
    return NodeView(
        node_id, edge.decode(), int(epoch), status.decode(), _caps_decoder.decode(caps), _load_decoder.decode(load)
    )
