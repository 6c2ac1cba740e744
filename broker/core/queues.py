"""What waits inside a broker: messages, and the two bounded queues of a peer that cannot take them now.

Knows nothing of routing or sockets. Control is always served before work.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.frames import Head, Lane

if TYPE_CHECKING:
    from broker.core.credit import Peer

#: A multipart as the socket gave it. All but the identity may be zmq.Frame: a broker reads the head and nothing else.
Parts = list[Any]

_CONTROL: Final = int(Lane.CONTROL)


@dataclass(slots=True, eq=False)
class Envelope:
    """One message on its way. As an effect it says: hand `parts` to the socket of `receiver`, without waiting.

    The rim answers a failure with `Switch.stuck` (the pipe is full) or `Switch.gone` (no such peer).
    """

    #: The first part is the identity of whom it is sent to next.
    parts: Parts
    head: Head
    size: int
    #: Whom a bounce goes to; None = the broker's own message, which never bounces.
    sender: Peer | None
    receiver: Peer | None = None
    #: It takes one of the receiver's work slots.
    credited: bool = False
    #: False for beats: a late one says nothing, so it is dropped rather than queued.
    keep: bool = True


class Lanes:
    """The two queues of one peer, each holding at most `limit` messages."""

    __slots__ = ("_control", "_limit", "_work", "credited")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._control: deque[Envelope] = deque()
        self._work: deque[Envelope] = deque()
        #: How many of the waiting messages hold one of the peer's work slots.
        self.credited = 0

    def __len__(self) -> int:
        return len(self._control) + len(self._work)

    def depth(self, lane: int) -> int:
        """How many messages wait in that lane."""
        return len(self._of(lane))

    def has_room(self, lane: int) -> bool:
        """True if `put` would take one more."""
        return len(self._of(lane)) < self._limit

    def put(self, mail: Envelope) -> None:
        """Queue one message; ask `has_room` first."""
        queue = self._of(mail.head.lane)
        assert len(queue) < self._limit, "the caller asks has_room first"
        queue.append(mail)
        self.credited += mail.credited

    def put_back(self, mail: Envelope) -> None:
        """Give back the message that was just popped: it stays the first."""
        self._of(mail.head.lane).appendleft(mail)
        self.credited += mail.credited

    def pop(self) -> Envelope | None:
        """The next message, control first; None when empty."""
        queue = self._control or self._work
        if not queue:
            return None
        mail = queue.popleft()
        self.credited -= mail.credited
        return mail

    def foreign(self) -> int:
        """How many of the waiting messages are a peer's, not the broker's own answers."""
        return sum(mail.sender is not None for queue in (self._control, self._work) for mail in queue)

    def check(self) -> None:
        """Assert the bounds and the count of work slots."""
        assert len(self._control) <= self._limit, "control queue over its bound"
        assert len(self._work) <= self._limit, "work queue over its bound"
        waiting = sum(mail.credited for queue in (self._control, self._work) for mail in queue)
        assert waiting == self.credited, f"{self.credited} slots counted, {waiting} waiting"

    def _of(self, lane: int) -> deque[Envelope]:
        return self._control if lane == _CONTROL else self._work
