"""Gathered acknowledgements: those for one peer leave as one frame. Owns the pending ones; knows no link and no clock.

An acknowledgement only ends the retries of a frame, which begin much later. So it waits for others to the same peer:
for `delay_ms`, until there are `batch_max`, or until its owner sends something anyway (`pop_all`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Gathered(Generic[T]):
    """Pending acknowledgements by the peer that waits for them. `wake` gets the time at which `pop_all` is due."""

    def __init__(self, batch_max: int, delay_ms: int, wake: Callable[[int], None]) -> None:
        self._batch_max = batch_max
        self._delay_ms = delay_ms
        self._wake = wake
        self._pending: dict[str, list[T]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._pending.values()))

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(self, peer: str, ack: T, now_ms: int) -> list[T] | None:
        """Gather one; the acknowledgements to send now if the batch of that peer is full."""
        if not self._pending:
            self._wake(now_ms + self._delay_ms)
        acks = self._pending.get(peer)
        if acks is None:
            acks = self._pending[peer] = []
        acks.append(ack)
        if len(acks) < self._batch_max:
            return None
        del self._pending[peer]
        return acks

    def pop_all(self) -> list[tuple[str, list[T]]]:
        """Those of all peers; nothing is pending afterwards."""
        pending, self._pending = self._pending, {}
        return list(pending.items())
