"""The only module that reads the clock. Cores get time as an argument."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Monotonic milliseconds, for timers, timeouts and ages. Must not be sent to another process."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Wall-clock milliseconds since 1970, for messages and deadlines that cross processes."""
    return time.time_ns() // 1_000_000


def wall_us() -> int:
    """Wall-clock microseconds, for hop times."""
    return time.time_ns() // 1_000
