"""Lifetime: the timers of a session: idle, detached for too long, closing for too long, record to be renewed.

Pure: knows no clock and no socket. Whether the client is attached is an argument.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mesh.config.sessions import SessionConfig, SpeechConfig

#: Renewals of a session's record within its TTL.
RENEWALS: Final = 4


class LifetimeLimits(NamedTuple):
    """The timeouts of a session, from the configuration."""

    idle_ms: int
    resume_ms: int
    renew_ms: int

    @classmethod
    def of(cls, speech: SpeechConfig, session: SessionConfig) -> LifetimeLimits:
        """From the configuration."""
        return cls(speech.idle_ms, session.resume_ms, session.idle_ttl_seconds * 1_000 // RENEWALS)


class Lifetime:
    """Of one session. A time of 0 means: never."""

    __slots__ = ("_idle_since_ms", "_limits", "closing_until_ms", "detached_until_ms", "heard_ms", "renew_ms")

    def __init__(self, limits: LifetimeLimits, now_ms: int) -> None:
        self._limits = limits
        #: When the client sent its last message other than a heartbeat.
        self.heard_ms = now_ms
        #: The `heard_ms` after which session_idle was sent; -1 = it never was.
        self._idle_since_ms = -1
        #: When the record is to be renewed.
        self.renew_ms = now_ms + limits.renew_ms
        #: The client is detached and may resume until then.
        self.detached_until_ms = 0
        #: The session is closing, and waits for its last results until then.
        self.closing_until_ms = 0

    def attached(self, now_ms: int) -> None:
        """The client is attached."""
        self.detached_until_ms = 0
        self.heard_ms = now_ms

    def detached(self, now_ms: int) -> None:
        """The client's connection is lost; it may resume."""
        self.detached_until_ms = now_ms + self._limits.resume_ms

    def renewed(self, now_ms: int) -> None:
        """The session's record was renewed."""
        self.renew_ms = now_ms + self._limits.renew_ms

    def closing(self, within_ms: int, now_ms: int) -> bool:
        """The session has to end within that time; False if it is closing already."""
        if self.closing_until_ms:
            return False
        self.closing_until_ms = now_ms + within_ms
        return True

    def idle_for_ms(self, now_ms: int) -> int:
        """How long the client sent nothing, if session_idle is due; else 0. Due once until its next message."""
        quiet_ms = now_ms - self.heard_ms
        if self._idle_since_ms == self.heard_ms or quiet_ms < self._limits.idle_ms:
            return 0
        self._idle_since_ms = self.heard_ms
        return quiet_ms

    def due_ms(self, is_here: bool) -> int:
        """When the next of these things happens."""
        due_ms = self.renew_ms
        if is_here and self._idle_since_ms != self.heard_ms and self.heard_ms + self._limits.idle_ms < due_ms:
            due_ms = self.heard_ms + self._limits.idle_ms
        if self.detached_until_ms and self.detached_until_ms < due_ms:
            due_ms = self.detached_until_ms
        if self.closing_until_ms and self.closing_until_ms < due_ms:
            due_ms = self.closing_until_ms
        return due_ms
