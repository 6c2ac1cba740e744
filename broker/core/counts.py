"""Counters of a broker. Plain integers, because the hot path adds to them; broker/metrics.py exports them."""

from __future__ import annotations

from collections import Counter
from typing import Final

from mesh.words import BounceReason, DropReason

#: Upper edges of the hop-time buckets, in microseconds.
HOP_EDGES_US: Final = tuple(
    int(edge_ms * 1_000) for edge_ms in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 500, 1_000)
)


class Counts:
    """All counters of one broker since it started."""

    def __init__(self) -> None:
        #: Frames that passed the checks, by lane.
        self.frames_in = [0, 0]
        #: Frames forwarded to a socket, by lane; the broker's own beats and replies are not counted.
        self.frames_out = [0, 0]
        #: Packets with at least one frame that passed the checks, and packets sent.
        self.packets_in = 0
        self.packets_out = 0
        #: Link frames: addressed to the broker itself.
        self.for_broker = 0
        self.bytes_in = 0
        self.bytes_out = 0
        #: Work that did not go to the first selector of its cell.
        self.spilled = 0
        self.busy = 0
        self.bounced: Counter[BounceReason] = Counter()
        #: By reason; dropped without a reply.
        self.dropped: Counter[BounceReason | DropReason] = Counter()
        #: Packets by the time from their first frame, by the sender's clock, to ours: one bucket per edge, and one
        #: beyond the last.
        self.hops = [0] * (len(HOP_EDGES_US) + 1)
        self.hops_us = 0

    def unaccounted(self, queued: int) -> int:
        """Frames received and neither sent, nor queued, nor replied to. Anything but 0 means a lost frame."""
        ended = sum(self.frames_out) + self.for_broker + self.busy + self.bounced.total()
        return sum(self.frames_in) - ended - queued
