"""A node that disconnects or reports an error: its jobs move to other nodes, and no job runs twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.support.clients.echo import nodes_on
from tests.support.clients.sdk import AUDIO, Worker, at_once, sessions, workers
from tests.support.conditions import until
from tests.support.fakes.original_node import receive, register_node, send
from tests.support.processes.fleet import events_of
from tests.support.processes.running_mesh import PATIENT, RunningMesh


async def test_job_moves_when_its_node_stays_offline(redis_server, mesh_dir) -> None:
    env = {**PATIENT, "LINGUA_EDGE_RECONNECT_GRACE_MS": "200"}
    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        async with sessions(1, mesh.url("edge-1")) as [session]:
            async with connect(f"{mesh.url('edge-0')}/ws/node") as doomed:
                await register_node(doomed)
                waiting = asyncio.create_task(session.translate(AUDIO))
                first = await receive(doomed, "job_assign")
            async with nodes_on(mesh.url("edge-1"), 1):
                result = await waiting
    assert first["attempt_id"] == 1
    assert result.text_asr == f"{session.session_id}/0"


async def test_killed_nodes_job_moves_after_the_reconnect_grace(redis_server, mesh_dir) -> None:
    """Only the end of the grace can explain that the job moves: all other timeouts are ten minutes."""
    events = mesh_dir / "events"
    other = Worker("node-b", at_once)
    env = {**PATIENT, "LINGUA_EDGE_RECONNECT_GRACE_MS": "1500", "LINGUA_JOB_DISPATCHED_TIMEOUT_MS": "600000"}
    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        options = ("--events", str(events), "--work-ms", "600000")
        doomed = mesh.start_nodes("node-a", mesh.url("edge-0"), *options)
        doomed.wait_ready()
        async with sessions(1, mesh.url("edge-1")) as [session]:
            waiting = asyncio.create_task(session.translate(AUDIO))
            await until(lambda: events_of(events, "assigned"), "node-a has the job")
            async with workers(mesh.url("edge-1"), other):
                doomed.kill()
                result = await waiting
    assert result.text_asr == "node-b#2"
    assert len(other.jobs) == 1


@pytest.mark.parametrize("names_the_job", [True, False])
async def test_node_error_moves_the_nodes_jobs(redis_server, mesh_dir, names_the_job: bool) -> None:
    """Only the node's error can explain that the job moves: the grace and all timeouts are ten minutes."""
    env = {**PATIENT, "LINGUA_EDGE_RECONNECT_GRACE_MS": "600000", "LINGUA_JOB_DISPATCHED_TIMEOUT_MS": "600000"}
    other = Worker("node-b", at_once)
    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        async with sessions(1, mesh.url("edge-1")) as [session], connect(f"{mesh.url('edge-0')}/ws/node") as failing:
            node_id = await register_node(failing)
            waiting = asyncio.create_task(session.translate(AUDIO))
            job = await receive(failing, "job_assign")
            async with workers(mesh.url("edge-1"), other):
                error: dict[str, Any] = {"type": "node_error", "node_id": node_id, "code": "INTERNAL_ERROR"}
                details = {"job_id": job["job_id"]} if names_the_job else None
                await send(failing, {**error, "message": "the GPU is gone", "details": details})
                result = await waiting
    assert result.text_asr == "node-b#2"


async def test_node_that_reconnects_within_the_grace_keeps_its_job(redis_server, mesh_dir) -> None:
    """The SDK's node reconnects by itself; the job that it runs meanwhile gets no second attempt."""
    gate = asyncio.Event()

    async def work(worker: Worker, job: object) -> None:
        await gate.wait()

    first, other = Worker("node-a", work), Worker("node-b", at_once)
    env = {**PATIENT, "LINGUA_EDGE_RECONNECT_GRACE_MS": "600000", "LINGUA_JOB_DISPATCHED_TIMEOUT_MS": "600000"}
    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        async with sessions(1, mesh.url("edge-1")) as [session], workers(mesh.url("edge-0"), first) as [node]:
            waiting = asyncio.create_task(session.translate(AUDIO))
            await until(lambda: first.jobs, "node-a has the job")
            async with workers(mesh.url("edge-1"), other):
                assert node._outbound.connection is not None
                node._outbound.connection.transport.abort()
                await until(lambda: not node.is_registered, "node-a lost its connection")
                await until(lambda: node.is_registered, "node-a is back")
                gate.set()
                result = await waiting
    assert result.text_asr == "node-a#1"
    assert other.jobs == []
