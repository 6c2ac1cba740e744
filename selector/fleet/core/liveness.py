"""Which edges live, as one selector knows it: by their presence in Redis, and by what they say to it directly.

Whoever is called dead gets nothing more, so that is said only if there is no doubt: presence has been read without a
gap for as long as a presence lasts. Otherwise everyone lives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Edges whose words are remembered between two looks.
HEARD_MAX: Final = 4_096


class LivenessDetector:
    """The edges that live."""

    def __init__(self, presence_ttl_ms: int) -> None:
        self._ttl_ms = presence_ttl_ms
        self._present: frozenset[str] = frozenset()
        #: Edge -> when it spoke to us last.
        self._heard: dict[str, int] = {}
        #: Since when every look succeeded, and when the last one did; None: the last one failed.
        self._since_ms: int | None = None
        self._looked_ms = 0

    def heard(self, edge: str, now_ms: int) -> None:
        """It said something."""
        if edge in self._heard or len(self._heard) < HEARD_MAX:
            self._heard[edge] = now_ms

    def looked(self, present: Iterable[str], now_ms: int) -> None:
        """Redis told who is present."""
        self._present = frozenset(present)
        self._looked_ms = now_ms
        if self._since_ms is None:
            self._since_ms = now_ms
        self._heard = {edge: at_ms for edge, at_ms in self._heard.items() if now_ms - at_ms < self._ttl_ms}

    def look_failed(self) -> None:
        """Redis could not tell. Nor could it be told who is present, so all must have time to say it again."""
        self._since_ms = None

    def lives(self, edge: str, now_ms: int) -> bool:
        """False if the edge is certainly gone."""
        if self._since_ms is None or now_ms - self._since_ms < self._ttl_ms:
            return True
        if now_ms - self._looked_ms >= self._ttl_ms or edge in self._present:
            return True
        heard_ms = self._heard.get(edge)
        return heard_ms is not None and now_ms - heard_ms < self._ttl_ms
