"""Recent keys: a set with a TTL, for deduplication. A key that ended recently identifies a late duplicate.

Bounded by number and by age: the oldest key is evicted.
"""

from __future__ import annotations

from collections import OrderedDict


class RecentKeys:
    """The keys that ended within `kept_ms`, at most `kept_max` of them, each with its outcome."""

    def __init__(self, kept_max: int, kept_ms: int) -> None:
        self._kept_max = kept_max
        self._kept_ms = kept_ms
        self._ended: OrderedDict[str, tuple[int, str]] = OrderedDict()
        #: No key expires before then.
        self._expiry_ms = 0

    def __len__(self) -> int:
        return len(self._ended)

    def __contains__(self, key: str) -> bool:
        """True if the key is listed. It may have expired, if neither `add` nor `how` was called since."""
        return key in self._ended

    def how(self, key: str, now_ms: int) -> str | None:
        """The outcome given to `add`; None if the key is not recent."""
        if now_ms >= self._expiry_ms:
            self._evict(now_ms)
        ended = self._ended.get(key)
        return ended[1] if ended is not None else None

    def add(self, key: str, now_ms: int, how: str = "") -> None:
        """Record that `key` ended now with outcome `how`; evict keys beyond the bounds."""
        self._ended[key] = (now_ms, how)
        self._ended.move_to_end(key)
        if now_ms >= self._expiry_ms or len(self._ended) > self._kept_max:
            self._evict(now_ms)

    def drop(self, key: str) -> None:
        """Remove a key; no error if it is not here."""
        self._ended.pop(key, None)

    def _evict(self, now_ms: int) -> None:
        """Evict the keys older than `kept_ms`, and the oldest beyond `kept_max`."""
        self._expiry_ms = now_ms + self._kept_ms
        while self._ended:
            key, (ended_ms, _) = next(iter(self._ended.items()))
            if len(self._ended) <= self._kept_max and ended_ms + self._kept_ms > now_ms:
                self._expiry_ms = ended_ms + self._kept_ms
                return
            del self._ended[key]
