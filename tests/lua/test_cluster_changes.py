"""A cluster that moves slots and loses servers under the runner's feet."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from linguamesh.redis_server import RedisCluster, RedisServer
from lua.runner import Runner
from lua.slots import slot_of
from lua.store import Store
from mesh.config import Config, RedisConfig
from mesh.errors import StoreError
from mesh.keys import Keys
from tests.lua.samples import NOBODY, in_cell, register, request

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three masters, no replicas; tests put every slot back where it was."""
    cluster = RedisCluster.start(tmp_path_factory.mktemp("moving"))
    yield cluster
    cluster.stop()


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[RedisCluster]:
    """Three masters with a replica each; a test may kill one."""
    cluster = RedisCluster.start(tmp_path, masters=3, replicas=1)
    yield cluster
    cluster.stop()


def cluster_command(server: RedisServer, *words: str | int) -> object:
    with server.client() as client:
        return client.execute_command("CLUSTER", *words)


def id_of(server: RedisServer) -> str:
    return bytes(cluster_command(server, "MYID")).decode()


def owner_of(cluster: RedisCluster, slot: int) -> int:
    for first, last, master, *_ in cluster_command(cluster.servers[0], "SLOTS"):
        if first <= slot <= last:
            return cluster.ports.index(master[1])
    raise AssertionError(f"nobody has slot {slot}")


def moved_replies(cluster: RedisCluster) -> int:
    total = 0
    for server in cluster.servers:
        with server.client() as client:
            total += client.info("errorstats").get("errorstat_MOVED", {"count": 0})["count"]
    return total


async def test_moved_slots_are_followed(moving: RedisCluster, keys: Keys) -> None:
    runner = await Runner.connect(RedisConfig(url=moving.url, cluster=True))
    key = keys.session(3, "s-moved")
    slot = slot_of(key)
    source = home = owner_of(moving, slot)
    for target in ((home + 1) % 3, (home + 2) % 3, home):
        assert await runner.call("session_look", [key], {}) == NOBODY
        new_id = id_of(moving.servers[target])
        # Who imports a slot gets a new configuration epoch: older gossip that still calls it another's is outdated.
        cluster_command(moving.servers[target], "SETSLOT", slot, "IMPORTING", id_of(moving.servers[source]))
        source = target
        for server in [moving.servers[target], *moving.servers]:
            cluster_command(server, "SETSLOT", slot, "NODE", new_id)
        before = moved_replies(moving)
        for _ in range(3):
            assert await runner.call("session_look", [key], {}) == NOBODY
        assert moved_replies(moving) == before + 1, "one reply is enough to learn it"
    await runner.close()


async def test_servers_that_disagree_for_a_moment_are_given_time(moving: RedisCluster, keys: Keys) -> None:
    """Of a move one server may hear before the other: each calls the other the owner, and both are asked in vain."""
    runner = await Runner.connect(RedisConfig(url=moving.url, cluster=True))
    key = keys.session(3, "s-moved")
    slot = slot_of(key)
    home = owner_of(moving, slot)
    goal = (home + 1) % 3
    for source, target in ((home, goal), (goal, home)):
        old, new = moving.servers[source], moving.servers[target]
        assert await runner.call("session_look", [key], {}) == NOBODY
        before = moved_replies(moving)
        cluster_command(old, "SETSLOT", slot, "NODE", id_of(new))
        looked = asyncio.create_task(runner.call("session_look", [key], {}))
        async with asyncio.timeout(DEADLINE_S):
            while moved_replies(moving) < before + 2:  # noqa: ASYNC110 - only the servers can tell
                await asyncio.sleep(0.01)
        cluster_command(new, "SETSLOT", slot, "IMPORTING", id_of(old))
        for server in [new, *moving.servers]:
            cluster_command(server, "SETSLOT", slot, "NODE", id_of(new))
        assert await looked == NOBODY
    await runner.close()


async def test_a_slot_on_its_way_is_asked_for_at_its_goal(moving: RedisCluster, keys: Keys) -> None:
    config = Config(redis=RedisConfig(url=moving.url, cluster=True))
    runner = await Runner.connect(config.redis)
    store = Store(runner, keys, config)
    session = in_cell("s-", 5)
    slot = slot_of(keys.session(5, session))
    home = owner_of(moving, slot)
    source, goal = moving.servers[home], moving.servers[(home + 1) % 3]
    cluster_command(goal, "SETSLOT", slot, "IMPORTING", id_of(source))
    cluster_command(source, "SETSLOT", slot, "MIGRATING", id_of(goal))
    try:
        claimed = await store.claim_session(session, "edge", 0, "", "en", "es")
        assert claimed.ok
        assert cluster_command(source, "COUNTKEYSINSLOT", slot) == 0
        assert cluster_command(goal, "COUNTKEYSINSLOT", slot) == 1
        assert await store.session_owner(session) == "edge"
    finally:
        for server in (goal, source, *moving.servers):
            cluster_command(server, "SETSLOT", slot, "NODE", id_of(goal))
    assert await store.session_owner(session) == "edge"
    await runner.close()


async def test_a_lost_master_is_an_error_until_its_replica_takes_over(replicated: RedisCluster, keys: Keys) -> None:
    config = Config(redis=RedisConfig(url=replicated.url, cluster=True, timeout_ms=500))
    runner = await Runner.connect(config.redis)
    store = Store(runner, keys, config)
    nodes = [in_cell("node-", cell) for cell in range(16)]
    for node_id in nodes:
        await register(store, node_id, max_jobs=1_000)
    victim = owner_of(replicated, slot_of(keys.nodes(0)))
    os.kill(replicated.pids[victim], signal.SIGKILL)
    placed, number, end = 0, 0, time.monotonic() + DEADLINE_S
    while placed < 48 and time.monotonic() < end:
        number += 1
        answers = await store.commit(
            [request(f"r-{number}-{n}", [node_id], session_id=node_id) for n, node_id in enumerate(nodes)]
        )
        assert {answer.verdict for answer in answers} <= {"new", "unknown"}
        placed = placed + 16 if all(answer.verdict == "new" for answer in answers) else 0
        await asyncio.sleep(0.05)
    assert placed == 48, "every cell works again"
    await runner.close()


async def test_a_binding_that_replicas_do_not_confirm_is_unknown(replicated: RedisCluster, keys: Keys) -> None:
    redis = RedisConfig(url=replicated.url, cluster=True, wait_replicas=1, wait_ms=1_000, timeout_ms=5_000)
    config = Config(redis=redis)
    runner = await Runner.connect(config.redis)
    store = Store(runner, keys, config)
    node_id = in_cell("node-", 0)
    await register(store, node_id, max_jobs=10)
    [sure] = await store.commit([request("r-1", [node_id], session_id=node_id)])
    assert sure.verdict == "new"
    master = replicated.servers[owner_of(replicated, slot_of(keys.nodes(0)))]
    for server in replicated.servers[3:]:
        os.kill(server.pid, signal.SIGSTOP)
    try:
        quick = await Runner.connect(msgspec.structs.replace(redis, wait_ms=50))
        doubtful = Store(quick, keys, config)
        [unsure] = await doubtful.commit([request("r-2", [node_id], session_id=node_id)])
        assert unsure.verdict == "unknown" and "replicas" in unsure.reasons[0]
        assert (await doubtful.advance_job(sure.job_id, 1, node_id, "dispatch")).verdict == "moved", "not waited for"
        with master.client() as client:
            assert client.zcard(keys.leases(0, node_id)) == 2, "unknown is not undone"
    finally:
        for server in replicated.servers[3:]:
            os.kill(server.pid, signal.SIGCONT)
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        [again] = await store.commit([request("r-2", [node_id], session_id=node_id)])
        if again.verdict != "unknown":
            break
    assert again.verdict == "bound"
    await quick.close()
    await runner.close()


async def test_a_cluster_without_a_slot_is_an_error(moving: RedisCluster, keys: Keys) -> None:
    redis = RedisConfig(url=moving.url, cluster=True, retries_max=2, retry_ms=1)
    runner = await Runner.connect(redis)
    key = keys.session(9, "s-none")
    slot = slot_of(key)
    home = moving.servers[owner_of(moving, slot)]
    for server in moving.servers:
        cluster_command(server, "DELSLOTS", slot)
    try:
        with pytest.raises(StoreError, match="Redis cannot be used"):
            await runner.call("session_look", [key], {})
    finally:
        cluster_command(home, "ADDSLOTS", slot)
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        try:
            assert await runner.call("session_look", [key], {}) == NOBODY
            break
        except StoreError:
            await asyncio.sleep(0.05)
    else:
        raise AssertionError("the slot is back, but the runner did not notice")
    await runner.close()
