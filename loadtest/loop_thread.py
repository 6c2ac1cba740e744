"""One asyncio event loop in a native thread of a locust process. Users are greenlets that call coroutines in it.

uvloop uses none of Python's sockets, which gevent has patched. An echo of 13 KB over one of 64 connections costs 22 us
of CPU this way, the hand-over between the threads included, and 25 us by `websockets.sync` under gevent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import gevent
import uvloop
from gevent import monkey
from gevent.event import AsyncResult

T = TypeVar("T")


class LoopThread:
    """Create it in the thread of the greenlets. It ends with the process."""

    def __init__(self) -> None:
        hub = gevent.get_hub()
        self._loop = uvloop.new_event_loop()
        self._finished: deque[tuple[AsyncResult, asyncio.Task[Any]]] = deque()
        # gevent's own results are not thread-safe: the loop wakes the greenlets' thread, which sets them.
        self._wakeup = hub.loop.async_()
        self._wakeup.start(self._deliver)
        monkey.get_original("_thread", "start_new_thread")(self._loop.run_forever, ())

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. A greenlet that is killed meanwhile cancels it."""
        result: AsyncResult = AsyncResult()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            task = self._loop.create_task(coroutine)
            tasks.append(task)
            task.add_done_callback(lambda done: self._finish(result, done))

        self._loop.call_soon_threadsafe(start)
        try:
            value: T = result.get()
        except gevent.GreenletExit:
            self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            raise
        return value

    def run_soon(self, function: Callable[[], None]) -> None:
        """Call a function in the loop's thread, without waiting for it."""
        self._loop.call_soon_threadsafe(function)

    def _finish(self, result: AsyncResult, task: asyncio.Task[Any]) -> None:
        self._finished.append((result, task))
        self._wakeup.send()

    def _deliver(self) -> None:
        while self._finished:
            result, task = self._finished.popleft()
            if task.cancelled():
                result.set_exception(gevent.GreenletExit())
            elif error := task.exception():
                result.set_exception(error)
            else:
                result.set(task.result())
