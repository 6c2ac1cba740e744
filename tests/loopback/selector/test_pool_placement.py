"""Placing pool by pool, with a real Redis: where a job looks first, where next, and what is counted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from prometheus_client import generate_latest

from linguamesh.local.redis_server import RedisServer
from lua.engine.runner import Runner
from lua.store import Store
from mesh.config import Config
from mesh.config.network import RedisConfig
from mesh.config.scheduler import PoolsConfig, TenantPool
from mesh.frames import Assign, Refused, Waiting
from mesh.keys import Keys
from mesh.metrics import REGISTRY
from selector.core.pools import PoolPlan
from tests.loopback.selector.test_burst import EDGE, Selecting, dispatch
from tests.support.builders.selector import CAPS
from tests.support.builders.store import beat
from tests.support.conditions import until


@pytest.fixture
async def selecting(redis_server: RedisServer) -> AsyncIterator[Selecting]:
    """Four pools; one of them belongs to a tenant and is nobody else's."""
    overrides = [TenantPool(tenant_id="acme", pool_id=2, exclusive=True)]
    pools = PoolsConfig(enabled=True, pool_count=4, tenant_overrides=overrides)
    config = Config(redis=RedisConfig(url=redis_server.url), pools=pools)
    runner = await Runner.connect(config.redis)
    store, plan = Store(runner, Keys(), config), PoolPlan(config.pools)
    for index in range(24):
        node_id = f"node-{index}"
        registered = await store.nodes.register(node_id, EDGE, CAPS, plan.sets_of(node_id, CAPS))
        await beat(store, node_id, registered.epoch, edge=EDGE)
    one = Selecting(runner, config)
    await one.snapshot.refresh()
    yield one
    await runner.close()


def pool_of(selecting: Selecting, node_id: str) -> str:
    table = selecting.table
    return table.pools.string(int(table.columns.pool[table.rows[node_id]]))


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_jobs_stay_in_the_pool_that_their_session_points_to(selecting: Selecting) -> None:
    await selecting.placer.place([dispatch(f"r-{number}") for number in range(20)])
    assigned = [frame for frame in selecting.sent if isinstance(frame, Assign)]
    assert len(assigned) == 20
    for frame in assigned:
        record = selecting.decisions.find(frame.job_id)
        assert record is not None
        assert record["rounds"][-1]["pool"] == record["pool_order"][0] == pool_of(selecting, frame.node_id)
    used = {pool_of(selecting, frame.node_id) for frame in assigned}
    assert used == {"hash.0", "hash.1", "hash.3"}, "the tenant's own pool is left alone"
    assert counted("scheduler_phase3_pool_selected_total", pool="hash.0", outcome="hit", fallback="false") > 0


async def test_a_full_pool_sends_the_next_job_on_and_a_tenant_nowhere_else(selecting: Selecting) -> None:
    before = counted("scheduler_phase3_pool_selected_total", pool="hash.1", outcome="hit", fallback="true")
    for row in range(len(selecting.table)):
        if pool_of(selecting, selecting.table.id_of(row)) in ("hash.0", "hash.2", "hash.3"):
            selecting.table.saturate(selecting.table.id_of(row))
    await selecting.placer.place([dispatch(f"r-{number}") for number in range(8)])
    assigned = [frame for frame in selecting.sent if isinstance(frame, Assign)]
    assert {pool_of(selecting, frame.node_id) for frame in assigned} == {"hash.1"}
    after = counted("scheduler_phase3_pool_selected_total", pool="hash.1", outcome="hit", fallback="true")
    assert after > before
    assert b'scheduler_phase3_pool_attempt_total{pool="hash.0",reason="no_candidate",result="fail"}' in generate_latest(
        REGISTRY
    )

    selecting.sent.clear()
    await selecting.placer.place([dispatch("r-acme", tenant_id="acme")])
    await until(lambda: selecting.sent, "its edge hears that it waits")
    [answer] = selecting.sent
    assert isinstance(answer, Waiting) and answer.reason == "capacity_exceeded"
    assert not any(isinstance(frame, Refused | Assign) for frame in selecting.sent)
