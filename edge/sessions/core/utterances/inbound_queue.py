"""InboundQueue: messages of one session's client that are not handled yet, in order and bounded. Pure.

Owns the queue and the backpressure advice by its depth: slow down (from half full), pause (from three quarters), busy:
resend this one later (full).
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Final, Generic, NamedTuple, TypeVar

from mesh.words import BackpressureAction

E = TypeVar("E")

#: Depth at which the client is advised to slow down, and to pause.
SLOW_PART: Final = 1 / 2
PAUSE_PART: Final = 3 / 4
#: Advice is repeated at most this often; the original client debounces by as much.
EVERY_MS: Final = 500


class Advice(NamedTuple):
    """Whether the event was accepted, and the advice for the client; action None = no advice."""

    accepted: bool
    action: BackpressureAction | None
    resume_after_ms: int


#: By severity. There are no other values, so advice costs no allocation.
_QUIET: Final = Advice(True, None, 0)
_SLOW_DOWN: Final = Advice(True, BackpressureAction.SLOW_DOWN, 500)
_PAUSE: Final = Advice(True, BackpressureAction.PAUSE, 1_000)
_BUSY: Final = Advice(False, BackpressureAction.BUSY, 2_000)
_SEVERITY: Final = {advice: severity for severity, advice in enumerate((_QUIET, _SLOW_DOWN, _PAUSE, _BUSY))}


class InboundQueue(Generic[E]):
    """At most `events_max` events of `bytes_max` bytes (or one larger one)."""

    __slots__ = ("_advised", "_advised_ms", "_bytes_max", "_events", "_events_max", "_every_ms", "bytes")

    def __init__(self, events_max: int, every_ms: int = EVERY_MS, bytes_max: int = sys.maxsize) -> None:
        assert events_max > 0
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._every_ms = every_ms
        #: Each event and its bytes. None while it is empty: even an empty deque allocates 64 entries, and most sessions
        #: are idle.
        self._events: deque[tuple[E, int]] | None = None
        self.bytes = 0
        self._advised = _QUIET
        self._advised_ms = 0

    def __len__(self) -> int:
        return len(self._events) if self._events is not None else 0

    @property
    def is_full(self) -> bool:
        """True if no further event is accepted."""
        return len(self) >= self._events_max

    def put(self, event: E, now_ms: int, size: int = 0) -> Advice:
        """Queue the event, of `size` bytes, if there is capacity for it; the advice for the client."""
        events = self._events
        if self.is_full or (events is not None and self.bytes + size > self._bytes_max):
            return self.refuse(now_ms)
        if events is None:
            events = self._events = deque()
        events.append((event, size))
        self.bytes += size
        part = max(len(events) / self._events_max, self.bytes / self._bytes_max)
        if part < SLOW_PART:
            return _QUIET
        return self._advice(_PAUSE if part >= PAUSE_PART else _SLOW_DOWN, now_ms)

    def refuse(self, now_ms: int) -> Advice:
        """Refuse an event; the advice for the client."""
        self._advised, self._advised_ms = _BUSY, now_ms
        return _BUSY

    def pop(self) -> E | None:
        """The oldest event; None if there is none."""
        if self._events is None:
            return None
        event, size = self._events.popleft()
        self.bytes -= size
        if not self._events:
            self._events = None
        return event

    def _advice(self, advice: Advice, now_ms: int) -> Advice:
        """That advice, unless the same or stronger advice was given within `every_ms`."""
        if now_ms - self._advised_ms < self._every_ms and _SEVERITY[advice] <= _SEVERITY[self._advised]:
            return _QUIET
        self._advised, self._advised_ms = advice, now_ms
        return advice
