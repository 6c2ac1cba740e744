"""A tenant bound to a pool: its jobs run there or not at all, also when the pool's only node fails."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from linguamesh.errors import JobFailed, SessionError
from linguamesh.node import Job
from tests.support.clients.sdk import AUDIO, Worker, at_once, query, sessions, workers
from tests.support.conditions import until
from tests.support.processes.fleet import events_of
from tests.support.processes.running_mesh import RunningMesh

#: A node belongs to the most specific pool: only those with `tone` are acme's.
ACME, REST = 1, 2
ENV = {
    "LINGUA_POOLS_ENABLED": "true",
    "LINGUA_POOLS_POOLS": json.dumps(
        [
            {"pool_id": ACME, "name": "acme", "required_services": ["asr", "nmt", "tts", "tone"]},
            {"pool_id": REST, "name": "rest", "required_services": ["asr", "nmt", "tts"]},
        ]
    ),
    "LINGUA_POOLS_TENANT_OVERRIDES": json.dumps([{"tenant_id": "acme", "pool_id": ACME, "exclusive": True}]),
    "LINGUA_EDGE_RECONNECT_GRACE_MS": "300",
    "LINGUA_JOB_PENDING_TIMEOUT_MS": "1500",
}
OURS = ("asr", "nmt", "semantic", "tts", "tone")
TENANT: dict[str, Any] = {"tenant_id": "acme"}


async def pool_sizes(mesh: RunningMesh) -> dict[int, int]:
    answer = await query(mesh.operator(), "phase3", "pools")
    return {pool["pool_id"]: pool["ready_nodes"] for pool in answer["pools"]}


async def test_tenants_and_others_stay_apart(redis_server, mesh_dir) -> None:
    ours, others = Worker("node-acme", at_once), [Worker(f"node-{i}", at_once) for i in range(3)]
    with RunningMesh(mesh_dir, redis_server.url, env=ENV) as mesh:
        url = mesh.url("edge-0")
        async with (
            workers(url, ours, services=OURS),
            workers(url, *others),
            sessions(4, mesh.url("edge-1"), **TENANT) as bound,
            sessions(4, mesh.url("edge-1")) as free,
        ):
            await asyncio.gather(*(s.translate(AUDIO) for s in (*bound, *free) for _ in range(3)))
            assert await pool_sizes(mesh) == {ACME: 1, REST: 3}
    bound_ids = {session.session_id for session in bound}
    assert {job.session_id for job in ours.jobs} == bound_ids
    assert not bound_ids & {job.session_id for worker in others for job in worker.jobs}


async def test_the_job_of_a_killed_node_never_leaves_its_pool(redis_server, mesh_dir) -> None:
    events = mesh_dir / "events"
    others = [Worker(f"node-{i}", at_once) for i in range(3)]
    with RunningMesh(mesh_dir, redis_server.url, env=ENV) as mesh:
        options = ("--events", str(events), "--work-ms", "60000", "--services", ",".join(OURS))
        doomed = mesh.start_nodes("node-acme", mesh.url("edge-0"), *options)
        doomed.wait_ready()
        async with workers(mesh.url("edge-1"), *others), sessions(1, mesh.url("edge-1"), **TENANT) as [session]:
            waiting = asyncio.create_task(session.translate(AUDIO))
            await until(lambda: events_of(events, "assigned"), "the tenant's node has the job")
            doomed.kill()
            with pytest.raises(SessionError) as error:
                await waiting
    assert [worker.jobs for worker in others] == [[], [], []]
    assert error.value.code in ("NO_AVAILABLE_NODE", "NODE_UNAVAILABLE")
    assert says_the_pool(error.value), error.value.details


async def test_a_failed_job_moves_within_its_pool_only(redis_server, mesh_dir) -> None:
    async def fail_first(worker: Worker, job: Job) -> None:
        if job.attempt == 1:
            raise JobFailed("PROCESSING_ERROR", "cannot")

    ours = [Worker(f"node-acme-{i}", fail_first) for i in range(2)]
    others = [Worker(f"node-{i}", at_once) for i in range(3)]
    with RunningMesh(mesh_dir, redis_server.url, env=ENV) as mesh:
        url = mesh.url("edge-0")
        async with (
            workers(url, *ours, services=OURS),
            workers(url, *others),
            sessions(1, mesh.url("edge-1"), **TENANT) as [session],
        ):
            result = await session.translate(AUDIO)
    assert result.text_asr.endswith("#2")
    assert [len(worker.jobs) for worker in ours] == [1, 1]
    assert [worker.jobs for worker in others] == [[], [], []]


async def test_client_gets_the_failure_when_the_pool_has_no_other_node(redis_server, mesh_dir) -> None:
    async def fail(worker: Worker, job: Job) -> None:
        raise JobFailed("PROCESSING_ERROR", "cannot")

    ours, others = Worker("node-acme", fail), [Worker(f"node-{i}", at_once) for i in range(3)]
    with RunningMesh(mesh_dir, redis_server.url, env=ENV) as mesh:
        url = mesh.url("edge-0")
        async with (
            workers(url, ours, services=OURS),
            workers(url, *others),
            sessions(1, mesh.url("edge-1"), **TENANT) as [session],
        ):
            with pytest.raises(SessionError, match="cannot") as error:
                await session.translate(AUDIO)
    assert error.value.code == "PROCESSING_ERROR"
    assert len(ours.jobs) == 1
    assert [worker.jobs for worker in others] == [[], [], []]


def says_the_pool(error: SessionError) -> bool:
    """True if what removed the nodes of other pools is that they are in other pools."""
    removed = error.details.get("removed", {})
    return any(reason in removed for reason in ("pool_not_eligible", "tenant_mismatch")) or "pool" in error.message
