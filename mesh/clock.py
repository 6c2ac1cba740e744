"""The only reader of the clock. Everything else gets time as an argument."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Monotonic milliseconds: timers, timeouts, ages. Never sent to another host."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Wall-clock milliseconds since 1970: for messages and deadlines that cross processes."""
    return time.time_ns() // 1_000_000


def wall_us() -> int:
    """Wall-clock microseconds, for hop times."""
    return time.time_ns() // 1_000
