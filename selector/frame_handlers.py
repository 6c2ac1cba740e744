"""The table of frame handlers: runs a batch of messages, each by the handler of its frame. Knows no lane and no link.

A fault of one message costs that message only: it is logged with its ids, and the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from mesh.frames import Frame
from mesh.link.link import Received
from selector.frame_guard import FrameGuard
from selector.lanes import BatchHandler

F = TypeVar("F", bound=Frame)
Handler = Callable[[F, Received], Awaitable[None]]


class FrameHandlers:
    """Frame type -> handler; either for a whole batch or for one message at a time."""

    def __init__(self, guard: FrameGuard) -> None:
        self._guard = guard
        self._batch: dict[type[Frame], BatchHandler] = {}
        self._single: dict[type[Frame], Handler[Any]] = {}

    @property
    def kinds(self) -> set[type[Frame]]:
        """Frames that have a handler."""
        return {*self._batch, *self._single}

    def on_batch(self, kind: type[Frame], handle: BatchHandler) -> None:
        """Frames of this type come in numbers: one call for all of a batch."""
        self._batch[kind] = handle

    def on(self, kind: type[F], handle: Handler[F]) -> None:
        """One call per frame of this type."""
        self._single[kind] = handle

    def batch_of(self, kind: type[Frame]) -> BatchHandler:
        """The handler for batches of this type alone, which need no sorting."""
        return partial(self._handle_batch, self._batch[kind])

    async def handle(self, messages: list[Received]) -> None:
        """Run the handlers of a batch concurrently; the store's runner pipelines their calls."""
        by_kind: dict[type[Frame], list[Received]] = {}
        for message in messages:
            by_kind.setdefault(type(message.frame), []).append(message)
        calls: list[Awaitable[None]] = []
        for kind, of_kind in by_kind.items():
            handle_batch = self._batch.get(kind)
            if handle_batch is not None:
                calls.append(self._handle_batch(handle_batch, of_kind))
            else:
                handle = self._single[kind]
                calls += [self._guard.run(message, handle(message.frame, message)) for message in of_kind]
        if len(calls) == 1:
            await calls[0]
        else:
            await asyncio.gather(*calls)

    async def _handle_batch(self, handle: BatchHandler, messages: list[Received]) -> None:
        try:
            await handle(messages)
        except Exception:  # noqa: BLE001 - gateway: one bad message must not cost its neighbours; retry one by one
            for message in messages:
                await self._guard.run(message, handle([message]))
