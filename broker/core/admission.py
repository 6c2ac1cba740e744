"""Admission of messages: decodable, of this protocol version, and from the peer that their head names.

A refused message is dropped without a reply, because its sender cannot be trusted; it is counted by reason.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.core.queues import Parts
from mesh.frames import FRAME_VERSION, PAYLOAD_PARTS_MAX, Head, Lane, decode_head
from mesh.words import DropReason

#: identity, head and frame; everything behind them is payload.
PARTS_MIN: Final = 3
PARTS_MAX: Final = PARTS_MIN + PAYLOAD_PARTS_MAX
IDENTITY_BYTES_MAX: Final = 128
#: Exceptions of decoding bytes that are no message of the mesh.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)

# Plain integers: looking up a member of an enum costs more than the comparison.
_CONTROL: Final = int(Lane.CONTROL)
_WORK: Final = int(Lane.WORK)


class Dropped(Exception):
    """A message that is refused without a reply."""

    def __init__(self, reason: DropReason) -> None:
        super().__init__(reason)
        self.reason = reason


def read_head(parts: Parts) -> Head:
    """The head of a message received by a ROUTER. Raises Dropped."""
    if not PARTS_MIN <= len(parts) <= PARTS_MAX:
        raise Dropped(DropReason.MALFORMED)
    try:
        head = decode_head(parts[1])
    except UNREADABLE:
        raise Dropped(DropReason.MALFORMED) from None
    if head.version != FRAME_VERSION:
        raise Dropped(DropReason.VERSION)
    if head.lane != _CONTROL and head.lane != _WORK:
        raise Dropped(DropReason.MALFORMED)
    return head


def check_new_peer(identity: bytes, head: Head) -> None:
    """Raise Dropped if an unknown peer must not be added."""
    # A name that begins with "@" is an address inside the mesh (mesh.frames.BROKER), never a peer.
    if head.source.encode() != identity or not head.source or head.source.startswith("@"):
        raise Dropped(DropReason.SOURCE)
    if len(identity) > IDENTITY_BYTES_MAX:
        raise Dropped(DropReason.MALFORMED)
