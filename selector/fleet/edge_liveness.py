"""Keeps up with which edges live: reads their presence from Redis, and hears whoever speaks to this selector."""

from __future__ import annotations

from collections.abc import Iterable

from lua.store import Store
from mesh import clock
from mesh.config.network import SelectorConfig
from mesh.errors import StoreError
from mesh.jitter import sleep_jittered
from mesh.link.link import Received
from mesh.log import get_logger
from mesh.words import ProcessKind
from selector.fleet.core.liveness import LivenessDetector

log = get_logger()


class EdgeLiveness:
    """The edges that live."""

    def __init__(self, store: Store, config: SelectorConfig) -> None:
        self._store = store
        self._pause_ms = config.presence_ms
        self._living = LivenessDetector(config.presence_ttl_ms)

    def is_live(self, edge: str) -> bool:
        """False if the edge is certainly gone."""
        return self._living.lives(edge, clock.now_ms())

    def on_messages(self, messages: Iterable[Received]) -> None:
        """Whoever sent these lives."""
        now_ms = clock.now_ms()
        for message in messages:
            self._living.heard(message.head.source, now_ms)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            try:
                present = await self._store.deployment.live_identities(ProcessKind.EDGE)
            except StoreError as error:
                self._living.look_failed()
                log.warning("presence_unknown", error=str(error))
            else:
                self._living.looked(present, clock.now_ms())
            await sleep_jittered(self._pause_ms)
