"""The life of a node in Redis: what the scripts do beyond the table that the twins share."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from lua.engine.runner import Runner
from lua.store import Store
from lua.store.nodes import SCAN_MAX
from lua.store.types.nodes import Drained, NodeFacts, StatusChange
from mesh.cells import cell_of
from mesh.config import Config
from mesh.errors import StoreError
from mesh.keys import Keys
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS, EDGE, beat, caps, node_changes, register, request
from tests.support.reference.redis_time import pass_time

NODE = "node-1"
CELL = cell_of(NODE, CELLS)
TIMEOUT_MS, GRACE_MS, TTL_MS = 45_000, 3_000, 3_600_000


async def view_of(store: Store, node_id: str = NODE) -> NodeFacts | None:
    rows = (await node_changes(store, cell_of(node_id, CELLS), 0, 1_000)).rows
    return next((row.view for row in rows if row.node_id == node_id), None)


async def status_of(store: Store) -> str:
    view = await view_of(store)
    return "" if view is None else view.status


@pytest.fixture
async def epoch(store: Store) -> int:
    return (await register(store, NODE)).epoch


async def test_node_is_ready_after_its_first_healthy_heartbeat(store: Store) -> None:
    registered = await store.nodes.register(NODE, EDGE, caps(), [])
    assert (registered.status, await status_of(store)) == ("registering", "registering")
    sick = await beat(store, NODE, registered.epoch, healthy=False)
    assert (sick.status_before, sick.status) == ("registering", "registering")
    beaten = await beat(store, NODE, registered.epoch)
    assert (beaten.status_before, beaten.status, beaten.reason) == ("registering", "ready", "healthy")
    assert await status_of(store) == "ready"
    again = await beat(store, NODE, registered.epoch)
    assert (again.status_before, again.status) == ("ready", "ready"), "each change is told once"


async def test_node_beyond_its_warmup_timeout_is_degraded(store: Store, raw: RedisClient, keys: Keys) -> None:
    epoch = (await store.nodes.register(NODE, EDGE, caps(), [])).epoch
    for _ in range(3):
        pass_time(raw, keys, NODE, 20_001)
        beaten = await beat(store, NODE, epoch, healthy=False)
    assert (beaten.status_before, beaten.status, beaten.reason) == ("registering", "degraded", "warmup_timeout")
    assert (await beat(store, NODE, epoch)).status == "ready"


async def test_unhealthy_heartbeats_degrade_and_a_healthy_one_recovers(store: Store, epoch: int) -> None:
    statuses = [(await beat(store, NODE, epoch, healthy=False)).status for _ in range(4)]
    assert statuses == ["ready", "ready", "degraded", "degraded"]
    [refused] = await store.commits.commit([request("r-1", [NODE])])
    assert refused.reasons == ("not_ready",)
    assert (await beat(store, NODE, epoch)).reason == "recovered"
    assert (await store.commits.commit([request("r-1", [NODE])]))[0].verdict == "new"


async def test_silent_node_is_offline_but_listed_until_a_heartbeat(
    store: Store, raw: RedisClient, keys: Keys, epoch: int
) -> None:
    assert await store.nodes.expire(CELL) == []
    pass_time(raw, keys, NODE, TIMEOUT_MS)
    assert await store.nodes.expire(CELL) == [StatusChange(NODE, EDGE, epoch, "offline", "heartbeat_timeout")]
    assert await store.nodes.expire(CELL) == []
    assert await status_of(store) == "offline"
    assert raw.sismember(keys.pool(CELL, "p1"), NODE)
    [refused] = await store.commits.commit([request("r-1", [NODE])])
    assert refused.reasons == ("stale",)
    beaten = await beat(store, NODE, epoch)
    assert (beaten.verdict, beaten.status_before, beaten.status) == ("ok", "offline", "ready")


async def test_node_silent_beyond_its_record_ttl_is_unlisted(
    store: Store, raw: RedisClient, keys: Keys, epoch: int
) -> None:
    pass_time(raw, keys, NODE, TIMEOUT_MS)
    assert len(await store.nodes.expire(CELL)) == 1
    pass_time(raw, keys, NODE, TTL_MS - TIMEOUT_MS)
    assert await store.nodes.expire(CELL) == [], "it was offline before"
    assert await view_of(store) is None
    assert not raw.exists(keys.pool(CELL, "p1")), "an empty pool vanishes"
    assert (await beat(store, NODE, epoch)).verdict == "unknown"


async def test_detached_node_can_be_committed_until_its_grace_ends(
    store: Store, raw: RedisClient, keys: Keys, epoch: int
) -> None:
    assert not await store.nodes.detach(NODE, epoch - 1, "closed"), "another connection's word counts nothing"
    assert await store.nodes.detach(NODE, epoch, "closed by peer")
    assert not await store.nodes.detach(NODE, epoch, "closed"), "only once"
    view = await view_of(store)
    assert view is not None and view.detached_ms > 0 and (view.status, view.reason) == ("ready", "closed by peer")
    [placed] = await store.commits.commit([request("r-1", [NODE])])
    assert placed.verdict == "new"
    assert await store.nodes.expire(CELL) == []
    pass_time(raw, keys, NODE, GRACE_MS)
    assert await store.nodes.expire(CELL) == [StatusChange(NODE, EDGE, epoch, "offline", "closed by peer")]
    assert await view_of(store) is None
    assert not raw.exists(keys.pool(CELL, "p1"))
    [refused] = await store.commits.commit([request("r-2", [NODE])])
    assert refused.reasons == ("gone",)
    assert (await store.nodes.register(NODE, EDGE, caps(), [])).used == 1, "its job's slot is still held"


async def test_heartbeat_sent_before_the_detach_changes_nothing(store: Store, epoch: int) -> None:
    await store.nodes.detach(NODE, epoch, "closed")
    version = (await node_changes(store, CELL, 0, 10)).version
    beaten = await beat(store, NODE, epoch, healthy=False, jobs=[])
    assert (beaten.verdict, beaten.status, beaten.status_before) == ("ok", "ready", "ready")
    assert (await node_changes(store, CELL, version, 10)).rows == []


async def test_registration_clears_detachment_and_health(store: Store, raw: RedisClient, keys: Keys) -> None:
    epoch = (await register(store, NODE)).epoch
    await beat(store, NODE, epoch, healthy=False)
    await store.nodes.detach(NODE, epoch, "closed")
    pass_time(raw, keys, NODE, 1_000)
    registered = await store.nodes.register(NODE, EDGE, caps(), [])
    view = await view_of(store)
    assert view is not None and (view.detached_ms, view.status, registered.status) == (0, "registering", "registering")
    assert raw.hget(keys.node(CELL, NODE), "heard") == b""
    pass_time(raw, keys, NODE, GRACE_MS)
    assert await store.nodes.expire(CELL) == []


async def test_draining_node_gets_no_jobs_until_resumed(store: Store, epoch: int) -> None:
    drained = await store.nodes.drain(NODE, 30_000, "a new disk")
    assert drained[:4] == (True, "draining", EDGE, epoch) and drained.drain_until_ms > 0
    view = await view_of(store)
    assert view is not None and (view.status, view.reason) == ("draining", "a new disk")
    assert view.drain_until_ms == drained.drain_until_ms
    assert (await beat(store, NODE, epoch)).status == "draining"
    [refused] = await store.commits.commit([request("r-1", [NODE])])
    assert refused.reasons == ("draining",)
    assert await store.nodes.drain(NODE, 0, "", resume=True) == Drained(True, "ready", EDGE, epoch, 0)
    assert (await store.commits.commit([request("r-1", [NODE])]))[0].verdict == "new"


async def test_drain_survives_only_a_registration_before_its_end(
    store: Store, raw: RedisClient, keys: Keys, epoch: int
) -> None:
    await store.nodes.drain(NODE, 30_000, "why")
    assert (await register(store, NODE)).status == "draining"
    pass_time(raw, keys, NODE, 30_001)
    assert (await store.nodes.register(NODE, EDGE, caps(), [])).status == "registering"
    view = await view_of(store)
    assert view is not None and view.drain_until_ms == 0


async def test_unlisted_node_cannot_be_drained(store: Store, epoch: int) -> None:
    assert await store.nodes.drain("nobody", 30_000, "why") == Drained(False)
    await store.nodes.set_offline(NODE, epoch, "closed")
    assert await store.nodes.drain(NODE, 30_000, "why") == Drained(False)


async def test_concurrent_scanners_return_each_change_once(
    runner: Runner, raw: RedisClient, keys: Keys, config: Config
) -> None:
    node = msgspec.structs.replace(config.node, tombstones_max=1_000)
    stores = [Store(runner, keys, msgspec.structs.replace(config, node=node)) for _ in range(8)]
    names = [name for name in (f"n{i}" for i in range(5_000)) if cell_of(name, CELLS) == CELL][: SCAN_MAX + 20]
    for number, name in enumerate(names):
        epoch = (await register(stores[0], name)).epoch
        if number % 2:
            await stores[0].nodes.detach(name, epoch, "closed")
        pass_time(raw, keys, name, TIMEOUT_MS)
    told: list[str] = []
    for _ in range(2):
        found = await asyncio.gather(*(store.nodes.expire(CELL) for store in stores))
        assert all(len(one) <= SCAN_MAX for one in found)
        told += [scanned.node_id for one in found for scanned in one]
    assert sorted(told) == sorted(names), "all of them, and none twice, though one scan is not enough"
    assert await stores[0].nodes.expire(CELL) == []


async def test_scan_skips_a_node_whose_pools_changed(store: Store, raw: RedisClient, keys: Keys, epoch: int) -> None:
    await store.nodes.detach(NODE, epoch, "closed")
    pass_time(raw, keys, NODE, GRACE_MS)
    raw.hset(keys.view(CELL), f"{NODE}#pools", "p1")
    [scanned] = await store.nodes.expire(CELL)
    assert scanned.status == "offline" and not raw.sismember(keys.pool(CELL, "p1"), NODE)


async def test_unlisted_node_leaves_only_record_and_tombstone(
    store: Store, raw: RedisClient, keys: Keys, epoch: int
) -> None:
    assert await store.nodes.set_offline(NODE, epoch, "closed")
    for key in (keys.nodes(CELL), keys.due(CELL), keys.view(CELL), keys.speeds(CELL), keys.marks(CELL)):
        assert not raw.exists(key)
    assert set(raw.hkeys(keys.ledger(CELL))) == {b"#born", b"#version"}
    assert raw.zrange(keys.changes(CELL), 0, -1) == [NODE.encode()]


async def test_scan_returns_the_other_changes_when_one_node_fails(
    store: Store, raw: RedisClient, keys: Keys, epoch: int
) -> None:
    odd = next(name for name in (f"n{i}" for i in range(1_000)) if cell_of(name, CELLS) == CELL)
    raw.zadd(keys.due(CELL), {odd: 1})
    raw.set(keys.node(CELL, odd), "not a hash")
    pass_time(raw, keys, NODE, TIMEOUT_MS)
    assert [scanned.node_id for scanned in await store.nodes.expire(CELL)] == [NODE]
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await store.nodes.expire(CELL)
