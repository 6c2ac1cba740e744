"""Timers: one due time per key, in one heap. Owns no clock; whoever ticks it says what time it is."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: Superseded entries that the heap may carry beyond the live ones before it is rebuilt.
_SLACK = 64
#: Waits that are kept short (`resend_wait_ms`). They last for more than twice the time in which a dead peer is noticed.
EARLY_TRIES: Final = 6


class Timers(Generic[K]):
    """Many deadlines, one place to ask which are due.

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
        """Make `key` due at `due_ms`, and at no other time."""
        self._serial += 1
        self._due[key] = (due_ms, self._serial)
        heappush(self._heap, (due_ms, self._serial, key))
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._heap = [(due, serial, live) for live, (due, serial) in self._due.items()]
            heapify(self._heap)

    def drop(self, key: K) -> None:
        """Forget `key`; nothing happens if it has no timer."""
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
        """The keys that are due, earliest first; their timers are gone."""
        keys: list[K] = []
        while (due_ms := self.next_due_ms()) is not None and due_ms <= now_ms:
            key = heappop(self._heap)[2]
            del self._due[key]
            keys.append(key)
        return keys


def back_off_ms(first_ms: int, tries: int, max_ms: int) -> int:
    """The wait after the `tries`-th unanswered send: doubles from `first_ms`, never above `max_ms`."""
    return min(first_ms << min(tries, 20), max_ms)


def resend_wait_ms(first_ms: int, tries: int, early_ms_max: int, max_ms: int) -> int:
    """The same for what is sent to a peer that may hang: the first few repeats are at most `early_ms_max` apart.

    Until the mesh notices, they all go the same way; a wait that has doubled by then would be added to that time.
    """
    return back_off_ms(first_ms, tries, min(early_ms_max, max_ms) if tries < EARLY_TRIES else max_ms)


def earliest(dues: Iterable[int | None]) -> int | None:
    """The first of several due times, of which any may be None; None if all are. Asked after every message."""
    first: int | None = None
    for due_ms in dues:
        if due_ms is not None and (first is None or due_ms < first):
            first = due_ms
    return first
