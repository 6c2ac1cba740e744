"""Liveness of edges: polls presence from Redis; core/liveness.py decides."""

from __future__ import annotations

from lua.store import Store
from mesh import clock
from mesh.config.network import SelectorConfig
from mesh.errors import StoreError
from mesh.jitter import sleep_jittered
from mesh.log import get_logger
from mesh.words import ProcessKind
from selector.fleet.core.liveness import LivenessDetector

log = get_logger()


class EdgeLiveness:
    """Feeds the failure detector."""

    def __init__(self, store: Store, config: SelectorConfig) -> None:
        self._store = store
        self._pause_ms = config.presence_ms
        #: Also gets every frame of an edge, from the link.
        self.detector = LivenessDetector(config.presence_ttl_ms)

    def is_live(self, edge: str) -> bool:
        """False only if the edge is certainly dead."""
        return self.detector.is_live(edge, clock.now_ms())

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            try:
                present = await self._store.deployment.live_identities(ProcessKind.EDGE)
            except StoreError as error:
                self.detector.on_read_failed()
                log.warning("presence_unknown", error=str(error))
            else:
                self.detector.on_presence(present, clock.now_ms())
            await sleep_jittered(self._pause_ms)
