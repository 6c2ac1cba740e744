"""Timers: one due time per key, in one heap. Owns no clock: the time is an argument."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: Superseded entries that the heap may carry beyond the live ones before it is rebuilt.
_SLACK: Final = 64


class Timers(Generic[K]):
    """Deadlines by key, earliest first.

    Moving a timer leaves its old entry in the heap, to be skipped when it surfaces; the heap is rebuilt when
    such entries outnumber the live ones, so its size stays within twice the number of keys.
    """

    def __init__(self) -> None:
        self._due: dict[K, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, due_ms: int) -> None:
        """Make `key` due at `due_ms`; an earlier due time of the key is replaced."""
        self._serial += 1
        self._due[key] = (due_ms, self._serial)
        heappush(self._heap, (due_ms, self._serial, key))
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._heap = [(due, serial, live) for live, (due, serial) in self._due.items()]
            heapify(self._heap)

    def drop(self, key: K) -> None:
        """Cancel the timer of `key`; no error if it has none."""
        self._due.pop(key, None)

    def next_due_ms(self) -> int | None:
        """When the earliest timer is due; None if there is none."""
        while self._heap:
            due_ms, serial, key = self._heap[0]
            if self._due.get(key) == (due_ms, serial):
                return due_ms
            heappop(self._heap)
        return None

    def pop_due(self, now_ms: int) -> list[K]:
        """The keys that are due, earliest first. Their timers are removed."""
        keys: list[K] = []
        while (due_ms := self.next_due_ms()) is not None and due_ms <= now_ms:
            key = heappop(self._heap)[2]
            del self._due[key]
            keys.append(key)
        return keys


def earliest(dues: Iterable[int | None]) -> int | None:
    """The first of several due times, of which any may be None; None if all are. Runs after every message."""
    first: int | None = None
    for due_ms in dues:
        if due_ms is not None and (first is None or due_ms < first):
            first = due_ms
    return first
