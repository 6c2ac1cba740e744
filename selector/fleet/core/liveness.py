"""Conservative failure detector for edges.

An edge is reported dead only if presence has been read without error for at least one TTL, and neither presence nor a
frame of it was seen in that time. In doubt it counts as live, because a dead edge gets no messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Edges whose last frame is remembered between two readings.
SENDERS_MAX: Final = 4_096


class LivenessDetector:
    """Decides whether an edge is live."""

    def __init__(self, presence_ttl_ms: int) -> None:
        self._ttl_ms = presence_ttl_ms
        self._present: frozenset[str] = frozenset()
        #: Edge -> when its last frame arrived.
        self._received: dict[str, int] = {}
        #: Since when every reading succeeded (None: the last one failed), and when the last one did.
        self._since_ms: int | None = None
        self._read_ms = 0

    def on_frame(self, edge: str, now_ms: int) -> None:
        """A frame of it arrived."""
        if edge in self._received or len(self._received) < SENDERS_MAX:
            self._received[edge] = now_ms

    def on_presence(self, present: Iterable[str], now_ms: int) -> None:
        """Presence was read from Redis."""
        self._present = frozenset(present)
        self._read_ms = now_ms
        if self._since_ms is None:
            self._since_ms = now_ms
        self._received = {edge: at_ms for edge, at_ms in self._received.items() if now_ms - at_ms < self._ttl_ms}

    def on_read_failed(self) -> None:
        """Presence could not be read, nor written by the edges: they need one TTL to renew it."""
        self._since_ms = None

    def is_live(self, edge: str, now_ms: int) -> bool:
        """False only if the edge is certainly dead."""
        if self._since_ms is None or now_ms - self._since_ms < self._ttl_ms:
            return True
        if now_ms - self._read_ms >= self._ttl_ms or edge in self._present:
            return True
        received_ms = self._received.get(edge)
        return received_ms is not None and now_ms - received_ms < self._ttl_ms
