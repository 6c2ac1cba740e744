"""How fast a session may send: what the mesh asked for, and until when. Pure."""

from __future__ import annotations

from typing import Final

from mesh.words import BackpressureAction

#: While the mesh is slow: one message in so much time, which holds as much sound.
SLOW_EVERY_MS: Final = 500
#: How long the mesh's wish counts if it does not say, and at most.
WISH_MS_DEFAULT: Final = 500
WISH_MS_MAX: Final = 60_000


class FlowControl:
    """SLOW_DOWN: fewer, larger messages. PAUSE and BUSY: none at all. Both for as long as the mesh said."""

    def __init__(self) -> None:
        self._silent_until_ms = 0
        self._slow_until_ms = 0
        self._sent_ms = -SLOW_EVERY_MS

    def asked(self, action: str, resume_after_ms: int | None, now_ms: int) -> None:
        """The mesh asked for less."""
        until_ms = now_ms + min(WISH_MS_DEFAULT if resume_after_ms is None else resume_after_ms, WISH_MS_MAX)
        if action == BackpressureAction.SLOW_DOWN:
            self._slow_until_ms = max(self._slow_until_ms, until_ms)
        else:
            self._silent_until_ms = max(self._silent_until_ms, until_ms)

    def refused(self, now_ms: int) -> None:
        """Something was not taken: it is sent again after the pause that the mesh asks for, or else a short one."""
        if self._silent_until_ms <= now_ms:
            self.asked(BackpressureAction.BUSY, None, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """How long to wait before the next message; 0 = not at all."""
        slow_ms = min(self._slow_until_ms, self._sent_ms + SLOW_EVERY_MS)
        return max(0, self._silent_until_ms - now_ms, slow_ms - now_ms)

    def join_ms(self, now_ms: int) -> int:
        """So much sound goes into one message."""
        return SLOW_EVERY_MS if now_ms < self._slow_until_ms else 0

    def sent(self, now_ms: int) -> None:
        """A message went out."""
        self._sent_ms = now_ms
