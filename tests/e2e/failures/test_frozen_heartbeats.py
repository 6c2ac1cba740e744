"""Half the fleet sends no heartbeats while its nodes work: dispatch shifts to the others, and back when they resume."""

from __future__ import annotations

import asyncio

from linguamesh.node import Node
from tests.support.clients.sdk import AUDIO, Worker, at_once, placements, query, sessions, workers
from tests.support.conditions import until
from tests.support.processes.running_mesh import PATIENT, RunningMesh

HEARTBEAT_S = 0.3
ENV = {
    **PATIENT,
    "LINGUA_NODE_HEARTBEAT_INTERVAL_MS": "300",
    "LINGUA_NODE_HEARTBEAT_TIMEOUT_MS": "3000",
    "LINGUA_NODE_STATUS_SCAN_MS": "200",
    "LINGUA_EDGE_HEARTBEAT_MIN_MS": "100",
}


async def test_nodes_without_heartbeats_get_no_work_until_they_resume(redis_server, mesh_dir) -> None:
    silent, talking = ([Worker(f"node-{half}-{i}", at_once) for i in range(4)] for half in ("s", "t"))
    with RunningMesh(mesh_dir, redis_server.url, env=ENV) as mesh:
        url = mesh.url("edge-0")
        async with (
            workers(url, *silent, heartbeat_interval_s=HEARTBEAT_S) as frozen,
            workers(url, *talking, heartbeat_interval_s=HEARTBEAT_S),
            sessions(8, mesh.url("edge-1")) as speakers,
        ):
            await until(lambda: spoke_to_all(speakers, [*silent, *talking]), "all nodes get work")
            for node in frozen:
                freeze(node)
            # Every utterance on the way there has a result: translate() raises otherwise.
            await until(lambda: spoke_while_silent(mesh, speakers, silent), "the silent nodes count as offline")
            before = placements(silent)
            for _ in range(5):
                await asyncio.gather(*(session.translate(AUDIO) for session in speakers))
            assert placements(silent) == before
            for node in frozen:
                thaw(node)
            await until(lambda: spoke_to_all(speakers, silent, before.total()), "the nodes are back")


def freeze(node: Node) -> None:
    """No more heartbeats; the socket stays open and jobs are worked on."""

    async def nothing() -> None:
        pass

    node._send_heartbeat = nothing  # type: ignore[method-assign]


def thaw(node: Node) -> None:
    del node._send_heartbeat


async def spoke_to_all(speakers: list, of: list[Worker], more_than: int = 0) -> bool:
    """Speak once in each session; True once each worker has had work, and all together more than so much."""
    await asyncio.gather(*(session.translate(AUDIO) for session in speakers))
    counts = placements(of)
    return all(counts[worker.node_id] for worker in of) and counts.total() > more_than


async def spoke_while_silent(mesh: RunningMesh, speakers: list, silent: list[Worker]) -> bool:
    await asyncio.gather(*(session.translate(AUDIO) for session in speakers))
    states = [await query(mesh.operator(), "nodes", worker.node_id) for worker in silent]
    return all(state["status"] == "offline" for state in states)
