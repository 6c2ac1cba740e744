"""Admission of packets: decodable, of this frame version, and with frames of the peer that sent them.

What is refused is dropped without a reply, because its sender cannot be trusted; it is counted by reason. A packet that
is no table is dropped as a whole. A malformed entry, or one of another source, costs that frame alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from broker.core.counts import HOP_EDGES_US, Counts
from broker.core.credit import Peer, Side
from broker.core.directory import Directory
from broker.core.queues import Envelope, Parts
from mesh.frames.packets import UNREADABLE, OtherVersionError, Sealed, read_sealed
from mesh.words import DropReason

#: Parts before the blobs: identity and table.
_BLOBS: Final = 2
IDENTITY_BYTES_MAX: Final = 128

#: Greets a new peer: messages for it are appended to the list.
Greet = Callable[[Peer, list[Envelope]], None]


class Dropped(Exception):
    """A packet that is refused as a whole, without a reply."""

    def __init__(self, reason: DropReason, frames: int = 1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.frames = frames


class Admission:
    """Checks the packets of all peers, and adds peers to the directory with their first packet."""

    def __init__(self, directory: Directory, counts: Counts, greet: Greet) -> None:
        self._directory = directory
        self._counts = counts
        self._greet = greet

    def admit(self, side: Side, parts: Parts, now_ms: int, wall_us: int, out: list[Envelope]) -> list[Envelope]:
        """The frames of a packet that a ROUTER received, with their sender known and checked. Raises Dropped."""
        if len(parts) < _BLOBS:
            raise Dropped(DropReason.MALFORMED)
        counts = self._counts
        try:
            entries, malformed = read_sealed(parts[1])
        except OtherVersionError as other:
            self._directory.refuse(parts[0], str(other))
            raise Dropped(DropReason.VERSION) from None
        except UNREADABLE:
            raise Dropped(DropReason.MALFORMED) from None
        if malformed:
            counts.dropped[DropReason.MALFORMED] += malformed
        if not entries:
            return []
        peer = self._directory.peers.get(parts[0]) or self._add(parts[0], side, entries, now_ms, out)
        if peer.side is not side:
            raise Dropped(DropReason.SOURCE, len(entries))
        admitted = self._seal(peer, entries, parts)
        if admitted:
            peer.last_seen_ms = now_ms
            counts.packets_in += 1
            counts.bytes_in += sum(map(len, parts))
            # Clocks of two hosts may disagree: a negative time counts as 0.
            hop_us = max(0, wall_us - admitted[0].entry.sent_us)
            counts.hops[bisect_left(HOP_EDGES_US, hop_us)] += 1
            counts.hops_us += hop_us
        return admitted

    def _seal(self, peer: Peer, entries: list[Sealed], parts: Parts) -> list[Envelope]:
        """The envelopes of the entries that are this peer's own and whose blobs are there."""
        name = peer.name
        admitted: list[Envelope] = []
        work = foreign = 0
        for entry in entries:
            if entry.source != name:
                foreign += 1
                continue
            if entry.blobs:
                first = _BLOBS + entry.blob
                blobs = parts[first : first + entry.blobs]
                if len(blobs) == entry.blobs:
                    admitted.append(Envelope(entry, peer, blobs))
                    work += entry.lane
            else:
                admitted.append(Envelope(entry, peer))
                work += entry.lane
        counts = self._counts
        if len(admitted) < len(entries):
            counts.dropped[DropReason.SOURCE] += foreign
            counts.dropped[DropReason.MALFORMED] += len(entries) - len(admitted) - foreign
        frames_in = counts.frames_in
        frames_in[0] += len(admitted) - work
        frames_in[1] += work
        return admitted

    def _add(self, identity: bytes, side: Side, entries: list[Sealed], now_ms: int, out: list[Envelope]) -> Peer:
        name = identity.decode(errors="replace")
        # A name that begins with "@" is an address inside the mesh (mesh.frames.BROKER), never a peer.
        if not name or name.startswith("@") or all(entry.source != name for entry in entries):
            raise Dropped(DropReason.SOURCE, len(entries))
        if len(identity) > IDENTITY_BYTES_MAX or name.encode() != identity:
            raise Dropped(DropReason.MALFORMED, len(entries))
        if self._directory.is_full():
            raise Dropped(DropReason.TOO_MANY_PEERS, len(entries))
        peer = self._directory.add(identity, side, now_ms)
        self._greet(peer, out)
        return peer
