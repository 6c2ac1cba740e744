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

from linguamesh.local.redis_server import START_TIMEOUT_S, RedisCluster, RedisServer
from lua.engine.slots import slot_of
from lua.store import Store
from mesh.config import Config
from mesh.config.jobs import NodeConfig
from mesh.config.network import RedisConfig
from mesh.errors import StoreError
from mesh.keys import Keys
from tests.lua.conftest import Connect
from tests.support.builders.store import (
    CELLS,
    NO_SESSION,
    advance_job,
    claim_session,
    in_cell,
    register,
    request,
    session_owner,
)
from tests.support.conditions import DEADLINE_S

#: Longer than any of these tests: no node is too silent, and no call fails because the machine is busy.
PATIENT_MS = 300_000


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three masters, no replicas; tests put every slot back where it was."""
    cluster = RedisCluster.start(tmp_path_factory.mktemp("moving"))
    for server in cluster.servers:  # a server that gets no processor for a while has not failed
        with server.client() as client:
            client.config_set("cluster-node-timeout", PATIENT_MS)
    yield cluster
    cluster.stop()


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[RedisCluster]:
    """Three masters with a replica each; a test may kill one."""
    cluster = RedisCluster.start(tmp_path, masters=3, replicas=1)
    yield cluster
    cluster.stop()


def patient(cluster: RedisCluster) -> Config:
    """Settings under which nothing is late on a busy machine."""
    redis = RedisConfig(url=cluster.url, cluster=True, timeout_ms=10_000)
    return Config(redis=redis, node=NodeConfig(heartbeat_timeout_ms=PATIENT_MS))


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


async def test_moved_slots_are_followed(moving: RedisCluster, connect: Connect, keys: Keys) -> None:
    runner = await connect(patient(moving).redis)
    key = keys.session(3, "s-moved")
    slot = slot_of(key)
    source = home = owner_of(moving, slot)
    for target in ((home + 1) % 3, (home + 2) % 3, home):
        assert await runner.call("session_get", [key], {}) == NO_SESSION
        new_id = id_of(moving.servers[target])
        # Who imports a slot gets a new configuration epoch: older gossip that still calls it another's is outdated.
        cluster_command(moving.servers[target], "SETSLOT", slot, "IMPORTING", id_of(moving.servers[source]))
        source = target
        for server in [moving.servers[target], *moving.servers]:
            cluster_command(server, "SETSLOT", slot, "NODE", new_id)
        before = moved_replies(moving)
        for _ in range(3):
            assert await runner.call("session_get", [key], {}) == NO_SESSION
        assert moved_replies(moving) == before + 1, "one reply is enough to learn it"


async def test_calls_are_retried_while_servers_disagree_on_an_owner(
    moving: RedisCluster, connect: Connect, keys: Keys
) -> None:
    """Of a move one server may hear before the other: each calls the other the owner, and both are asked in vain."""
    # Repeats for ten seconds: we take our time between the first and the last command.
    runner = await connect(msgspec.structs.replace(patient(moving).redis, retries_max=20))
    key = keys.session(3, "s-moved")
    slot = slot_of(key)
    home = owner_of(moving, slot)
    goal = (home + 1) % 3
    for source, target in ((home, goal), (goal, home)):
        old, new = moving.servers[source], moving.servers[target]
        assert await runner.call("session_get", [key], {}) == NO_SESSION
        before = moved_replies(moving)
        cluster_command(old, "SETSLOT", slot, "NODE", id_of(new))
        looked = asyncio.create_task(runner.call("session_get", [key], {}))
        async with asyncio.timeout(DEADLINE_S):
            while moved_replies(moving) < before + 2:  # noqa: ASYNC110 - only the servers can tell
                await asyncio.sleep(0.01)
        cluster_command(new, "SETSLOT", slot, "IMPORTING", id_of(old))
        for server in [new, *moving.servers]:
            cluster_command(server, "SETSLOT", slot, "NODE", id_of(new))
        assert await looked == NO_SESSION


async def test_call_for_a_migrating_slot_follows_ask(moving: RedisCluster, connect: Connect, keys: Keys) -> None:
    config = patient(moving)
    runner = await connect(config.redis)
    store = Store(runner, keys, config)
    session = in_cell("s-", 5)
    slot = slot_of(keys.session(5, session))
    home = owner_of(moving, slot)
    source, goal = moving.servers[home], moving.servers[(home + 1) % 3]
    cluster_command(goal, "SETSLOT", slot, "IMPORTING", id_of(source))
    cluster_command(source, "SETSLOT", slot, "MIGRATING", id_of(goal))
    try:
        claimed = await claim_session(store, session, "edge", 0, "", "en", "es")
        assert claimed.ok
        assert cluster_command(source, "COUNTKEYSINSLOT", slot) == 0
        assert cluster_command(goal, "COUNTKEYSINSLOT", slot) == 1
        assert await session_owner(store, session) == "edge"
    finally:
        for server in (goal, source, *moving.servers):
            cluster_command(server, "SETSLOT", slot, "NODE", id_of(goal))
    assert await session_owner(store, session) == "edge"


def until_replicas_have_it_all(cluster: RedisCluster, keys: Keys) -> None:
    """All writes so far survive a failover."""
    for cell in range(CELLS):  # a key of each cell, so each master confirms at least one write
        key = keys.session(cell, "s-last")
        with cluster.servers[owner_of(cluster, slot_of(key))].client() as client:
            client.set(key, "")
            assert client.execute_command("WAIT", 1, int(START_TIMEOUT_S * 900)) == 1


async def test_a_lost_master_is_an_error_until_its_replica_takes_over(
    replicated: RedisCluster, connect: Connect, keys: Keys
) -> None:
    runner = await connect(patient(replicated).redis)
    store = Store(runner, keys, patient(replicated))
    nodes = [in_cell("node-", cell) for cell in range(CELLS)]
    for node_id in nodes:
        await register(store, node_id, max_jobs=1_000)
    until_replicas_have_it_all(replicated, keys)
    victim = owner_of(replicated, slot_of(keys.nodes(0)))
    os.kill(replicated.pids[victim], signal.SIGKILL)
    placed, number, end = 0, 0, time.monotonic() + DEADLINE_S
    while placed < 48 and time.monotonic() < end:
        number += 1
        answers = await store.commits.commit(
            [request(f"r-{number}-{n}", [node_id], session_id=node_id) for n, node_id in enumerate(nodes)]
        )
        seen = {(answer.verdict, answer.reasons) for answer in answers if answer.verdict != "unknown"}
        assert seen <= {("new", ())}, seen
        placed = placed + 16 if all(answer.verdict == "new" for answer in answers) else 0
        await asyncio.sleep(0.05)
    assert placed == 48, "every cell works again"


@pytest.mark.parametrize("session_cell", [0, 1])  # in one script; and reserve, then bind
async def test_nodes_missing_on_a_promoted_replica_are_unavailable_and_not_full(
    replicated: RedisCluster, connect: Connect, keys: Keys, session_cell: int
) -> None:
    runner = await connect(patient(replicated).redis)
    store = Store(runner, keys, patient(replicated))
    node_id, session_id = in_cell("node-", 0), in_cell("s-", session_cell)
    victim = owner_of(replicated, slot_of(keys.nodes(0)))
    master, replica = replicated.servers[victim], replicated.servers[3 + victim]
    with replica.client() as client:
        client.config_set("cluster-replica-validity-factor", 0)  # it may take over, however old its data are
    os.kill(replica.pid, signal.SIGSTOP)
    try:
        with master.client() as client:
            client.client_kill_filter(_type="replica")  # what the master writes from now on goes nowhere
        await register(store, node_id, max_jobs=1_000)
        [kept] = await store.commits.commit([request("r-1", [node_id], session_id=session_id)])
        assert kept.verdict == "new"
        os.kill(master.pid, signal.SIGKILL)
    finally:
        os.kill(replica.pid, signal.SIGCONT)
    asked, end = request("r-2", [node_id], session_id=session_id), time.monotonic() + DEADLINE_S
    [lost] = await store.commits.commit([asked])
    while lost.verdict == "unknown" and time.monotonic() < end:
        [lost] = await store.commits.commit([asked])
    assert (lost.verdict, lost.reasons, lost.seen) == ("unavailable", ("gone",), ())
    await register(store, node_id, max_jobs=1_000)
    [again] = await store.commits.commit([asked])
    assert (again.verdict, again.used) == ("new", 1)


async def test_binding_without_replica_confirmation_is_unknown(
    replicated: RedisCluster, connect: Connect, keys: Keys
) -> None:
    redis = msgspec.structs.replace(patient(replicated).redis, wait_replicas=1, wait_ms=8_000)
    config = msgspec.structs.replace(patient(replicated), redis=redis)
    runner = await connect(config.redis)
    store = Store(runner, keys, config)
    node_id = in_cell("node-", 0)
    await register(store, node_id, max_jobs=10)
    [sure] = await store.commits.commit([request("r-1", [node_id], session_id=node_id)])
    assert sure.verdict == "new"
    master = replicated.servers[owner_of(replicated, slot_of(keys.nodes(0)))]
    for server in replicated.servers[3:]:
        os.kill(server.pid, signal.SIGSTOP)
    try:
        quick = await connect(msgspec.structs.replace(redis, wait_ms=50))
        doubtful = Store(quick, keys, config)
        [unsure] = await doubtful.commits.commit([request("r-2", [node_id], session_id=node_id)])
        assert unsure.verdict == "unknown" and "replicas" in unsure.reasons[0]
        assert (await advance_job(doubtful, sure.job_id, 1, node_id, "dispatch")).verdict == "moved", "not waited for"
        with master.client() as client:
            assert client.zcard(keys.leases(0, node_id)) == 2, "unknown is not undone"
    finally:
        for server in replicated.servers[3:]:
            os.kill(server.pid, signal.SIGCONT)
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        [again] = await store.commits.commit([request("r-2", [node_id], session_id=node_id)])
        if again.verdict != "unknown":
            break
    assert again.verdict == "bound"


async def test_cluster_with_an_unassigned_slot_is_an_error(moving: RedisCluster, connect: Connect, keys: Keys) -> None:
    redis = msgspec.structs.replace(patient(moving).redis, retries_max=2, retry_ms=1)
    runner = await connect(redis)
    key = keys.session(9, "s-none")
    slot = slot_of(key)
    home = moving.servers[owner_of(moving, slot)]
    for server in moving.servers:
        cluster_command(server, "DELSLOTS", slot)
    try:
        with pytest.raises(StoreError, match="Redis cannot be used"):
            await runner.call("session_get", [key], {})
    finally:
        cluster_command(home, "ADDSLOTS", slot)
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        try:
            assert await runner.call("session_get", [key], {}) == NO_SESSION
            break
        except StoreError:
            await asyncio.sleep(0.05)
    else:
        raise AssertionError("the slot is back, but the runner did not notice")
