"""Backoff: how long to wait before a retry. Pure functions; the caller owns the timer and the number of retries."""

from __future__ import annotations

from typing import Final

#: Retries whose interval is capped at `early_ms_max`. Together they outlast twice the time in which a dead peer is
#: detected.
EARLY_RETRIES: Final = 6
#: Beyond this many doublings every interval is at its bound; the shift stays small.
_DOUBLINGS_MAX: Final = 20


def backoff_ms(first_ms: int, retries: int, max_ms: int) -> int:
    """Exponential backoff: the wait after `retries` retries doubles from `first_ms`, never above `max_ms`."""
    return min(first_ms << min(retries, _DOUBLINGS_MAX), max_ms)


def retry_wait_ms(first_ms: int, retries: int, early_ms_max: int, max_ms: int) -> int:
    """Exponential backoff, capped at `early_ms_max` for the first EARLY_RETRIES retries.

    Until the failure detector fires, all retries reach the same dead peer; an interval that has already doubled would
    add to the failover time.
    """
    cap_ms = min(early_ms_max, max_ms) if retries < EARLY_RETRIES else max_ms
    return min(first_ms << min(retries, _DOUBLINGS_MAX), cap_ms)
