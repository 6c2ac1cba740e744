"""A selector whose Redis goes away, comes back empty, holds nonsense, or is a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from linguamesh.local.redis_server import RedisCluster, RedisServer
from mesh.cells import cell_of
from mesh.frames import (
    Failed,
    NodeHeartbeat,
    NodeLoad,
    NodeRegister,
    NodeStale,
    Push,
    Refused,
    ResultAcks,
    SessionClaim,
    SessionClaimed,
)
from mesh.keys import Keys
from tests.support.builders.selector import CAPS
from tests.support.processes.selector import FakeEdge, Rig


async def claim(edge: FakeEdge, session_id: str) -> bool:
    """True if the claim was confirmed, False if the store was said to be down."""
    edge.send_record(session_id, SessionClaim(f"ref-{session_id}", session_id, edge.identity, 0, "", "en", "es"))
    answer = await edge.take_first(SessionClaimed, Failed)
    if isinstance(answer, Failed):
        assert (answer.ref, answer.code) == (f"ref-{session_id}", "SCHEDULER_DEPENDENCY_DOWN")
    return isinstance(answer, SessionClaimed)


async def test_redis_goes_away_and_comes_back_empty(tmp: Path) -> None:
    server = RedisServer.start(tmp)
    rig = Rig(tmp, server)
    try:
        rig.spawn("broker", "b1")
        # Two quick tries: the claims below shall hear of the outage, not outlast it.
        selector = rig.spawn("selector", "s1", LINGUA_REDIS_RETRIES_MAX="1")
        edge = await rig.add_edge("a")
        epoch = await edge.add_node("node-1")
        assign, _ = await edge.place("r-1")
        port = server.port
        server.stop()

        assert not await claim(edge, "s-1")
        edge.send_record("node-2", NodeRegister("ref-2", "node-2", edge.identity, CAPS))
        failed, _ = await edge.take(Failed)
        assert (failed.ref, failed.code) == ("ref-2", "SCHEDULER_DEPENDENCY_DOWN")
        edge.dispatch("r-2")  # no answer: its edge repeats it
        assert not await claim(edge, "s-2")
        assert selector.poll() is None, "it waits for Redis to return"

        server = RedisServer.start(tmp, port)
        for index in range(200):
            if await claim(edge, f"s-back-{index}"):
                break
        else:
            raise AssertionError("the selector never found its Redis again")
        edge.send_record("node-1", NodeHeartbeat("node-1", edge.identity, epoch, NodeLoad()))
        stale, _ = await edge.take(NodeStale)
        assert stale.reason == "unknown", "the edge shall register the node again"
        await edge.add_node("node-1")
        again, _ = await edge.place("r-2")
        edge.finish(assign)  # Redis forgot the job; its result is delivered all the same
        edge.finish(again)
        for job_id in (assign.job_id, again.job_id):
            await edge.take(Push, lambda push, job_id=job_id: push.job_id == job_id)
        assert not edge.has(ResultAcks)
    finally:
        await rig.close_edges()
        rig.end(list(rig.processes))
        server.stop()


async def test_edges_are_told_at_once_which_nodes_an_empty_redis_forgot(tmp: Path, redis_server: RedisServer) -> None:
    rig = Rig(tmp, redis_server)
    try:
        rig.spawn("broker", "b1")
        rig.spawn("selector", "s1")
        edge = await rig.add_edge("a")
        epochs = {node_id: await edge.add_node(node_id) for node_id in ("node-1", "node-2", "node-3")}
        await edge.place("r-1")
        with redis_server.client() as client:
            client.flushall()
        # No heartbeat, no Dispatch: the selector finds out by itself.
        for node_id, epoch in epochs.items():
            stale, _ = await edge.take(NodeStale, lambda frame, node_id=node_id: frame.node_id == node_id)
            assert (stale.epoch, stale.reason) == (epoch, "unknown")
            await edge.add_node(node_id)
        await edge.place("r-2")
    finally:
        await rig.close_edges()
        rig.end(list(rig.processes))


async def test_the_edge_of_a_node_whose_record_is_missing_is_told(tmp: Path, redis_server: RedisServer) -> None:
    rig = Rig(tmp, redis_server)
    try:
        rig.spawn("broker", "b1")
        rig.spawn("selector", "s1")
        edge = await rig.add_edge("a")
        epoch = await edge.add_node("node-1")
        await edge.place("r-1")
        with redis_server.client() as client:  # only this: the cell's versions do not go back
            client.delete(Keys().node(cell_of("node-1", rig.config.mesh.cells), "node-1"))
        edge.dispatch("r-2")
        stale, _ = await edge.take(NodeStale)
        assert (stale.node_id, stale.epoch, stale.reason) == ("node-1", epoch, "unknown")
        refused, _ = await edge.take(Refused)
        assert refused.retry_after_ms > 0
        await edge.add_node("node-1")
        await edge.place("r-2")
    finally:
        await rig.close_edges()
        rig.end(list(rig.processes))


async def test_a_view_that_cannot_be_read_costs_its_node_and_nobody_else(tmp: Path, redis_server: RedisServer) -> None:
    rig = Rig(tmp, redis_server)
    cells = rig.config.mesh.cells
    other = next(f"node-{n}" for n in range(100) if cell_of(f"node-{n}", cells) == cell_of("node-bad", cells))
    try:
        rig.spawn("broker", "b1")
        selector = rig.spawn("selector", "s1")
        edge = await rig.add_edge("a")
        await edge.add_node("node-bad")
        with redis_server.client() as client:
            client.hset(Keys().view(cell_of("node-bad", cells)), "node-bad", b"\xc1 nonsense")
        rig.end([selector])
        rig.spawn("selector", "s2")
        await edge.add_node(other)
        assign, _ = await edge.place("r-1")
        assert assign.node_id == other
    finally:
        await rig.close_edges()
        rig.end(list(rig.processes))


@pytest.mark.timeout(120)
async def test_the_same_story_on_a_cluster(tmp: Path, redis_cluster: RedisCluster) -> None:
    rig = Rig(tmp, redis_cluster)
    try:
        rig.spawn("broker", "b1")
        for name in ("s1", "s2"):
            rig.spawn("selector", name)
        edge = await rig.add_edge("a")
        for index in range(3):
            await edge.add_node(f"node-{index}", max_jobs=2)
        assigned = [(await edge.place(f"r-{index}", session_id=f"s-{index}"))[0] for index in range(6)]
        assert sorted(assign.node_id for assign in assigned) == sorted(["node-0", "node-1", "node-2"] * 2)
        again, _ = await edge.place("r-0", session_id="s-0")
        assert again.job_id == assigned[0].job_id
        for assign in assigned:
            edge.finish(assign)
            await edge.take(Push, lambda push, job_id=assign.job_id: push.job_id == job_id)
        for index in range(3):
            await rig.until_used(f"node-{index}", 0)
    finally:
        await rig.close_edges()
        rig.end(list(rig.processes))
