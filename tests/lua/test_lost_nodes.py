"""A selector whose Redis lost the records of nodes: clients get the reason "offline", not that of a full fleet."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from lua.store import Store
from mesh.cells import cell_of
from mesh.config import Config
from mesh.config.jobs import JobConfig, NodeConfig
from mesh.config.network import RedisConfig, SelectorConfig
from mesh.frames import Assign, Frame, Head, Lane, NodeStale, Refused, Waiting
from mesh.keys import Keys
from mesh.link.link import Received
from selector.context import SelectorContext
from selector.core.node_table import NodeTable
from selector.fleet.snapshot import Snapshot
from selector.metrics import SelectorMetrics
from selector.operators.decision_log import DecisionLog
from selector.placement.placer import Placer
from selector.placement.weights import CurrentWeights
from tests.lua.conftest import RedisClient
from tests.support.builders.selector import CAPS, job
from tests.support.builders.store import CELLS, EDGE, beat
from tests.support.conditions import until

#: With one round of three candidates, no request gets to the end of them.
NODES = [f"node-{n}" for n in range(9)]
PATIENT_MS = 300_000


@pytest.fixture
def config(redis_config: RedisConfig) -> Config:
    """Nothing is too late, also if the kernel has to be compiled first."""
    return Config(
        redis=redis_config,
        node=NodeConfig(heartbeat_timeout_ms=PATIENT_MS),
        job=JobConfig(pending_timeout_ms=PATIENT_MS),
        selector=SelectorConfig(commit_rounds=1),
    )


async def add_nodes(store: Store) -> None:
    for node_id in NODES:
        registered = await store.nodes.register(node_id, EDGE, CAPS, [])
        assert (await beat(store, node_id, registered.epoch)).status == "ready"


def dispatch(request_id: str, **changes: Any) -> Received:
    frame = job(request_id=request_id, deadline_ms=0, **changes)
    return Received(Head(Lane.WORK, "", 0, frame.edge, sent_us=1), frame, [b"work", b"audio"], "broker")


async def test_lost_records_are_no_full_fleet(store: Store, config: Config, raw: RedisClient, keys: Keys) -> None:
    sent: list[Frame] = []

    def send(to: str, cell: int, frame: Frame, *payload: bytes, **_: Any) -> str:
        sent.append(frame)
        return "broker"

    metrics, table = SelectorMetrics(CollectorRegistry()), NodeTable(config.selector.nodes_max)
    snapshot = Snapshot(store, table, config, metrics, lambda *_: None)
    context = SelectorContext.of(store, config, metrics, send, table, snapshot)
    placer = Placer(context, CurrentWeights(store, config, metrics), DecisionLog(config))
    await add_nodes(store)
    await snapshot.refresh()
    for node_id in NODES:
        raw.delete(keys.node(cell_of(node_id, CELLS), node_id))

    await placer.place([dispatch("r-1")])  # stands in line: the nodes may come back
    await until(lambda: [frame for frame in sent if isinstance(frame, Waiting)], "its edge hears that it waits")
    [waiting] = [frame for frame in sent if isinstance(frame, Waiting)]
    assert waiting.reason == "offline"
    stale = [frame for frame in sent if isinstance(frame, NodeStale)]
    assert {frame.reason for frame in stale} == {"unknown"} and len(stale) == 3, "their edge registers them again"

    sent.clear()
    await placer.place([dispatch("r-2", session_id="s-2", beside=True)])  # a hedge does not stand in line
    [refused] = [frame for frame in sent if isinstance(frame, Refused)]
    assert refused.reason == "offline" and "capacity_exceeded" not in refused.removed

    sent.clear()
    await add_nodes(store)
    await snapshot.refresh_anew()
    await placer.place([dispatch("r-3", session_id="s-3", beside=True)])
    assert [frame.request_id for frame in sent if isinstance(frame, Assign)] == ["r-3"]
