"""Peers of a broker: which side they are on, when they were last heard, and how much work they may still get.

Credit is counted by two absolute counters, so that nothing a network does can leak a slot for good:

    sent      work messages handed to the peer's socket, told to the peer in every BrokerBeat
    consumed  told by the peer in every Beat and Credit

The pipe between both is first in, first out. So a peer that reads `sent` in a beat knows how many of those messages
never came, and counts them as consumed (mesh/link/credit.py). Each connection of a peer counts from a base of its own,
`number << 32`: counters that belong to an earlier one are recognised by their distance and ignored, and no work is sent
until the peer has answered in the new one. See docs/adr/0004-credit-and-lanes.md.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from broker.core.queues import Lanes
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
    """How much work one selector may have outstanding, and has."""

    __slots__ = ("consumed", "opened", "sent", "size")

    def __init__(self, acquaintance: int) -> None:
        self.sent = self.consumed = acquaintance << _BASE_BITS
        self.size = 0
        #: False until the peer has answered in this acquaintance's counters.
        self.opened = False

    def learn(self, consumed: int) -> None:
        """Take the peer's counter, unless it belongs to another acquaintance or to no message we sent."""
        if 0 <= self.sent - consumed < _SPAN:
            self.consumed = consumed
            self.opened = True

    def outstanding(self) -> int:
        """Work messages on their way or being done."""
        return self.sent - self.consumed


class Peer:
    """One edge or selector as this broker knows it."""

    __slots__ = ("blocked", "draining", "heard_ms", "identity", "lanes", "name", "present", "side", "window")

    def __init__(self, identity: bytes, side: Side, *, queue_max: int, acquaintance: int, now_ms: int) -> None:
        self.identity = identity
        self.name = identity.decode()
        self.side = side
        self.heard_ms = now_ms
        self.lanes = Lanes(queue_max)
        self.window = Window(acquaintance)
        self.draining = False
        #: Its pipe was full at the last attempt; everything for it queues until a flush succeeds.
        self.blocked = False
        #: False once forgotten; effects that still point here must not be performed.
        self.present = True

    def credit(self) -> int:
        """Work messages it may still get; not above 0 means none."""
        window = self.window
        return window.size - window.sent + window.consumed - self.lanes.credited if window.opened else 0

    def check(self) -> None:
        """Assert what must hold for every known peer."""
        self.lanes.check()
        assert self.present, f"{self.name} is forgotten but still listed"
        assert self.window.outstanding() >= 0, f"{self.name} consumed more than it was sent"
        assert self.blocked or not len(self.lanes), f"{self.name} has mail waiting but is not blocked"
