"""Lanes: bounded queues of received messages, each worked off by one task. Knows no frame and no link."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from mesh.link.link import Received

BatchHandler = Callable[[list[Received]], Awaitable[None]]


class TaskLane:
    """A bounded queue and the task that handles it, batch by batch, in order of arrival."""

    def __init__(
        self, name: str, handle: BatchHandler, done: Callable[[Iterable[Received]], None], batch: int, bound: int
    ) -> None:
        self.name = name
        #: Set while nothing is queued or in progress.
        self.idle = asyncio.Event()
        self.idle.set()
        self._handle = handle
        self._done = done
        self._batch_max = batch
        self._bound = bound
        self._queue: deque[Received] = deque()
        self._arrivals: deque[int] = deque()
        #: Arrival of each message of the batch in progress, by the wall clock.
        self.arrived_us: list[int] = []
        self._wake = asyncio.Event()

    def put(self, message: Received, arrived_us: int) -> bool:
        """Queue a message; False if the lane is full."""
        if len(self._queue) >= self._bound:
            return False
        self._queue.append(message)
        self._arrivals.append(arrived_us)
        self.idle.clear()
        self._wake.set()
        return True

    async def run(self) -> None:
        """Handle batches until cancelled."""
        while True:
            if not self._queue:
                self.idle.set()
                self._wake.clear()
                await self._wake.wait()
            count = min(len(self._queue), self._batch_max)
            batch = [self._queue.popleft() for _ in range(count)]
            self.arrived_us = [self._arrivals.popleft() for _ in range(count)]
            try:
                await self._handle(batch)
            finally:
                self._done(batch)
