"""Writes presence to Redis: of this selector, and of edges by their reports."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from lua.store import Store
from lua.store.types.deployment import Presence
from mesh import clock
from mesh.config.network import SelectorConfig
from mesh.errors import StoreError
from mesh.frames import EdgeReport
from mesh.jitter import sleep_jittered
from mesh.link.link import Received
from mesh.log import get_logger
from mesh.words import EdgeCount, ProcessKind

log = get_logger()


class PresenceAnnouncer:
    """Renews the records until this process ends."""

    def __init__(
        self, store: Store, identity: str, version: str, config: SelectorConfig, counts: Callable[[], dict[str, int]]
    ) -> None:
        """`counts`: this selector's counters for its record."""
        self._store = store
        self._identity = identity
        self._facts = Presence(socket.gethostname(), os.getpid(), version, clock.wall_ms())
        self._pause_ms = config.presence_ms
        self._counts = counts

    async def run(self) -> None:
        """Renew the record until cancelled."""
        while True:
            try:
                await self._store.deployment.announce(
                    ProcessKind.SELECTOR, self._identity, self._facts._replace(counts=self._counts())
                )
            except StoreError as error:
                log.warning("presence_failed", error=str(error))
            await sleep_jittered(self._pause_ms)

    async def on_edge_report(self, report: EdgeReport, message: Received) -> None:
        """An edge is live. Refused if the sender is another one."""
        if message.head.source != report.edge:
            raise ValueError(f"{message.head.source} reports for {report.edge}")
        counts: dict[str, int] = {name: max(0, report.counts.get(name, 0)) for name in EdgeCount}
        facts = Presence(report.host, report.pid, report.version, report.started_at_ms, counts)
        await self._store.deployment.announce(ProcessKind.EDGE, report.edge, facts)

    async def end(self) -> None:
        """Delete the record; on a store error it expires."""
        try:
            await self._store.deployment.withdraw(ProcessKind.SELECTOR, self._identity)
        except StoreError as error:
            log.warning("presence_failed", error=str(error))
