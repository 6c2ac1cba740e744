"""Gathered acknowledgements: one ResultAcks per edge for many results. Owns the pending ones; knows no link, no clock.

An acknowledgement only ends the retries of a result, which begin after `edge.resend_ms`. So it waits until a message
goes to a broker anyway (`pop_all`), for `delay_ms`, or until there are `batch_max` for one edge.
"""

from __future__ import annotations

from edge.core.timers import Wake, no_wake
from mesh.frames import ResultAck, ResultAcks


class GatheredAcks:
    """Pending acknowledgements by the edge that waits for them."""

    def __init__(self, batch_max: int, delay_ms: int, wake: Wake = no_wake) -> None:
        self._batch_max = batch_max
        self._delay_ms = delay_ms
        self._wake = wake
        self._pending: dict[str, list[ResultAck]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._pending.values()))

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(self, edge: str, ack: ResultAck, now_ms: int) -> ResultAcks | None:
        """Gather one; the frame to send now if the batch of that edge is full."""
        if not self._pending:
            self._wake(now_ms + self._delay_ms)
        acks = self._pending.get(edge)
        if acks is None:
            acks = self._pending[edge] = []
        acks.append(ack)
        if len(acks) < self._batch_max:
            return None
        del self._pending[edge]
        return ResultAcks(acks)

    def pop_all(self) -> list[tuple[str, ResultAcks]]:
        """The frames of all edges; nothing is pending afterwards."""
        pending, self._pending = self._pending, {}
        return [(edge, ResultAcks(acks)) for edge, acks in pending.items()]
