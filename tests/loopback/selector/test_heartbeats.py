"""Heartbeats that cross other news of their node, with a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from prometheus_client import CollectorRegistry

from linguamesh.local.redis_server import RedisServer
from lua.engine.runner import Runner
from lua.store import Store
from lua.store.nodes import NodeStore
from lua.store.types.nodes import Heartbeat, HeartbeatReply
from mesh.config import Config
from mesh.config.network import RedisConfig
from mesh.errors import StoreError
from mesh.frames import Head, Lane, NodeHeartbeat, NodeLoad
from mesh.keys import Keys
from mesh.link.link import Received
from selector.context import SelectorContext
from selector.core.node_table import NodeTable
from selector.fleet.registration import NodeRegistration
from selector.fleet.snapshot import Snapshot
from selector.metrics import SelectorMetrics
from tests.support.builders.selector import CAPS

EDGE = "edge:a:1"


class InterruptedNodes(NodeStore):
    """Runs `meanwhile` while a heartbeat is on its way to Redis."""

    meanwhile: Callable[[], Awaitable[None]]

    async def heartbeat_many(self, beats: Sequence[Heartbeat]) -> list[HeartbeatReply | StoreError]:
        await self.meanwhile()
        return await super().heartbeat_many(beats)


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[Store]:
    config = Config(redis=RedisConfig(url=redis_server.url))
    runner = await Runner.connect(config.redis)
    store = Store(runner, Keys(), config)
    store.nodes = InterruptedNodes(runner, Keys(), config, store.jobs)
    yield store
    await runner.close()


async def test_a_heartbeat_does_not_undo_what_the_snapshot_brought_meanwhile(store: Store) -> None:
    config, metrics, table = Config(), SelectorMetrics(CollectorRegistry()), NodeTable(nodes_max=10)
    snapshot = Snapshot(store, table, config, metrics, lambda node_id, facts: None)
    context = SelectorContext.of(store, config, metrics, lambda *_, **__: "", table, snapshot)
    registry = NodeRegistration(context, lambda: None)
    epoch = (await store.nodes.register("n", EDGE, CAPS, [])).epoch
    await snapshot.refresh()

    async def socket_closes() -> None:
        assert await store.nodes.detach("n", epoch, "closed")
        await snapshot.refresh()

    assert isinstance(store.nodes, InterruptedNodes)
    store.nodes.meanwhile = socket_closes
    beat = NodeHeartbeat("n", EDGE, epoch, NodeLoad())
    await registry.on_node_heartbeats([Received(Head(Lane.CONTROL, "", 0, EDGE, 0), beat, [], "b")])
    facts = table.facts_of("n")
    assert facts is not None and facts.detached_ms > 0
    await snapshot.refresh()
    assert table.columns.detached_ms[0] > 0
