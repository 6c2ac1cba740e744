"""Jitter: randomly shortened intervals, so that processes that started together do not stay synchronised."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

#: The largest part of an interval that is subtracted.
JITTER: Final = 0.2


def jittered_ms(interval_ms: int, draw: Callable[[], float] = random.random) -> int:
    """`interval_ms` minus up to JITTER of it. `draw` returns a number from 0 to 1."""
    return round(interval_ms * (1 - JITTER * draw()))


async def sleep_jittered(interval_ms: int) -> None:
    """Sleep for one jittered interval."""
    await asyncio.sleep(jittered_ms(interval_ms) / 1_000)
