"""Requests that found no free node and stand in line, the nearest deadline first. Bounded by number and by bytes.

Owns the line and its order. Who is tried, told or refused is the rim's business, and so are the clocks: every time here
is the caller's. The order is a sorted list and no heap, because both ends are wanted: the nearest deadline is served,
the farthest gives way when the line is full (docs/adr/0010-waiting-conflicts-and-decisions.md).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Waiter(Generic[T]):
    """One request in line."""

    request_id: str
    attempt: int
    #: Nobody wants its result later.
    deadline_ms: int
    since_ms: int
    #: It is refused then, if nothing was free before.
    until_ms: int
    #: Memory that it holds.
    size_bytes: int
    #: The same for all that could take one another's node.
    kind: Hashable
    item: T
    #: Of equal deadlines the one that came first is first; set by the line.
    order: tuple[int, int] = field(default=(0, 0), init=False)


class WaitOrder(Generic[T]):
    """All requests in line; at most one attempt of each."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._by_request: dict[str, Waiter[T]] = {}
        #: `order` of every waiter, sorted, and the waiters beside it.
        self._orders: list[tuple[int, int]] = []
        self._waiters: dict[tuple[int, int], Waiter[T]] = {}
        self._by_kind: dict[Hashable, dict[str, Waiter[T]]] = {}
        self._came = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._by_request)

    def __iter__(self) -> Iterator[Waiter[T]]:
        """Everybody, the nearest deadline first, as they stand now: the line may change under way."""
        return iter([self._waiters[order] for order in self._orders])

    def find(self, request_id: str) -> Waiter[T] | None:
        """The attempt of this request that stands in line."""
        return self._by_request.get(request_id)

    def like(self, kind: Hashable) -> Waiter[T] | None:
        """Somebody of this kind; who comes later stands behind them."""
        return next(iter(self._by_kind.get(kind, {}).values()), None)

    def stands(self, waiter: Waiter[T]) -> bool:
        """False once it was removed, evicted or replaced."""
        return self._by_request.get(waiter.request_id) is waiter

    def ahead_of(self, waiter: Waiter[T]) -> int:
        """How many are served before it."""
        return bisect_left(self._orders, waiter.order)

    def push(self, waiter: Waiter[T]) -> list[Waiter[T]]:
        """Put a request in line; returns who had to give way, the new one itself if it has most time.

        An older attempt of the same request is replaced without a word: its edge has given it up. A repeat of the same
        attempt is not pushed: ask `find` first.
        """
        before = self._by_request.get(waiter.request_id)
        if before is not None:
            assert before.attempt < waiter.attempt, f"{waiter.request_id} stands in line already"
            self.remove(before)
        self._came += 1
        waiter.order = (waiter.deadline_ms, self._came)
        insort(self._orders, waiter.order)
        self._waiters[waiter.order] = waiter
        self._by_request[waiter.request_id] = waiter
        self._by_kind.setdefault(waiter.kind, {})[waiter.request_id] = waiter
        self.size_bytes += waiter.size_bytes
        evicted = []
        while len(self._by_request) > self._count_max or self.size_bytes > self._bytes_max:
            last = self._waiters[self._orders[-1]]
            self.remove(last)
            evicted.append(last)
        return evicted

    def remove(self, waiter: Waiter[T]) -> bool:
        """Take a request out of the line; False if it was not there any more."""
        if not self.stands(waiter):
            return False
        del self._by_request[waiter.request_id]
        alike = self._by_kind[waiter.kind]
        del alike[waiter.request_id]
        if not alike:
            del self._by_kind[waiter.kind]
        del self._waiters[waiter.order]
        del self._orders[bisect_left(self._orders, waiter.order)]
        self.size_bytes -= waiter.size_bytes
        return True

    def forget(self, request_id: str, attempt: int) -> Waiter[T] | None:
        """Nobody wants this attempt any more, nor an older one."""
        waiter = self._by_request.get(request_id)
        if waiter is None or waiter.attempt > attempt:
            return None
        self.remove(waiter)
        return waiter

    def overdue(self, now_ms: int) -> list[Waiter[T]]:
        """Those who stand in line for too long; they stay until they are removed."""
        return [waiter for waiter in self if waiter.until_ms <= now_ms]

    def check(self) -> None:
        """Assert that order, names and sizes agree; tests call it after each step."""
        assert self._orders == sorted(self._waiters)
        assert {id(waiter) for waiter in self._waiters.values()} == {id(one) for one in self._by_request.values()}
        assert sum(map(len, self._by_kind.values())) == len(self)
        assert self.size_bytes == sum(waiter.size_bytes for waiter in self._by_request.values())
        assert len(self) <= self._count_max
        assert self.size_bytes <= self._bytes_max


def is_too_late(now_ms: int, predicted_ms: float, deadline_ms: int) -> bool:
    """True if even a slot that came free this moment would bring the result after its deadline."""
    return now_ms + predicted_ms > deadline_ms


def release_forecast_ms(service_ms: float, slots_in_use: int, ahead: int, least_ms: int, most_ms: int) -> int:
    """When a slot may come free for the one behind `ahead` others.

    So many slots, each in use for `service_ms` on the average, come free at an even pace.
    """
    if slots_in_use < 1:
        return least_ms
    return max(least_ms, min(most_ms, round(service_ms * (ahead + 1) / slots_in_use)))
