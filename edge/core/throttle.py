"""Patience: how fast a peer is read that sends what does no work, such as errors.

Whoever complains more than `per_s` times a second, beyond a second's worth at once, is read more slowly. What it sends
meanwhile waits at its own end of the wire, so that it costs its neighbours nothing.
"""

from __future__ import annotations

from typing import Final

#: So much may come at once, in time's worth of complaints.
_BURST_MS: Final = 1_000.0


class ReadThrottle:
    """With one peer."""

    def __init__(self, per_s: int) -> None:
        self._each_ms = 1_000.0 / per_s
        #: When all complaints so far would have come, had they come at their pace.
        self._paced_ms = 0.0

    def wait_ms(self, now_ms: int) -> float:
        """One more complaint; how long to rest before the next message is read."""
        self._paced_ms = max(self._paced_ms, now_ms) + self._each_ms
        return max(0.0, self._paced_ms - now_ms - _BURST_MS)
