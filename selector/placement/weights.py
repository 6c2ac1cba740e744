"""The weights in force: polled from Redis; the configuration's while Redis has none.

A decision reads `weights`, `version` and `rules` without waiting. An unreadable set in Redis is logged and ignored: the
last good one stays in force.
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
from selector.core.kernel import Rules
from selector.metrics import SelectorMetrics

#: The version of the configuration's own weights.
CONFIGURED: Final = 0
_NOT_SET: Final = StoredWeights(CONFIGURED, None, 0, "")

log = get_logger()


class CurrentWeights:
    """The weights by which nodes are compared now, and the kernel's rules that follow from them."""

    def __init__(self, store: Store, config: Config, metrics: SelectorMetrics) -> None:
        self._store = store
        self._config = config
        self._metrics = metrics
        self._use(_NOT_SET)

    def _use(self, stored: StoredWeights) -> None:
        #: The record in Redis: version, since when, by whom.
        self.stored = stored
        #: The set in force, and its version; 0 = the configuration's.
        self.weights: Weights = stored.weights or self._config.weights
        self.version: int = stored.version
        #: The kernel's rules: limits from the configuration, prices from the weights in force. Their time is not set.
        self.rules = rules_of(self._config, self.weights)
        self._metrics.weights_version.set(self.version)

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self.refresh()
            await sleep_jittered(self._config.selector.weights_ms)

    async def refresh(self) -> None:
        """Read the weights once. Never raises StoreError."""
        try:
            found = await self._store.deployment.weights()
        except (StoreError, msgspec.DecodeError, msgspec.ValidationError) as error:
            self._metrics.store_errors_total.labels("weights").inc()
            log.warning("weights_ignored", error=str(error), version=self.version)
            return
        self._take(found)

    async def put(self, weights: Weights, expected_version: int | None, by: str) -> StoredWeights | None:
        """Store another set for all selectors; None if the version in force is not the expected one."""
        stored = await self._store.deployment.set_weights(weights, expected_version, by)
        if stored is not None:
            self._take(stored)
        return stored

    def _take(self, found: StoredWeights) -> None:
        if found.weights is None:
            found = _NOT_SET
        # Compared as a whole: a Redis that lost its data counts versions from the beginning, and its record counts,
        # not our copy.
        if found != self.stored:
            self._use(found)
            log.info("weights_in_force", version=self.version, by=found.by)


def rules_of(config: Config, weights: Weights, now_ms: int = 0) -> Rules:
    """The kernel's rules at a time, from a configuration and a set of weights."""
    return Rules.of(
        weights,
        now_ms=now_ms,
        heartbeat_timeout_ms=config.node.heartbeat_timeout_ms,
        heartbeat_interval_ms=config.node.heartbeat_interval_ms,
        running_fresh_ms=config.selector.running_fresh_ms,
        resource_threshold_percent=config.node.resource_threshold_percent,
        reconnect_grace_ms=config.edge.reconnect_grace_ms,
        compared_max=config.selector.compared_max,
        audio_ms_min=config.speed.audio_ms_min,
    )
