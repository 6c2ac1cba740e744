"""The dependencies that all handlers of one selector share. Owns nothing and decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from lua.store import Store
from mesh.config import Config
from mesh.link.link import Send
from selector.core.node_table import NodeTable
from selector.core.pools import PoolPlan
from selector.fleet.snapshot import Snapshot
from selector.frame_guard import FrameGuard
from selector.metrics import SelectorMetrics


@dataclass(frozen=True, slots=True)
class SelectorContext:
    """Built once per process; handlers get it as their first argument."""

    store: Store
    config: Config
    metrics: SelectorMetrics
    send: Send
    table: NodeTable
    snapshot: Snapshot
    plan: PoolPlan
    guard: FrameGuard
    #: Of this selector in the mesh.
    identity: str = ""

    @classmethod
    def of(
        cls,
        store: Store,
        config: Config,
        metrics: SelectorMetrics,
        send: Send,
        table: NodeTable,
        snapshot: Snapshot,
        identity: str = "",
    ) -> SelectorContext:
        """With the pool plan and the frame guard that follow from configuration and metrics."""
        plan, guard = PoolPlan(config.pools), FrameGuard(metrics)
        return cls(store, config, metrics, send, table, snapshot, plan, guard, identity)
