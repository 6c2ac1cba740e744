"""Presence: reports every selector.presence_ms that this edge is live, with the counts of its utterances."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from importlib.metadata import version

from edge.link.link import EdgeLink
from mesh.clock import now_ms, wall_ms
from mesh.frames import EdgeReport
from mesh.jitter import jittered_ms


class PresenceReporter:
    """The liveness reports of one edge, driven by the edge's one timer."""

    def __init__(self, every_ms: int, link: EdgeLink, counts: Callable[[], dict[str, int]]) -> None:
        self._every_ms = every_ms
        self._link = link
        self._counts = counts
        self._host = socket.gethostname()
        self._version = version("lingua-mesh")
        self._started_at_ms = wall_ms()
        self._due_ms = now_ms()

    def next_due_ms(self) -> int:
        """When the next report is due."""
        return self._due_ms

    def tick(self, now: int) -> None:
        """Send a report if one is due. It is not retried: the next one replaces a lost one."""
        if now < self._due_ms:
            return
        self._due_ms = now + jittered_ms(self._every_ms)
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
