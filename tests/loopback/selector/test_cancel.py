"""A Cancel that arrives while its request is on its way to Redis, with a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from linguamesh.local.redis_server import RedisServer
from lua.engine.runner import Runner
from lua.store import Store
from lua.store.commits import CommitStore
from lua.store.types.commits import CommitRequest, Committed
from lua.store.types.nodes import Heartbeat
from mesh.config import Config
from mesh.config.network import RedisConfig
from mesh.frames import Assign, Frame, Head, Lane, NodeLoad, Waiting
from mesh.keys import Keys
from mesh.link.link import Received
from selector.context import SelectorContext
from selector.core.node_table import NodeTable
from selector.fleet.snapshot import Snapshot
from selector.metrics import SelectorMetrics
from selector.operators.decision_log import DecisionLog
from selector.placement.placer import Placer
from selector.placement.weights import CurrentWeights
from tests.support.builders.selector import CAPS, job
from tests.support.conditions import until

EDGE = "edge:a:1"


class InterruptedCommits(CommitStore):
    """Runs `meanwhile` while a commit is on its way to Redis."""

    meanwhile: Callable[[], None]

    async def commit(self, requests: Sequence[CommitRequest]) -> list[Committed]:
        self.meanwhile()
        return await super().commit(requests)


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[Store]:
    config = Config(redis=RedisConfig(url=redis_server.url))
    runner = await Runner.connect(config.redis)
    store = Store(runner, Keys(), config)
    store.commits = InterruptedCommits(runner, Keys(), config, store.jobs)
    yield store
    await runner.close()


@pytest.mark.parametrize("nodes", [0, 1])
async def test_a_request_that_is_taken_back_meanwhile_neither_waits_nor_works(store: Store, nodes: int) -> None:
    config, metrics, table = Config(), SelectorMetrics(CollectorRegistry()), NodeTable(nodes_max=10)
    snapshot = Snapshot(store, table, config, metrics, lambda node_id, facts: None)
    sent: list[Frame] = []

    def send(to: str, cell: int, frame: Frame, *payload: bytes, **_: Any) -> str:
        sent.append(frame)
        return "b"

    context = SelectorContext.of(store, config, metrics, send, table, snapshot)
    placer = Placer(context, CurrentWeights(store, config, metrics), DecisionLog(config))
    for number in range(nodes):
        epoch = (await store.nodes.register(f"n-{number}", EDGE, CAPS, [])).epoch
        await store.nodes.heartbeat(Heartbeat(f"n-{number}", EDGE, epoch, NodeLoad(), True), None, None)
    await snapshot.refresh()
    assert isinstance(store.commits, InterruptedCommits)
    store.commits.meanwhile = lambda: placer.cancel("r-1", 1, sent_us=2)
    dispatch = Received(Head(Lane.WORK, "", 0, EDGE, sent_us=1), job(resend=1), [b"work", b"audio"], "b")
    await placer.place([dispatch])
    assert not [frame for frame in sent if isinstance(frame, Assign | Waiting)]
    await snapshot.refresh()
    assert [table.used_of(name) for name in table.ids()] == [0] * nodes
    assert metrics.waiting.value == 0
    # What is sent after that is wanted again.
    assert isinstance(store.commits, InterruptedCommits)
    store.commits.meanwhile = lambda: None
    await placer.place([dispatch._replace(head=Head(Lane.WORK, "", 0, EDGE, sent_us=3))])
    await until(lambda: sent, "it is placed, or its edge hears that it waits")
