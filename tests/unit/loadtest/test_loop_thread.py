"""Greenlets that call coroutines in a thread with an asyncio loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import gevent
import pytest

from loadtest.loop_thread import LoopThread


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    yield LoopThread()


def test_a_call_returns_the_result_of_the_other_thread(loop: LoopThread) -> None:
    async def ident() -> int:
        await asyncio.sleep(0)
        return threading.get_ident()

    assert loop.call(ident()) != threading.get_ident()


def test_an_exception_is_raised_in_the_caller(loop: LoopThread) -> None:
    async def fail() -> None:
        raise ValueError("lost")

    with pytest.raises(ValueError, match="lost"):
        loop.call(fail())


def test_calls_of_several_greenlets_run_side_by_side(loop: LoopThread) -> None:
    async def make_event() -> asyncio.Event:
        return asyncio.Event()

    async def wait(event: asyncio.Event) -> str:
        await event.wait()
        return "woken"

    event = loop.call(make_event())
    waiting = gevent.spawn(loop.call, wait(event))
    gevent.sleep(0)
    loop.run_soon(event.set)
    assert waiting.get(timeout=60) == "woken"


def test_a_killed_greenlet_cancels_its_call(loop: LoopThread) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    calling = gevent.spawn(loop.call, wait())
    gevent.sleep(0)
    assert started.wait(60)
    calling.kill()
    assert cancelled.wait(60)
