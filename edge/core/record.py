"""Record: the base of the edge's events, effects and other immutable facts."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True):
    """Immutable, compared by its fields. Several are made per message, and a frozen dataclass costs five times as much:
    it sets each field by a call."""
