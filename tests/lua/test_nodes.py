from __future__ import annotations

import msgspec
import pytest

from lua.engine.runner import Runner
from lua.store import Store
from lua.store.types.nodes import Heartbeat, Registered
from mesh.cells import cell_of
from mesh.config import Config
from mesh.frames import NodeLoad
from mesh.keys import Keys
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS, EDGE, advance_job, beat, caps, in_cell, node_changes, register, request

NODE = "node-1"
CELL = cell_of(NODE, CELLS)


def pools_of(raw: RedisClient, keys: Keys, node_id: str, names: list[str]) -> list[str]:
    cell = cell_of(node_id, CELLS)
    return [name for name in names if raw.sismember(keys.pool(cell, name), node_id)]


async def test_registration_is_in_the_next_changes(store: Store) -> None:
    registered = await register(store, NODE)
    changes = await node_changes(store, CELL, 0, 10)
    [row] = changes.rows
    assert (row.node_id, row.used, changes.more, changes.reset) == (NODE, 0, False, False)
    assert row.view is not None
    assert (row.view.edge, row.view.epoch, row.view.status) == (EDGE, registered.epoch, "ready")
    assert row.view.caps == caps()
    assert row.last_seen_ms <= changes.now_ms
    assert (await node_changes(store, CELL, changes.version, 10)).rows == []


async def test_each_registration_gets_a_higher_epoch(store: Store) -> None:
    epochs = [(await register(store, NODE)).epoch for _ in range(5)]
    assert epochs == sorted(set(epochs))


async def test_duplicate_registration_changes_nothing(store: Store) -> None:
    first = await store.nodes.register(NODE, EDGE, caps(), ["p1"], "9")
    beaten = await beat(store, NODE, first.epoch)
    copy = await store.nodes.register(NODE, EDGE, caps(7), ["p2"], "9")
    assert copy == Registered(first.epoch, "ready", 0, beaten.version, False)
    assert (await node_changes(store, CELL, beaten.version, 10)).rows == []
    assert (await beat(store, NODE, first.epoch)).verdict == "ok"
    again = await store.nodes.register(NODE, EDGE, caps(), ["p1"], "10")
    assert again.is_new and again.epoch > first.epoch


async def test_duplicate_of_an_earlier_registration_gets_a_superseded_epoch(store: Store) -> None:
    await store.nodes.register(NODE, EDGE, caps(), [], "9")
    second = await store.nodes.register(NODE, EDGE, caps(), [], "10")
    late = await store.nodes.register(NODE, EDGE, caps(), [], "9")
    assert not late.is_new and late.epoch < second.epoch
    assert (await beat(store, NODE, late.epoch)).verdict == "superseded"
    assert (await beat(store, NODE, second.epoch)).verdict == "ok"


async def test_duplicate_registration_does_not_take_a_node_from_its_new_edge(store: Store) -> None:
    await store.nodes.register(NODE, EDGE, caps(), [], "9")
    moved = await store.nodes.register(NODE, "edge:new:1", caps(), [], "2")
    assert moved.is_new, "every edge counts for itself"
    for ref in ("8", "9"):
        late = await store.nodes.register(NODE, EDGE, caps(), [], ref)
        assert not late.is_new and late.epoch < moved.epoch
    assert (await beat(store, NODE, moved.epoch, edge="edge:new:1")).verdict == "ok"
    back = await store.nodes.register(NODE, EDGE, caps(), [], "11")
    assert back.is_new and back.epoch > moved.epoch


async def test_duplicate_registration_does_not_list_an_offline_node(store: Store) -> None:
    first = await store.nodes.register(NODE, EDGE, caps(), [], "9")
    assert await store.nodes.set_offline(NODE, first.epoch, "closed")
    assert not (await store.nodes.register(NODE, EDGE, caps(), [], "9")).is_new
    assert [row.used for row in (await node_changes(store, CELL, 0, 10)).rows] == [-1]
    assert (await store.nodes.register(NODE, EDGE, caps(), [], "10")).is_new


async def test_earlier_connection_is_unknown_after_a_later_one_ended(store: Store) -> None:
    old = (await register(store, NODE)).epoch
    assert await store.nodes.set_offline(NODE, (await register(store, NODE)).epoch, "closed")
    beaten = await beat(store, NODE, old)
    assert beaten.verdict == "unknown", "no other connection has the node: its edge must register it again"


async def test_heartbeat_renews_load_and_ttl(store: Store, raw: RedisClient, keys: Keys) -> None:
    epoch = (await register(store, NODE)).epoch
    before = (await node_changes(store, CELL, 0, 10)).version
    raw.pexpire(keys.node(CELL, NODE), 5_000)
    beaten = await store.nodes.heartbeat(Heartbeat(NODE, EDGE, epoch, NodeLoad(50.0, 0.0, 20.0, 1), True))
    assert beaten.verdict == "ok" and beaten.version > before
    [row] = (await node_changes(store, CELL, before, 10)).rows
    assert row.view is not None and row.view.load.cpu_percent == 50.0
    assert row.view.caps == caps(), "a heartbeat without capabilities leaves them alone"
    assert raw.pttl(keys.node(CELL, NODE)) > 3_000_000


async def test_a_heartbeat_may_change_capabilities_and_pools(store: Store, raw: RedisClient, keys: Keys) -> None:
    epoch = (await register(store, NODE)).epoch
    assert pools_of(raw, keys, NODE, ["p1", "p2", "p3"]) == ["p1", "p2"]
    beaten = await store.nodes.heartbeat(Heartbeat(NODE, EDGE, epoch, NodeLoad(), True), caps(9), ["p3", "p2"])
    assert beaten.verdict == "ok"
    assert pools_of(raw, keys, NODE, ["p1", "p2", "p3"]) == ["p2", "p3"]
    assert not raw.exists(keys.pool(CELL, "p1")), "an empty pool vanishes"
    assert raw.hget(keys.node(CELL, NODE), "max_jobs") == b"9"
    [row] = (await node_changes(store, CELL, 0, 10)).rows
    assert row.view is not None and (row.view.caps.max_jobs, row.view.pools) == (9, "p2,p3")


async def test_heartbeats_of_other_connections_change_nothing(store: Store) -> None:
    old = (await register(store, NODE)).epoch
    new = (await register(store, NODE)).epoch
    version = (await node_changes(store, CELL, 0, 10)).version
    assert (await beat(store, NODE, old)).verdict == "superseded"
    assert (await beat(store, NODE, new + 1)).verdict == "unknown"
    assert (await beat(store, "node-nobody", 1)).verdict == "unknown"
    assert (await node_changes(store, CELL, version, 10)).rows == []


async def test_heartbeat_drops_expired_leases_and_corrects_the_count(
    store: Store, raw: RedisClient, keys: Keys
) -> None:
    epoch = (await register(store, NODE)).epoch
    [placed] = await store.commits.commit([request("r-1", [NODE])])
    assert placed.used == 1
    raw.zadd(keys.leases(CELL, NODE), {"job-lapsed#1": 1})
    raw.hset(keys.ledger(CELL), NODE, 77)
    assert (await beat(store, NODE, epoch)).used == 1
    [row] = (await node_changes(store, CELL, 0, 10)).rows
    assert row.used == 1


async def test_offline_node_is_unlisted_and_leaves_a_tombstone(store: Store, raw: RedisClient, keys: Keys) -> None:
    epoch = (await register(store, NODE)).epoch
    version = (await node_changes(store, CELL, 0, 10)).version
    assert not await store.nodes.set_offline(NODE, epoch - 1, "socket closed"), "a stale epoch changes nothing"
    assert await store.nodes.set_offline(NODE, epoch, "socket closed")
    assert not await store.nodes.set_offline(NODE, epoch, "socket closed"), "only once"
    [row] = (await node_changes(store, CELL, version, 10)).rows
    assert (row.node_id, row.used, row.view) == (NODE, -1, None)
    assert pools_of(raw, keys, NODE, ["p1", "p2"]) == []
    assert raw.zscore(keys.nodes(CELL), NODE) is None
    assert raw.hlen(keys.view(CELL)) == 0
    assert set(raw.hkeys(keys.ledger(CELL))) == {b"#born", b"#version"}
    assert (await beat(store, NODE, epoch)).verdict == "unknown"
    assert (await register(store, NODE)).epoch > epoch


async def test_reconnected_node_still_has_its_leases(store: Store) -> None:
    epoch = (await register(store, NODE)).epoch
    [placed] = await store.commits.commit([request("r-1", [NODE])])
    await store.nodes.set_offline(NODE, epoch, "socket closed")
    assert (await advance_job(store, placed.job_id, 1, NODE, "dispatch")).verdict == "moved"
    assert [row.used for row in (await node_changes(store, CELL, 0, 10)).rows] == [-1]
    assert (await register(store, NODE)).used == 1


async def test_tombstones_are_bounded(store: Store, raw: RedisClient, keys: Keys, config: Config) -> None:
    names = [name for name in (f"n{i}" for i in range(2_000)) if cell_of(name, CELLS) == CELL][:40]
    kept = names.pop()
    await register(store, kept)
    for name in names:
        await store.nodes.set_offline(name, (await register(store, name)).epoch, "gone")
    assert raw.zcard(keys.changes(CELL)) <= config.node.tombstones_max + 1
    assert raw.zscore(keys.changes(CELL), kept) is not None


async def test_changes_in_pages_are_complete(store: Store) -> None:
    names = {name for name in (f"n{i}" for i in range(500)) if cell_of(name, CELLS) == CELL}
    for name in sorted(names):
        await register(store, name)
    seen: list[str] = []
    version, more = 0, True
    while more:
        changes = await node_changes(store, CELL, version, 7)
        assert len(changes.rows) <= 7 and changes.version >= version
        seen += [row.node_id for row in changes.rows]
        version, more = changes.version, changes.more
    assert sorted(seen) == sorted(names)


async def test_change_of_slots_alone_sends_no_view(store: Store) -> None:
    await register(store, NODE)
    version = (await node_changes(store, CELL, 0, 10)).version
    [placed] = await store.commits.commit([request("r-1", [NODE])])
    [row] = (await node_changes(store, CELL, version, 10)).rows
    assert (row.used, row.view, row.version) == (1, None, placed.version)


async def test_snapshot_ahead_of_redis_is_reset(store: Store, raw: RedisClient, keys: Keys) -> None:
    await register(store, NODE)
    version = (await node_changes(store, CELL, 0, 10)).version
    changes = await node_changes(store, CELL, version + 10_000_000_000, 10)
    assert changes.reset and [row.node_id for row in changes.rows] == [NODE] and changes.version == version
    raw.hdel(keys.ledger(CELL), "#version")  # a failover forgot the last versions
    registered = await register(store, NODE)
    assert registered.version > version, "what happens next is still newer than what we knew"
    [row] = (await node_changes(store, CELL, version, 10)).rows
    assert row.view is not None and row.view.epoch == registered.epoch


async def test_silent_nodes_are_unlisted_and_leave_their_pools(
    runner: Runner, raw: RedisClient, keys: Keys, config: Config
) -> None:
    node = msgspec.structs.replace(config.node, record_ttl_seconds=1_000)
    store = Store(runner, keys, msgspec.structs.replace(config, node=node))
    other = in_cell("other", CELL)
    await register(store, NODE)
    await register(store, other)
    raw.zadd(keys.due(CELL), {NODE: 1})
    raw.delete(keys.node(CELL, NODE))  # its record has expired
    assert await store.nodes.expire(CELL) == [], "nobody knows whom to tell"
    rows = {row.node_id: row.used for row in (await node_changes(store, CELL, 0, 10)).rows}
    assert rows == {NODE: -1, other: 0}
    assert pools_of(raw, keys, NODE, ["p1", "p2"]) == []
    assert pools_of(raw, keys, other, ["p1", "p2"]) == ["p1", "p2"]


@pytest.mark.parametrize("pools", [[], ["only"], [f"pool-{n}" for n in range(64)]])
async def test_any_number_of_pools(store: Store, raw: RedisClient, keys: Keys, pools: list[str]) -> None:
    await register(store, NODE)
    await store.nodes.register(NODE, EDGE, caps(), pools)
    assert pools_of(raw, keys, NODE, ["p1", "p2", *pools]) == pools
    stored = raw.hget(keys.view(CELL), f"{NODE}#pools")
    assert stored == ",".join(sorted(pools)).encode()
