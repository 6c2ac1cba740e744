"""The weights in force: looked up in Redis again and again, the configuration's while Redis has none.

A choice reads `weights` and `version` without waiting. What lies in Redis and cannot be read is logged and ignored: the
last good set stays in force.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lua.store import Store
from lua.store.types.deployment import StoredWeights
from mesh.config import Config
from mesh.config.weights import Weights
from mesh.errors import StoreError
from mesh.jitter import sleep_jittered
from mesh.log import get_logger
from selector.metrics import SelectorMetrics

#: The version of the configuration's own weights.
CONFIGURED: Final = 0
_NOT_SET: Final = StoredWeights(CONFIGURED, None, 0, "")

log = get_logger()


class CurrentWeights:
    """What choices cost, now."""

    def __init__(self, store: Store, config: Config, metrics: SelectorMetrics) -> None:
        self._store = store
        self._metrics = metrics
        self._configured = config.weights
        self._pause_ms = config.selector.weights_ms
        self._stored = _NOT_SET
        metrics.weights_version.set(CONFIGURED)

    @property
    def weights(self) -> Weights:
        """The set in force."""
        return self._stored.weights or self._configured

    @property
    def version(self) -> int:
        """Its number; 0 = the configuration's."""
        return self._stored.version

    @property
    def stored(self) -> StoredWeights:
        """Since when, and by whom."""
        return self._stored

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self.refresh()
            await sleep_jittered(self._pause_ms)

    async def refresh(self) -> None:
        """Look once. Never raises StoreError."""
        try:
            found = await self._store.deployment.weights()
        except (StoreError, msgspec.DecodeError, msgspec.ValidationError) as error:
            self._metrics.store_errors_total.labels("weights").inc()
            log.warning("weights_ignored", error=str(error), version=self.version)
            return
        self._take(found)

    async def put(self, weights: Weights, expected_version: int | None, by: str) -> StoredWeights | None:
        """Put another set in force everywhere; None if the version in force is not the expected one."""
        stored = await self._store.deployment.set_weights(weights, expected_version, by)
        if stored is not None:
            self._take(stored)
        return stored

    def _take(self, found: StoredWeights) -> None:
        if found.weights is None:
            found = _NOT_SET
        # Compared as a whole: a Redis that lost everything counts its versions from the beginning, and what it has
        # counts, not what we remember.
        if found != self._stored:
            self._stored = found
            self._metrics.weights_version.set(self.version)
            log.info("weights_in_force", version=self.version, by=found.by)
