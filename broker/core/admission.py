"""Admission of messages: decodable, of this protocol version, and from the peer that their head names.

A refused message is dropped without a reply, because its sender cannot be trusted; it is counted by reason.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

import msgspec

from broker.core.counts import HOP_EDGES_US, Counts
from broker.core.credit import Peer, Side
from broker.core.directory import Directory
from broker.core.queues import Envelope, Parts
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

#: Greets a new peer: messages for it are appended to the list.
Greet = Callable[[Peer, list[Envelope]], None]


class Dropped(Exception):
    """A message that is refused without a reply."""

    def __init__(self, reason: DropReason) -> None:
        super().__init__(reason)
        self.reason = reason


class Admission:
    """Checks the messages of all peers, and adds peers to the directory with their first message."""

    def __init__(self, directory: Directory, counts: Counts, greet: Greet) -> None:
        self._directory = directory
        self._counts = counts
        self._greet = greet

    def admit(self, side: Side, parts: Parts, now_ms: int, wall_us: int, out: list[Envelope]) -> Envelope:
        """The message that a ROUTER received, with its sender known and checked. Raises Dropped."""
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
        peer = self._directory.peers.get(parts[0]) or self._add(parts[0], side, head, now_ms, out)
        if peer.name != head.source or peer.side is not side:
            raise Dropped(DropReason.SOURCE)
        peer.last_seen_ms = now_ms
        size = sum(map(len, parts))
        counts = self._counts
        counts.messages_in[head.lane] += 1
        counts.bytes_in += size
        # Clocks of two hosts may disagree: a negative time counts as 0.
        hop_us = max(0, wall_us - head.sent_us)
        counts.hops[bisect_left(HOP_EDGES_US, hop_us)] += 1
        counts.hops_us += hop_us
        return Envelope(parts, head, size, peer)

    def _add(self, identity: bytes, side: Side, head: Head, now_ms: int, out: list[Envelope]) -> Peer:
        # A name that begins with "@" is an address inside the mesh (mesh.frames.BROKER), never a peer.
        if head.source.encode() != identity or not head.source or head.source.startswith("@"):
            raise Dropped(DropReason.SOURCE)
        if len(identity) > IDENTITY_BYTES_MAX:
            raise Dropped(DropReason.MALFORMED)
        if self._directory.is_full():
            raise Dropped(DropReason.TOO_MANY_PEERS)
        peer = self._directory.add(identity, side, now_ms)
        self._greet(peer, out)
        return peer
