"""Token-bucket throttle of one peer.

Delays reads from a node that sends more than `per_s` error messages per second (burst: one second's worth). Unread
messages wait in the node's own TCP connection, so a misbehaving node costs its neighbours nothing.
"""

from __future__ import annotations

from typing import Final

#: The burst, as time: messages of one second may arrive at once.
_BURST_MS: Final = 1_000.0


class ReadThrottle:
    """The bucket of one peer. Owns no clock and does not sleep: the reader waits for `wait_ms`."""

    def __init__(self, per_s: int) -> None:
        self._interval_ms = 1_000.0 / per_s
        #: When all messages so far would have arrived at the permitted rate.
        self._paced_ms = 0.0

    def wait_ms(self, now_ms: int) -> float:
        """Count one message; how long to wait before the next read."""
        self._paced_ms = max(self._paced_ms, now_ms) + self._interval_ms
        return max(0.0, self._paced_ms - now_ms - _BURST_MS)
