"""Life: what the passing of time does to a session: it is idle, gone for good, closed, or its record wants renewing.

Pure: knows no clock and no socket. Whether the client is there is an argument.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mesh.config.sessions import SessionConfig, SpeechConfig

#: A session's record is renewed so often within its life.
RENEWALS: Final = 4


class LifetimeLimits(NamedTuple):
    """The bounds this core obeys, from the configuration."""

    idle_ms: int
    resume_ms: int
    renew_ms: int

    @classmethod
    def of(cls, speech: SpeechConfig, session: SessionConfig) -> LifetimeLimits:
        """As the configuration says."""
        return cls(speech.idle_ms, session.resume_ms, session.idle_ttl_seconds * 1_000 // RENEWALS)


class Lifetime:
    """Of one session. A time of 0 means: never."""

    __slots__ = ("_idle_told", "_limits", "_quiet_ms", "closing_until_ms", "detached_until_ms", "renew_ms")

    def __init__(self, limits: LifetimeLimits, now_ms: int) -> None:
        self._limits = limits
        self._quiet_ms = now_ms
        self._idle_told = False
        #: When the record is to be renewed.
        self.renew_ms = now_ms + limits.renew_ms
        #: The client is gone and may come back until then.
        self.detached_until_ms = 0
        #: The client wants to leave, and waits for the last results until then.
        self.closing_until_ms = 0

    def heard(self, now_ms: int) -> None:
        """The client said something that is no heartbeat."""
        self._quiet_ms = now_ms
        self._idle_told = False

    def attached(self, now_ms: int) -> None:
        """The client is here."""
        self.detached_until_ms = 0
        self.heard(now_ms)

    def detached(self, now_ms: int) -> None:
        """The client's connection is lost; it may come back."""
        self.detached_until_ms = now_ms + self._limits.resume_ms

    def renewed(self, now_ms: int) -> None:
        """The mesh was told that the session lives."""
        self.renew_ms = now_ms + self._limits.renew_ms

    def closing(self, within_ms: int, now_ms: int) -> bool:
        """The session is to end within that time; False if that is so already."""
        if self.closing_until_ms:
            return False
        self.closing_until_ms = now_ms + within_ms
        return True

    def idle_for_ms(self, now_ms: int) -> int:
        """For how long nothing was heard, if the client shall be told so now; else 0. Told once until it speaks."""
        quiet_ms = now_ms - self._quiet_ms
        if self._idle_told or quiet_ms < self._limits.idle_ms:
            return 0
        self._idle_told = True
        return quiet_ms

    def due_ms(self, is_here: bool) -> int:
        """When the next of these things happens."""
        due_ms = self.renew_ms
        if is_here and not self._idle_told:
            due_ms = min(due_ms, self._quiet_ms + self._limits.idle_ms)
        for until_ms in (self.detached_until_ms, self.closing_until_ms):
            due_ms = min(due_ms, until_ms) if until_ms else due_ms
        return due_ms
