from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from linguamesh.local.redis_server import RedisServer
from lua.engine.runner import Runner
from lua.store import Store
from lua.store.types.commits import CommitRequest
from lua.store.types.nodes import Heartbeat, NodeFacts
from mesh.cells import cell_of
from mesh.config import Config
from mesh.config.network import MeshConfig, RedisConfig, SelectorConfig
from mesh.frames import NodeLoad
from mesh.keys import Keys
from mesh.metrics import REGISTRY
from selector.core.node_table import NodeTable
from selector.fleet.snapshot import Snapshot
from selector.metrics import SelectorMetrics
from tests.support.builders.selector import CAPS, NOW_MS, facts
from tests.support.builders.store import node_changes
from tests.support.conditions import DEADLINE_S


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[Store]:
    config = config_of(redis_server.url)
    runner = await Runner.connect(config.redis)
    yield Store(runner, Keys(), config)
    await runner.close()


def config_of(url: str, **selector: int) -> Config:
    return Config(mesh=MeshConfig(cells=2), redis=RedisConfig(url=url), selector=SelectorConfig(**selector))


def snapshot_of(store: Store, lost: dict[str, NodeFacts] | None = None, **selector: int) -> tuple[Snapshot, NodeTable]:
    table = NodeTable(nodes_max=100)
    on_lost = ({} if lost is None else lost).__setitem__
    return Snapshot(store, table, config_of("", **selector), SelectorMetrics(), on_lost), table


async def add(store: Store, node_id: str, **caps: int) -> int:
    its_caps = msgspec.structs.replace(CAPS, **caps)
    registered = await store.nodes.register(node_id, "edge:b:1", its_caps, ["hash.1"])
    await store.nodes.heartbeat(
        Heartbeat(node_id, "edge:b:1", registered.epoch, NodeLoad(cpu_percent=10.0), healthy=True), None, None
    )
    return registered.epoch


def request(request_id: str, *candidates: str) -> CommitRequest:
    return CommitRequest(request_id, "s-1", "edge:a:1", 0, 1, f"u{request_id}", list(candidates), 0, "t")


async def test_nodes_come_change_and_go(store: Store) -> None:
    snapshot, table = snapshot_of(store)
    assert await snapshot.refresh() == 0
    epoch = await add(store, "node-1")
    assert await snapshot.refresh() == 1
    known = table.facts_of("node-1")
    assert known is not None and (known.status, known.epoch, known.edge) == ("ready", epoch, "edge:b:1")
    assert await snapshot.refresh() == 0, "nothing changed, nothing is sent"

    [placed] = await store.commits.commit([request("r-1", "node-1")])
    assert placed.verdict == "new"
    assert await snapshot.refresh() == 1
    assert table.used_of("node-1") == 1

    assert await store.nodes.set_offline("node-1", epoch, "closed")
    await snapshot.refresh()
    assert len(table) == 0


async def test_a_commit_of_our_own_is_not_undone_by_an_older_answer(store: Store) -> None:
    snapshot, table = snapshot_of(store)
    await add(store, "node-1")
    cell = cell_of("node-1", 2)
    older = await node_changes(store, cell, 0, 10)
    await snapshot.refresh()
    [placed] = await store.commits.commit([request("r-1", "node-1")])
    assert table.patch(placed.node_id, placed.used, placed.version)
    for row in older.rows:
        assert not table.apply(cell, row.version, row.node_id, row.used, NOW_MS, None)
    assert table.used_of("node-1") == 1


async def test_many_changes_come_in_pages(store: Store) -> None:
    snapshot, table = snapshot_of(store, changes_max=3)
    for index in range(20):
        await add(store, f"node-{index}")
    await snapshot.refresh()
    assert len(table) == 20


async def test_a_ghost_is_removed_by_the_next_full_reload(store: Store) -> None:
    lost: dict[str, NodeFacts] = {}
    snapshot, table = snapshot_of(store, lost, full_reload_ms=1)
    await add(store, "node-1")
    await snapshot.refresh()
    table.apply(cell_of("ghost", 2), 1, "ghost", 0, NOW_MS, facts())
    await snapshot.refresh()
    await snapshot.refresh()
    assert "ghost" not in table.rows and "node-1" in table.rows
    assert not lost, "it left, and a delta about that was missed"


async def test_a_redis_that_lost_everything_is_believed(store: Store, redis_server: RedisServer) -> None:
    lost: dict[str, NodeFacts] = {}
    snapshot, table = snapshot_of(store, lost)
    epoch = await add(store, "node-1")
    await snapshot.refresh()
    with redis_server.client() as client:
        client.flushall()
    await snapshot.refresh()
    assert len(table) == 0
    assert [(node_id, facts.edge, facts.epoch) for node_id, facts in lost.items()] == [("node-1", "edge:b:1", epoch)]
    await add(store, "node-1")
    await snapshot.refresh()
    assert "node-1" in table.rows


async def test_a_loss_shows_even_if_others_registered_again_before_the_next_look(
    store: Store, redis_server: RedisServer
) -> None:
    lost: dict[str, NodeFacts] = {}
    snapshot, table = snapshot_of(store, lost)
    one, other = [node_id for node_id in (f"node-{n}" for n in range(20)) if cell_of(node_id, 2) == 0][:2]
    for node_id in (one, other):
        await add(store, node_id)
    await snapshot.refresh()
    with redis_server.client() as client:
        client.flushall()
    await add(store, one)  # the cell's version is above ours again
    await snapshot.refresh()
    assert (one in table.rows, other in table.rows, list(lost)) == (True, False, [other])
    await add(store, other)
    await snapshot.refresh()
    assert other in table.rows and list(lost) == [other]


async def test_ages_are_told_on_our_own_clock(store: Store) -> None:
    from mesh import clock

    snapshot, table = snapshot_of(store)
    before_ms = clock.now_ms()
    await add(store, "node-1")
    await snapshot.refresh()
    # Milliseconds are cut off on both sides, hence one on either end.
    assert before_ms - 2 <= table.columns.seen_ms[0] <= clock.now_ms() + 2


async def test_a_row_that_cannot_be_read_is_left_out_alone(store: Store, redis_server: RedisServer) -> None:
    snapshot, table = snapshot_of(store)
    nodes = [node_id for node_id in (f"node-{n}" for n in range(20)) if cell_of(node_id, 2) == 0]
    for node_id in nodes:
        await add(store, node_id)
    with redis_server.client() as client:
        client.hset(Keys().view(0), nodes[0], b"\xc1 nonsense")
        client.hset(Keys().view(0), f"{nodes[1]}#now", b"nonsense")
    changes = await node_changes(store, 0, 0, 100)
    assert changes.unreadable == 2
    await snapshot.refresh()
    assert [node_id in table.rows for node_id in nodes] == [False, False] + [True] * (len(nodes) - 2)
    await add(store, nodes[0])
    await snapshot.refresh()
    assert nodes[0] in table.rows


async def test_words_that_do_not_fit_are_counted(store: Store) -> None:
    def counted() -> float:
        return REGISTRY.get_sample_value("lingua_selector_words_refused_total", {"kind": "language"}) or 0.0

    snapshot, table = snapshot_of(store)
    before = counted()
    table.apply(0, 1, "greedy", 0, NOW_MS, facts(asr_langs=[f"l{index}" for index in range(300)], semantic_langs=[]))
    running = asyncio.create_task(snapshot.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while counted() == before:  # noqa: ASYNC110 - metrics have no event to wait for
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert counted() - before == table.interners.languages.refused == 44


async def test_nodes_that_do_not_fit_are_counted(store: Store) -> None:
    def counted() -> float:
        return REGISTRY.get_sample_value("lingua_selector_nodes_refused_total") or 0.0

    snapshot, table = snapshot_of(store)
    before, table.nodes_max = counted(), 0
    table.apply(0, 1, "one too many", 0, NOW_MS, facts())
    running = asyncio.create_task(snapshot.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while counted() == before:  # noqa: ASYNC110 - metrics have no event to wait for
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert counted() - before == table.refused == 1
