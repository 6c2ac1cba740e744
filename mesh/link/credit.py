"""One link as an edge or selector sees it: is the broker alive, and how much of its work do we hold. Pure.

The pipe from a broker is first in, first out. So when a BrokerBeat says "I have handed you `sent` work messages", every
one of them has either arrived before the beat or never will. `consumed = sent - held` is therefore right after
every beat, whatever was lost before it, and right after a restart of the broker too, which counts from a new base.
"""

from __future__ import annotations

from mesh.frames import Beat, BrokerBeat, Credit


class LinkCredit:
    """The state of one link. Time is an argument; the caller owns the socket."""

    __slots__ = (
        "boot_id",
        "broker_id",
        "dead_ms",
        "heard_ms",
        "held",
        "kind",
        "live",
        "seen",
        "selectors_live",
        "untold",
        "window",
    )

    def __init__(self, *, kind: str, window: int, dead_ms: int) -> None:
        self.kind = kind
        self.window = window
        self.dead_ms = dead_ms
        self.broker_id = ""
        self.boot_id = ""
        self.selectors_live = 0
        self.live = False
        self.heard_ms = 0
        #: Work messages taken from this link and not given back yet.
        self.held = 0
        #: The broker's counter of work messages handed to us, as far as we can know it.
        self.seen = 0
        #: Messages given back that the broker has not been told of.
        self.untold = 0

    def heard(self, beat: BrokerBeat, now_ms: int) -> bool:
        """Take a beat of the broker; True if our counter was off, so that it should hear from us at once."""
        changed = beat.sent != self.seen or beat.boot_id != self.boot_id
        self.broker_id = beat.broker_id
        self.boot_id = beat.boot_id
        self.selectors_live = beat.selectors_live
        self.seen = beat.sent
        self.heard_ms = now_ms
        self.live = True
        return changed

    def took(self) -> None:
        """A work message arrived that costs credit."""
        self.seen += 1
        self.held += 1

    def gave_back(self, count: int) -> bool:
        """`count` of the held messages are done; True if the broker should be told now.

        A quarter of the window is soon enough: the broker still has the other three, and a beat tells it the rest.
        """
        self.held = max(0, self.held - count)
        self.untold += count
        return self.untold * 4 >= self.window

    def lapse(self, now_ms: int, late_ms: int = 0) -> bool:
        """True if the broker has just now been silent for too long. `late_ms` is how long we were held up ourselves."""
        self.heard_ms += late_ms
        if self.live and now_ms - self.heard_ms >= self.dead_ms:
            self.live = False
            return True
        return False

    def consumed(self) -> int:
        """What a Beat or Credit says: messages handed to us that we no longer hold."""
        return self.seen - self.held

    def beat(self, *, draining: bool = False) -> Beat:
        """The Beat to send now."""
        self.untold = 0
        return Beat(kind=self.kind, window=self.window, consumed=self.consumed(), draining=draining)

    def credit(self) -> Credit:
        """The Credit to send now."""
        self.untold = 0
        return Credit(consumed=self.consumed())
