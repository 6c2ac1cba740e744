"""A node's life as its edge sees it: warming up, failing, silence, a closed socket, drains, and slots that leak."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import msgspec
import pytest

from linguamesh.local.redis_server import RedisServer
from mesh.cells import cell_of
from mesh.frames import Assign, AssignFailed, NodeOffline, NodeStale, Push, StatusChanged, Undone
from mesh.keys import Keys, lease_member
from tests.support.builders.selector import CAPS
from tests.support.processes.selector import FakeEdge, Rig, selecting, until

GRACE_MS = 3_000
SILENT_MS = 2_500


@pytest.fixture(scope="module")
def mesh(_redis_process: RedisServer) -> Iterator[Rig]:
    """Two selectors that lose patience soon."""
    with selecting(
        _redis_process,
        "s1",
        "s2",
        LINGUA_EDGE_RECONNECT_GRACE_MS=str(GRACE_MS),
        LINGUA_NODE_HEARTBEAT_TIMEOUT_MS=str(SILENT_MS),
        LINGUA_NODE_STATUS_SCAN_MS="100",
        LINGUA_NODE_AUDIT_GRACE_MS="1",
        LINGUA_NODE_WARMUP_TIMEOUT_MS="1",
        LINGUA_SELECTOR_PRESENCE_MS="50",
    ) as rig:
        yield rig


async def told(edge: FakeEdge, node_id: str, status: str) -> StatusChanged:
    return (await edge.take(StatusChanged, lambda frame: (frame.node_id, frame.status) == (node_id, status)))[0]


async def node(edge: FakeEdge, node_id: str, **wanted: Any) -> dict[str, Any]:
    """What selectors say of a node, once all of `wanted` is so."""
    seen: dict[str, Any] = {}

    async def is_so() -> bool:
        status, answer = await edge.query("node", node_id=node_id)
        seen.clear()
        seen.update(answer)
        return status == 200 and all(answer[name] == value for name, value in wanted.items())

    await until(is_so)
    return seen


@contextlib.asynccontextmanager
async def alive(edge: FakeEdge, epochs: Mapping[str, int]) -> AsyncIterator[None]:
    """These nodes go on beating, however long the rest takes."""

    async def beat() -> None:
        while True:
            for node_id, epoch in epochs.items():
                edge.beat(node_id, epoch)
            await asyncio.sleep(0.3)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


async def is_gone(edge: FakeEdge, node_id: str) -> bool:
    return (await edge.query("node", node_id=node_id))[0] == 404


# --- health -----------------------------------------------------------------------------------------------


async def test_a_healthy_node_is_ready_and_its_edge_hears_it(edge: FakeEdge) -> None:
    epoch = await edge.add_node("node-1")
    changed = await told(edge, "node-1", "ready")
    assert (changed.epoch, changed.reason) == (epoch, "healthy")
    edge.beat("node-1", epoch)
    await node(edge, "node-1", status="ready")
    assert not edge.has(StatusChanged), "only changes are told"


async def test_a_node_that_is_not_whole_does_not_begin(edge: FakeEdge) -> None:
    epoch = await edge.add_node("node-1", services_ready=["asr"])
    changed = await told(edge, "node-1", "degraded")
    assert changed.reason == "warmup_timeout"
    edge.beat("node-1", epoch, caps=CAPS)
    assert (await told(edge, "node-1", "ready")).reason == "recovered"
    async with alive(edge, {"node-1": epoch}):
        await edge.place("r-1")


async def test_a_ready_node_is_degraded_by_failures_in_a_row_and_recovers(edge: FakeEdge) -> None:
    epoch = await edge.add_node("node-1")
    await told(edge, "node-1", "ready")
    bad = msgspec.structs.replace(CAPS, services_ready=[])
    for _ in range(2):
        edge.beat("node-1", epoch, caps=bad)
    await node(edge, "node-1", services_ready=[])
    assert not edge.has(StatusChanged), "two are not enough"
    edge.beat("node-1", epoch, gpu_percent=400.0)
    assert (await told(edge, "node-1", "degraded")).reason == "unhealthy"
    edge.beat("node-1", epoch, caps=CAPS)
    await told(edge, "node-1", "ready")


async def test_a_silent_node_is_offline_and_a_heartbeat_brings_it_back(edge: FakeEdge) -> None:
    epoch = await edge.add_node("node-1")
    await told(edge, "node-1", "ready")
    changed = await told(edge, "node-1", "offline")
    assert (changed.epoch, changed.reason) == (epoch, "heartbeat_timeout")
    await node(edge, "node-1", status="offline")
    edge.beat("node-1", epoch)
    assert (await told(edge, "node-1", "ready")).reason == "recovered"
    async with alive(edge, {"node-1": epoch}):
        await edge.place("r-1")


# --- a closed socket --------------------------------------------------------------------------------------


async def test_a_detached_node_stays_listed_at_a_price_and_leaves_after_the_grace(edge: FakeEdge) -> None:
    epoch = await edge.add_node("node-1")
    other = await edge.add_node("node-2")
    for node_id in ("node-1", "node-2"):
        await told(edge, node_id, "ready")
    async with alive(edge, {"node-2": other}):
        edge.send_record("node-1", NodeOffline("node-1", edge.identity, epoch, "closed"))

        async def is_priced() -> bool:
            _, answer = await edge.query("simulate", src_lang="en", tgt_lang="es")
            shown = {one["node_id"]: one for one in answer["nodes"]}
            one = shown.get("node-1")
            return one is not None and one["reason"] == "ok" and one["terms"]["detached"] > 0

        await until(is_priced)
        _, answer = await edge.query("simulate", src_lang="en", tgt_lang="es")
        assert answer["selected_node_id"] == "node-2"
        changed = await told(edge, "node-1", "offline")
        assert (changed.epoch, changed.reason) == (epoch, "closed")

        async def has_left() -> bool:
            return await is_gone(edge, "node-1")

        await until(has_left)
        edge.beat("node-1", epoch)
        stale, _ = await edge.take(NodeStale)
        assert (stale.node_id, stale.reason) == ("node-1", "unknown"), "it must register"


async def test_a_node_that_registers_within_the_grace_is_attached_again(edge: FakeEdge) -> None:
    epoch = await edge.add_node("node-1")
    await told(edge, "node-1", "ready")
    edge.send_record("node-1", NodeOffline("node-1", edge.identity, epoch, "closed"))

    async def is_detached() -> bool:
        _, answer = await edge.query("node", node_id="node-1")
        return bool(answer.get("detached_ms", 0) > 0)

    await until(is_detached)
    again = await edge.add_node("node-1")
    assert again > epoch
    async with alive(edge, {"node-1": again}):
        await node(edge, "node-1", status="ready", detached_ms=0, epoch=again)
        edge.send_record("node-1", NodeOffline("node-1", edge.identity, epoch, "late"))  # the old socket's goodbye
        await edge.place("r-1")
        assert (await node(edge, "node-1"))["detached_ms"] == 0


# --- jobs that nodes give back ------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["node_error", "drained"])
async def test_a_job_that_its_node_gives_up_moves_at_once_and_the_node_stays(
    rig: Rig, edge: FakeEdge, reason: str
) -> None:
    epochs = {node_id: await edge.add_node(node_id, max_jobs=1) for node_id in ("node-1", "node-2")}
    for node_id in epochs:
        await told(edge, node_id, "ready")
    async with alive(edge, epochs):
        assign, _ = await edge.place("r-1")
        failed = AssignFailed(assign.job_id, 1, assign.node_id, epochs[assign.node_id], "r-1", edge.identity, reason)
        edge.send_job(assign.job_id, failed)
        undone, _ = await edge.take(Undone)
        assert (undone.attempt, undone.reason, undone.exclude_node) == (1, reason, True)
        again, _ = await edge.place("r-1", attempt=2, excluded=[undone.node_id])
        assert again.node_id != assign.node_id
        await node(edge, assign.node_id, used=0)


async def test_a_node_drained_by_an_operator_gets_no_new_work_but_ends_its_own(rig: Rig, edge: FakeEdge) -> None:
    epoch = await edge.add_node("node-1")
    await told(edge, "node-1", "ready")
    async with alive(edge, {"node-1": epoch}):
        assign, _ = await edge.place("r-1")
        status, _ = await edge.query("drain", node_id="node-1")
        assert status == 200
        edge.beat("node-1", epoch, jobs=[lease_member(assign.job_id, 1)])
        await node(edge, "node-1", status="draining", used=1)
        edge.finish(assign)
        await edge.take(Push)
        await rig.until_used("node-1", 0)
        edge.dispatch("r-late")  # stands in line from now on
        _, answer = await edge.query("simulate", src_lang="en", tgt_lang="es")
        assert answer["breakdown"]["draining"] == 1 and answer["selected_node_id"] is None
        assert not edge.has(Assign)


# --- the ledger -------------------------------------------------------------------------------------------


async def ledger(edge: FakeEdge) -> dict[str, int]:
    _, answer = await edge.query("invariants")
    found: dict[str, int] = answer["ledger"]
    return found


async def test_a_leaked_slot_is_found_and_the_drift_is_gone_after_two_heartbeats(rig: Rig, edge: FakeEdge) -> None:
    before = await ledger(edge)
    epoch = await edge.add_node("node-1", max_jobs=2)
    await told(edge, "node-1", "ready")
    async with alive(edge, {"node-1": epoch}):
        leaked, _ = await edge.place("r-1")
        running, _ = await edge.place("r-2")
        assert await rig.used("node-1") == 2

        async def is_found() -> bool:  # a slot is compared only when it is older than the grace
            edge.beat("node-1", epoch, running_jobs=1, jobs=[lease_member(running.job_id, 1)])
            return (await ledger(edge))["leaked_total"] == before["leaked_total"] + 1

        await until(is_found)
        await rig.until_used("node-1", 1)
        edge.beat("node-1", epoch, running_jobs=1, jobs=[lease_member(running.job_id, 1)])

        async def is_settled() -> bool:
            return (await ledger(edge))["drift"] == 0

        await until(is_settled)
        edge.finish(leaked)  # it was given up: too late
        edge.finish(running)
        push, _ = await edge.take(Push)
        assert push.job_id == running.job_id


async def test_a_running_job_without_a_slot_gets_one_back(rig: Rig, edge: FakeEdge, redis_server: RedisServer) -> None:
    before = await ledger(edge)
    epoch = await edge.add_node("node-1", max_jobs=2)
    await told(edge, "node-1", "ready")
    async with alive(edge, {"node-1": epoch}):
        assign, _ = await edge.place("r-1")
        member = lease_member(assign.job_id, 1)
        with redis_server.client() as client:
            client.zrem(Keys().leases(cell_of("node-1", rig.config.mesh.cells), "node-1"), member)
        edge.beat("node-1", epoch, running_jobs=1, jobs=[member])

        async def is_repaired() -> bool:
            return (await ledger(edge))["missing_total"] == before["missing_total"] + 1

        await until(is_repaired)
        await rig.until_used("node-1", 1)
        edge.beat("node-1", epoch, running_jobs=1, jobs=[member])

        async def is_settled() -> bool:
            return (await ledger(edge))["drift"] == 0

        await until(is_settled)
        status, answer = await edge.query("invariants")
        assert status == 200 and answer["oversold"] == []
