"""Liveness of edges: polls presence from Redis, notes senders of frames; core/liveness.py decides."""

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
    """Feeds the failure detector."""

    def __init__(self, store: Store, config: SelectorConfig) -> None:
        self._store = store
        self._pause_ms = config.presence_ms
        self._detector = LivenessDetector(config.presence_ttl_ms)

    def is_live(self, edge: str) -> bool:
        """False only if the edge is certainly dead."""
        return self._detector.is_live(edge, clock.now_ms())

    def on_messages(self, messages: Iterable[Received]) -> None:
        """The senders of these are live."""
        now_ms = clock.now_ms()
        for message in messages:
            self._detector.on_frame(message.head.source, now_ms)

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            try:
                present = await self._store.deployment.live_identities(ProcessKind.EDGE)
            except StoreError as error:
                self._detector.on_read_failed()
                log.warning("presence_unknown", error=str(error))
            else:
                self._detector.on_presence(present, clock.now_ms())
            await sleep_jittered(self._pause_ms)
