"""Priority queue of waiting requests, earliest deadline first. Bounded by number and by bytes.

Owns the entries and their order. Retries, replies and clocks belong to placement/wait_queue.py: every time here is an
argument. The order is a sorted list and not a heap, because both ends are needed: the earliest deadline is served, the
latest is evicted when the queue is full (docs/adr/0010-waiting-conflicts-and-decisions.md).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class QueueEntry(msgspec.Struct, Generic[T], eq=False):
    """One waiting request."""

    request_id: str
    attempt: int
    #: A later result is useless.
    deadline_ms: int
    since_ms: int
    #: It is refused at this time if no slot came free before.
    until_ms: int
    #: Memory that it occupies.
    size_bytes: int
    #: Equal for entries that can use the same nodes.
    needs: Hashable
    item: T
    #: (deadline, arrival number): equal deadlines are served in order of arrival. Set by the queue.
    order: tuple[int, int] = (0, 0)


class DeadlineQueue(Generic[T]):
    """All waiting requests; at most one attempt of each."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        #: Request id -> its queued attempt. Only the queue writes it.
        self.by_request: dict[str, QueueEntry[T]] = {}
        #: `order` of every entry, sorted, and the entries by it.
        self._orders: list[tuple[int, int]] = []
        self._entries: dict[tuple[int, int], QueueEntry[T]] = {}
        self._by_needs: dict[Hashable, dict[str, QueueEntry[T]]] = {}
        self._arrivals = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.by_request)

    def __iter__(self) -> Iterator[QueueEntry[T]]:
        """A copy of the entries, earliest deadline first: the queue may change during the iteration."""
        return iter([self._entries[order] for order in self._orders])

    def first(self, count: int, scan_max: int) -> tuple[list[QueueEntry[T]], bool]:
        """Up to `count` entries of each needs, earliest deadline first; and whether each needs has that many here, or
        all that it has. Looks at `scan_max` entries at most."""
        found: list[QueueEntry[T]] = []
        taken: dict[Hashable, int] = {}
        complete = 0
        for order in self._orders[:scan_max] if len(self._by_needs) > 1 else self._orders[:count]:
            entry = self._entries[order]
            number = taken[entry.needs] = taken.get(entry.needs, 0) + 1
            if number <= count:
                found.append(entry)
            if number == min(count, len(self._by_needs[entry.needs])):
                complete += 1
                if complete == len(self._by_needs):
                    break
        return found, complete == len(self._by_needs)

    def find_same_needs(self, needs: Hashable) -> QueueEntry[T] | None:
        """An entry with these needs; a later request with the same needs must not overtake it."""
        return next(iter(self._by_needs.get(needs, {}).values()), None)

    def is_queued(self, entry: QueueEntry[T]) -> bool:
        """False once it was removed, evicted or replaced."""
        return self.by_request.get(entry.request_id) is entry

    def ahead_of(self, entry: QueueEntry[T]) -> int:
        """How many entries are served before it."""
        return bisect_left(self._orders, entry.order)

    def push(self, entry: QueueEntry[T]) -> list[QueueEntry[T]]:
        """Add a request; returns the evicted entries, latest deadline first. The new one itself may be among them.

        Replaces an older attempt of the same request, which its edge has cancelled. A retry of the same attempt must
        not be pushed: see `by_request` first.
        """
        before = self.by_request.get(entry.request_id)
        if before is not None:
            assert before.attempt < entry.attempt, f"{entry.request_id} is queued already"
            self.remove(before)
        self._arrivals += 1
        entry.order = (entry.deadline_ms, self._arrivals)
        insort(self._orders, entry.order)
        self._entries[entry.order] = entry
        self.by_request[entry.request_id] = entry
        self._by_needs.setdefault(entry.needs, {})[entry.request_id] = entry
        self.size_bytes += entry.size_bytes
        evicted = []
        while len(self.by_request) > self._count_max or self.size_bytes > self._bytes_max:
            last = self._entries[self._orders[-1]]
            self.remove(last)
            evicted.append(last)
        return evicted

    def remove(self, entry: QueueEntry[T]) -> bool:
        """Remove a request; False if it was not queued any more."""
        if not self.is_queued(entry):
            return False
        del self.by_request[entry.request_id]
        same_needs = self._by_needs[entry.needs]
        del same_needs[entry.request_id]
        if not same_needs:
            del self._by_needs[entry.needs]
        del self._entries[entry.order]
        del self._orders[bisect_left(self._orders, entry.order)]
        self.size_bytes -= entry.size_bytes
        return True

    def cancel(self, request_id: str, attempt: int) -> QueueEntry[T] | None:
        """Remove this attempt, or an older one; returns the removed entry."""
        entry = self.by_request.get(request_id)
        if entry is None or entry.attempt > attempt:
            return None
        self.remove(entry)
        return entry

    def overdue(self, now_ms: int) -> list[QueueEntry[T]]:
        """Entries whose `until_ms` has passed; they stay until they are removed."""
        return [entry for entry in self if entry.until_ms <= now_ms]

    def check(self) -> None:
        """Assert that order, names and sizes agree; tests call it after each step."""
        assert self._orders == sorted(self._entries)
        assert {id(entry) for entry in self._entries.values()} == {id(entry) for entry in self.by_request.values()}
        assert sum(map(len, self._by_needs.values())) == len(self)
        assert self.size_bytes == sum(entry.size_bytes for entry in self.by_request.values())
        assert len(self) <= self._count_max
        assert self.size_bytes <= self._bytes_max


def is_too_late(now_ms: int, predicted_ms: float, deadline_ms: int) -> bool:
    """True if even a slot that came free now would deliver the result after its deadline."""
    return now_ms + predicted_ms > deadline_ms
