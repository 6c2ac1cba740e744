"""Timers: one due time per key, in one heap. Owns no clock: the time is an argument.

A component has its own Timers and is not polled: its Timers announce their head to the Schedule of the process, which
announces its own head to the process's one clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

#: Announces a due time.
Wake = Callable[[int], None]
#: Runs all that is due at the given time.
Tick = Callable[[int], None]

#: Superseded entries that the heap may carry beyond the live ones before it is rebuilt.
_SLACK: Final = 64


def no_wake(due_ms: int) -> None:
    """For timers whose owner ticks without being woken."""


class Timers(Generic[K]):
    """Deadlines by key, earliest first.

    Moving a timer leaves its old entry in the heap, to be skipped when it surfaces; the heap is rebuilt when
    such entries outnumber the live ones, so its size stays within twice the number of keys.

    `wake` is called with the due time of the head when that becomes earlier than announced, and at the end of
    `pop_due`. An announced time is not withdrawn when its timer moves: `pop_due` at that time finds nothing due, and
    announces the next one. So `pop_due` must be called at every announced time.
    """

    def __init__(self, wake: Wake = no_wake) -> None:
        self.wake = wake
        self._announced_ms: int | None = None
        self._due: dict[K, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def __iter__(self) -> Iterator[K]:
        return iter(self._due)

    def set(self, key: K, due_ms: int) -> None:
        """Make `key` due at `due_ms`; an earlier due time of the key is replaced."""
        self._serial += 1
        self._due[key] = (due_ms, self._serial)
        heappush(self._heap, (due_ms, self._serial, key))
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._heap = [(due, serial, live) for live, (due, serial) in self._due.items()]
            heapify(self._heap)
        if self._announced_ms is None or due_ms < self._announced_ms:
            self._announced_ms = due_ms
            self.wake(due_ms)

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
        self._announced_ms = None
        while self._heap:
            due_ms, serial, key = self._heap[0]
            is_live = self._due.get(key) == (due_ms, serial)
            if is_live and due_ms > now_ms:
                self._announced_ms = due_ms
                self.wake(due_ms)
                break
            heappop(self._heap)
            if is_live:
                del self._due[key]
                keys.append(key)
        return keys

    def check(self) -> None:
        """No timer is due before the announced time."""
        due_ms = self.next_due_ms()
        assert due_ms is None or (self._announced_ms is not None and self._announced_ms <= due_ms)


class Schedule(Timers[Tick]):
    """The one deadline heap of a process: when each of its components has to tick."""

    def bring_forward(self, tick: Tick, due_ms: int) -> None:
        """Call `tick` at `due_ms`, unless it is due earlier. Timers of one component share its `tick`."""
        due = self._due.get(tick)
        if due is None or due_ms < due[0]:
            self.set(tick, due_ms)

    def waker(self, tick: Tick) -> Wake:
        """The `wake` of a component's Timers: announces when `tick` has to be called."""
        return partial(self.bring_forward, tick)


def earliest(dues: Iterable[int | None]) -> int | None:
    """The first of several due times, of which any may be None; None if all are."""
    first: int | None = None
    for due_ms in dues:
        if due_ms is not None and (first is None or due_ms < first):
            first = due_ms
    return first
