"""Utterances across real processes: nodes on one edge, sessions on another."""

from __future__ import annotations

import asyncio

from tests.support.clients.echo import assert_each_once, nodes_on, translate_all
from tests.support.processes.running_mesh import PATIENT, RunningMesh

SESSIONS = 20
UTTERANCES_EACH = 10
COUNTS = {"brokers": 2, "edges": 2, "selectors": 3}


async def check_results(mesh: RunningMesh) -> None:
    async with nodes_on(mesh.url("edge-0"), 4):
        clients = (translate_all(mesh.url("edge-1"), UTTERANCES_EACH) for _ in range(SESSIONS))
        assert_each_once(list(await asyncio.gather(*clients)), UTTERANCES_EACH)


async def test_results_reach_their_session_once(redis_server, mesh_dir) -> None:
    with RunningMesh(mesh_dir, redis_server.url, env=PATIENT, **COUNTS) as mesh:
        await check_results(mesh)


async def test_results_reach_their_session_once_on_a_cluster(redis_cluster, mesh_dir) -> None:
    with RunningMesh(mesh_dir, redis_cluster.url, cluster=True, env=PATIENT, **COUNTS) as mesh:
        await check_results(mesh)
