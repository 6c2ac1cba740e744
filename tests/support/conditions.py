"""Waiting for conditions. One bound for all tests: only a broken mesh takes that long, on a busy machine too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

DEADLINE_S = 120.0
_POLL_S = 0.02

T = TypeVar("T")


async def until(condition: Callable[[], T | Awaitable[T]], what: str) -> T:
    """The first true value of `condition`. AssertionError names the condition that did not come true."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value  # type: ignore[return-value]
        assert time.monotonic() < deadline_s, f"not within {DEADLINE_S:g} s: {what}"
        await asyncio.sleep(_POLL_S)


def wait_until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    """The same for a test without an event loop. `what` is evaluated for the message of a failure."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {DEADLINE_S:g} s: {what()}"
        time.sleep(_POLL_S)
