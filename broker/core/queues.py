"""Messages in a broker, and the two bounded send queues of a peer whose pipe is full.

Knows nothing of routing or sockets. Control messages are always sent before work.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.frames import Head, Lane

if TYPE_CHECKING:
    from broker.core.credit import Peer

#: A multipart message of a socket. All but the identity may be zmq.Frame: a broker decodes only the head.
Parts = list[Any]

_CONTROL: Final = int(Lane.CONTROL)


@dataclass(slots=True, eq=False)
class Envelope:
    """One message in flight. As an effect: pass `parts` to the socket of `receiver`, without blocking.

    The rim reports a failure with `Switch.on_pipe_full` or `Switch.on_unreachable`.
    """

    #: The first part is the identity of the next receiver.
    parts: Parts
    head: Head
    size: int
    #: Receiver of a bounce; None = the broker's own message, which never bounces.
    sender: Peer | None
    receiver: Peer | None = None
    #: It uses one credit of the receiver.
    credited: bool = False
    #: False for beats: a late one carries no information, so it is dropped instead of queued.
    is_queueable: bool = True


class LaneQueues:
    """The two queues of one peer, each holding at most `limit` messages."""

    __slots__ = ("_control", "_limit", "_work", "credited")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._control: deque[Envelope] = deque()
        self._work: deque[Envelope] = deque()
        #: Queued messages that use one credit of the peer.
        self.credited = 0

    def __len__(self) -> int:
        return len(self._control) + len(self._work)

    def depth(self, lane: int) -> int:
        """Number of queued messages of a lane."""
        return len(self._of(lane))

    def has_capacity(self, lane: int) -> bool:
        """True if `put` accepts one more."""
        return len(self._of(lane)) < self._limit

    def put(self, envelope: Envelope) -> None:
        """Queue one message; the caller checks `has_capacity` first."""
        queue = self._of(envelope.head.lane)
        assert len(queue) < self._limit, "the caller checks has_capacity first"
        queue.append(envelope)
        self.credited += envelope.credited

    def put_back(self, envelope: Envelope) -> None:
        """Return the message that was just popped to the head of its queue."""
        self._of(envelope.head.lane).appendleft(envelope)
        self.credited += envelope.credited

    def pop(self) -> Envelope | None:
        """The next message, control first; None when empty."""
        queue = self._control or self._work
        if not queue:
            return None
        envelope = queue.popleft()
        self.credited -= envelope.credited
        return envelope

    def forwarded(self) -> int:
        """Number of queued messages of other peers, without the broker's own replies."""
        return sum(envelope.sender is not None for queue in (self._control, self._work) for envelope in queue)

    def check(self) -> None:
        """Assert the bounds and the count of credits."""
        assert len(self._control) <= self._limit, "control queue over its bound"
        assert len(self._work) <= self._limit, "work queue over its bound"
        queued = sum(envelope.credited for queue in (self._control, self._work) for envelope in queue)
        assert queued == self.credited, f"{self.credited} credits counted, {queued} queued"

    def _of(self, lane: int) -> deque[Envelope]:
        return self._control if lane == _CONTROL else self._work
