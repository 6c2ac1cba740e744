"""Presence: reports every selector.presence_ms that this edge is live, with the counts of its utterances."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from importlib.metadata import version

from edge.core.timers import Schedule
from edge.link.link import EdgeLink
from mesh.clock import now_ms, wall_ms
from mesh.frames import EdgeReport
from mesh.jitter import jittered_ms


class PresenceReporter:
    """The liveness reports of one edge, driven by the edge's one timer."""

    def __init__(self, every_ms: int, link: EdgeLink, schedule: Schedule, counts: Callable[[], dict[str, int]]) -> None:
        self._every_ms = every_ms
        self._link = link
        self._schedule = schedule
        self._counts = counts
        self._host = socket.gethostname()
        self._version = version("lingua-mesh")
        self._started_at_ms = wall_ms()

    def start(self) -> None:
        """Report soon, and then at intervals."""
        self._schedule.set(self.tick, now_ms())

    def tick(self, now: int) -> None:
        """Send a report, and schedule the next one. It is not retried: the next one replaces a lost one."""
        self._schedule.set(self.tick, now + jittered_ms(self._every_ms))
        self._link.to_any_selector(
            EdgeReport(
                edge=self._link.identity,
                host=self._host,
                pid=os.getpid(),
                version=self._version,
                started_at_ms=self._started_at_ms,
                counts=self._counts(),
            )
        )
