"""A node that goes away or says that it cannot go on: its jobs move to others, in time, and none is done twice."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from linguamesh.session import Session
from tests.e2e.test_crossing import nodes_on
from tests.e2e.test_original import REGISTER, heartbeat, receive, send
from tests.support.processes.fleet import events_of
from tests.support.processes.running_mesh import RunningMesh
from tests.support.processes.speakers import AUDIO, Worker, at_once, sessions, until, workers

LANGUAGES = {"asr_languages": ["en"], "semantic_languages": ["es"], "tts_languages": ["es"]}
GRACE_MS = 1_500


async def plain_node(socket: ClientConnection) -> str:
    """Register as the original's node does; the node's id."""
    await send(socket, {**REGISTER, "language_capabilities": LANGUAGES})
    ack = await receive(socket, "node_register_ack")
    node_id = str(ack["node_id"])
    await send(socket, {**heartbeat(node_id), "language_capabilities": LANGUAGES})
    return node_id


async def test_a_job_moves_when_its_node_stays_away(redis_server, mesh_dir) -> None:
    env = {"LINGUA_EDGE_RECONNECT_GRACE_MS": "200"}
    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        async with Session(mesh.url("edge-1"), src="en", tgt="es") as session:
            async with connect(f"{mesh.url('edge-0')}/ws/node") as doomed:
                await plain_node(doomed)
                waiting = asyncio.create_task(session.translate(AUDIO, timeout=30))
                first = await receive(doomed, "job_assign")
            async with nodes_on(mesh.url("edge-1"), 1):
                result = await waiting
    assert first["attempt_id"] == 1
    assert result.text_asr == f"{session.session_id}/0"


async def test_a_killed_nodes_job_moves_within_the_grace_and_a_second(redis_server, mesh_dir) -> None:
    events = mesh_dir / "events"
    other = Worker("node-b", at_once)
    env = {"LINGUA_EDGE_RECONNECT_GRACE_MS": str(GRACE_MS), "LINGUA_JOB_DISPATCHED_TIMEOUT_MS": "60000"}
    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        options = ("--events", str(events), "--work-ms", "60000")
        doomed = mesh.start_nodes("node-a", mesh.url("edge-0"), *options)
        doomed.wait_ready()
        async with sessions(1, mesh.url("edge-1")) as [session]:
            waiting = asyncio.create_task(session.translate(AUDIO, timeout=30))
            await until(lambda: events_of(events, "assigned"), "node-a has the job")
            async with workers(mesh.url("edge-1"), other):
                killed_s = time.monotonic()
                doomed.kill()
                result = await waiting
    assert result.text_asr == "node-b#2"
    assert len(other.jobs) == 1
    assert other.came_s[0] - killed_s < GRACE_MS / 1_000 + 1


@pytest.mark.parametrize("names_the_job", [True, False])
async def test_a_nodes_own_word_moves_its_jobs_at_once(redis_server, mesh_dir, names_the_job: bool) -> None:
    """With a grace and time-outs of a minute only the node's word can explain that the job moves."""
    env = {"LINGUA_EDGE_RECONNECT_GRACE_MS": "60000", "LINGUA_JOB_DISPATCHED_TIMEOUT_MS": "60000"}
    other = Worker("node-b", at_once)
    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        async with sessions(1, mesh.url("edge-1")) as [session], connect(f"{mesh.url('edge-0')}/ws/node") as failing:
            node_id = await plain_node(failing)
            waiting = asyncio.create_task(session.translate(AUDIO, timeout=30))
            job = await receive(failing, "job_assign")
            async with workers(mesh.url("edge-1"), other):
                error: dict[str, Any] = {"type": "node_error", "node_id": node_id, "code": "INTERNAL_ERROR"}
                details = {"job_id": job["job_id"]} if names_the_job else None
                await send(failing, {**error, "message": "the GPU is gone", "details": details})
                result = await waiting
    assert result.text_asr == "node-b#2"


async def test_a_node_that_comes_back_in_time_keeps_its_job(redis_server, mesh_dir) -> None:
    """The SDK's node reconnects by itself; the job that it works on meanwhile is not given to anybody else."""
    gate = asyncio.Event()

    async def work(worker: Worker, job: object) -> None:
        await gate.wait()

    first, other = Worker("node-a", work), Worker("node-b", at_once)
    env = {"LINGUA_EDGE_RECONNECT_GRACE_MS": "20000"}
    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        async with sessions(1, mesh.url("edge-1")) as [session], workers(mesh.url("edge-0"), first) as [node]:
            waiting = asyncio.create_task(session.translate(AUDIO, timeout=40))
            await until(lambda: first.jobs, "node-a has the job")
            async with workers(mesh.url("edge-1"), other):
                assert node._connection is not None
                node._connection.transport.abort()
                await until(lambda: not node.is_registered, "node-a lost its connection")
                await until(lambda: node.is_registered, "node-a is back")
                gate.set()
                result = await waiting
    assert result.text_asr == "node-a#1"
    assert other.jobs == []
