"""Frames in a broker, and the two bounded send queues of a peer whose pipe is full.

Knows nothing of routing or sockets. Control frames are always sent before work.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from mesh.frames.packets import ENTRY_BYTES, Sealed

if TYPE_CHECKING:
    from broker.core.credit import Peer

#: A multipart message of a socket. All but the identity may be zmq.Frame.
Parts = list[Any]


class Envelope(msgspec.Struct, eq=False, gc=False):
    """One frame in flight. As an effect: send it to `receiver`, in one packet with others for that peer.

    The courier reports a failure with `Switch.on_pipe_full` or `Switch.on_unreachable`.
    """

    entry: Sealed
    #: Receiver of a bounce; None = the broker's own frame, which never bounces.
    sender: Peer | None
    #: The large parts of its payload, forwarded by reference.
    blobs: Parts | None = None
    receiver: Peer | None = None
    #: It uses one credit of the receiver.
    credited: bool = False
    #: False for beats: a late one carries no information, so it is dropped instead of queued.
    is_queueable: bool = True

    def size(self) -> int:
        """Its bytes in a packet, at most."""
        entry = self.entry
        size = ENTRY_BYTES + len(entry.frame) + len(entry.payload) + len(entry.to) + len(entry.source)
        return size + sum(map(len, self.blobs)) if self.blobs else size

    def detach(self) -> None:
        """Copy what refers to the packet it arrived in, so that a queued frame does not keep that packet in memory."""
        entry = self.entry
        entry.frame = entry.frame.copy()
        entry.payload = entry.payload.copy()


class LaneQueues:
    """The two queues of one peer, each holding at most `limit` frames and about `bytes_max` bytes."""

    __slots__ = ("_bytes", "_bytes_max", "_lanes", "_limit", "credited")

    def __init__(self, limit: int, bytes_max: int) -> None:
        self._limit = limit
        self._bytes_max = bytes_max
        #: By lane.
        self._lanes: tuple[deque[Envelope], deque[Envelope]] = (deque(), deque())
        self._bytes = [0, 0]
        #: Queued frames that use one credit of the peer.
        self.credited = 0

    def __len__(self) -> int:
        control, work = self._lanes
        return len(control) + len(work)

    def depth(self, lane: int) -> int:
        """Number of queued frames of a lane."""
        return len(self._lanes[lane])

    def has_capacity(self, envelope: Envelope) -> bool:
        """True if `put` accepts it. An empty lane accepts a frame of any size."""
        lane = envelope.entry.lane
        queued = len(self._lanes[lane])
        return queued < self._limit and (not queued or self._bytes[lane] + envelope.size() <= self._bytes_max)

    def put(self, envelope: Envelope) -> None:
        """Queue one frame; the caller checks `has_capacity` first."""
        assert self.has_capacity(envelope), "the caller checks has_capacity first"
        envelope.detach()
        lane = envelope.entry.lane
        self._lanes[lane].append(envelope)
        self._bytes[lane] += envelope.size()
        self.credited += envelope.credited

    def put_back(self, envelope: Envelope) -> None:
        """Return the frame that was just popped to the head of its queue."""
        lane = envelope.entry.lane
        self._lanes[lane].appendleft(envelope)
        self._bytes[lane] += envelope.size()
        self.credited += envelope.credited

    def next(self) -> Envelope | None:
        """The frame that `pop` returns; None when empty."""
        control, work = self._lanes
        queue = control or work
        return queue[0] if queue else None

    def pop(self) -> Envelope | None:
        """The next frame, control first; None when empty."""
        control, work = self._lanes
        queue = control or work
        if not queue:
            return None
        envelope = queue.popleft()
        self._bytes[envelope.entry.lane] -= envelope.size()
        self.credited -= envelope.credited
        return envelope

    def forwarded(self) -> int:
        """Number of queued frames of other peers, without the broker's own replies."""
        return sum(envelope.sender is not None for queue in self._lanes for envelope in queue)

    def check(self) -> None:
        """Assert the bounds, and the counts of credits and bytes."""
        for lane, queue in enumerate(self._lanes):
            assert len(queue) <= self._limit, f"queue of lane {lane} over its bound"
            size = sum(envelope.size() for envelope in queue)
            assert size == self._bytes[lane], f"{self._bytes[lane]} bytes counted, {size} queued"
            assert size <= self._bytes_max or len(queue) == 1, f"queue of lane {lane} over its bound in bytes"
        queued = sum(envelope.credited for queue in self._lanes for envelope in queue)
        assert queued == self.credited, f"{self.credited} credits counted, {queued} queued"
