"""Peers of a broker: their side, liveness, queues and credit (flow control of work messages).

Credit is counted by two absolute counters, so that no lost message can leak a slot for good:

    sent      work messages passed to the peer's socket; sent to the peer in every BrokerBeat
    consumed  work messages the peer is done with; received from it in every Beat and Credit

The pipe between both is first in, first out. So a peer that reads `sent` in a beat knows how many of those messages
were lost, and counts them as consumed (mesh/link/credit.py). Each connection of a peer counts from a base of its own,
`number << 32`: counters of an earlier connection are recognised by their distance and ignored, and no work is sent
until the peer has replied in the new one. See docs/adr/0004-credit-and-lanes.md.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from broker.core.queues import LaneQueues
from mesh.words import ProcessKind

_BASE_BITS: Final = 32
_SPAN: Final = 1 << (_BASE_BITS - 1)


class Side(IntEnum):
    """Which of the two sockets a peer is connected to."""

    FRONT = 0  # edges
    BACK = 1  # selectors


#: The `Beat.kind` that each side accepts.
KIND_OF_SIDE: Final = {Side.FRONT: ProcessKind.EDGE, Side.BACK: ProcessKind.SELECTOR}


class Window:
    """Credit window of one selector: work messages that it may have outstanding, and has."""

    __slots__ = ("consumed", "is_open", "sent", "size")

    def __init__(self, connection: int) -> None:
        self.sent = self.consumed = connection << _BASE_BITS
        self.size = 0
        #: False until the peer has replied with a counter of this connection.
        self.is_open = False

    def on_consumed(self, consumed: int) -> None:
        """Apply the peer's counter, unless it belongs to another connection or to no message that was sent."""
        if 0 <= self.sent - consumed < _SPAN:
            self.consumed = consumed
            self.is_open = True

    def outstanding(self) -> int:
        """Work messages in transit or in progress."""
        return self.sent - self.consumed


class Peer:
    """One edge or selector as this broker knows it."""

    __slots__ = ("blocked", "draining", "identity", "is_known", "last_seen_ms", "name", "queues", "side", "window")

    def __init__(self, identity: bytes, side: Side, *, queues: LaneQueues, connection: int, now_ms: int) -> None:
        self.identity = identity
        self.name = identity.decode()
        self.side = side
        self.last_seen_ms = now_ms
        self.queues = queues
        self.window = Window(connection)
        self.draining = False
        #: Its pipe was full at the last send; messages for it are queued until a flush succeeds.
        self.blocked = False
        #: False once removed; envelopes that still refer to it must not be sent.
        self.is_known = True

    def credit(self) -> int:
        """Work messages it may still get; 0 or less means none."""
        window = self.window
        return window.size - window.sent + window.consumed - self.queues.credited if window.is_open else 0

    def check(self) -> None:
        """Assert the invariants of a known peer."""
        self.queues.check()
        assert self.is_known, f"{self.name} is removed but still listed"
        assert self.window.outstanding() >= 0, f"{self.name} consumed more than it was sent"
        assert self.blocked or not len(self.queues), f"{self.name} has queued messages but is not blocked"
