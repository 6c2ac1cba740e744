"""Liveness and credit of one link, as an edge or selector counts them. Pure.

The pipe from a broker is first in, first out. When a BrokerBeat carries the total `sent`, each of those work messages
has either arrived before the beat or is lost. `consumed = sent - outstanding` is therefore correct after every beat,
whatever was lost before it, and after a restart of the broker too, which counts from a new base.
"""

from __future__ import annotations

from mesh.frames import Beat, BrokerBeat, Credit


class LinkCredit:
    """Liveness and credit of one link. Time is an argument; the caller owns the socket."""

    __slots__ = (
        "boot_id",
        "broker_id",
        "dead_ms",
        "kind",
        "last_beat_ms",
        "live",
        "outstanding",
        "received",
        "selectors_live",
        "unreported",
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
        self.last_beat_ms = 0
        #: Work messages received by this link and not released.
        self.outstanding = 0
        #: The broker's counter of work messages sent, as of its last beat and the arrivals since.
        self.received = 0
        #: Released messages that no Beat or Credit has reported.
        self.unreported = 0

    def on_beat(self, beat: BrokerBeat, now_ms: int) -> bool:
        """A beat of the broker; True if the counter was off, so that a Beat must be sent at once."""
        changed = beat.sent != self.received or beat.boot_id != self.boot_id
        self.broker_id = beat.broker_id
        self.boot_id = beat.boot_id
        self.selectors_live = beat.selectors_live
        self.received = beat.sent
        self.last_beat_ms = now_ms
        self.live = True
        return changed

    def on_work(self) -> None:
        """A work message that costs credit arrived."""
        self.received += 1
        self.outstanding += 1

    def release(self, count: int) -> bool:
        """`count` outstanding messages are done; True if a Credit must be sent now.

        A quarter of the window is soon enough: the broker still has the other three, and a Beat reports the rest.
        """
        self.outstanding = max(0, self.outstanding - count)
        self.unreported += count
        return self.unreported * 4 >= self.window

    def expire(self, now_ms: int, late_ms: int = 0) -> bool:
        """True if the broker has just timed out (no beat for `dead_ms`). `late_ms`: stall of this process."""
        self.last_beat_ms += late_ms
        if self.live and now_ms - self.last_beat_ms >= self.dead_ms:
            self.live = False
            return True
        return False

    def consumed(self) -> int:
        """The counter of a Beat or Credit: messages sent to this peer that are not outstanding."""
        return self.received - self.outstanding

    def beat(self, *, draining: bool = False) -> Beat:
        """The Beat to send now."""
        self.unreported = 0
        return Beat(kind=self.kind, window=self.window, consumed=self.consumed(), draining=draining)

    def credit(self) -> Credit:
        """The Credit to send now."""
        self.unreported = 0
        return Credit(consumed=self.consumed())
