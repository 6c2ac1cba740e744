"""A node that lacks a model: the utterance goes elsewhere, and no selector sends it such work until the mark ends."""

from __future__ import annotations

import asyncio
import time

import pytest

from linguamesh.errors import JobFailed, SessionError
from linguamesh.node import Job
from tests.support.processes.running_mesh import RunningMesh
from tests.support.processes.speakers import AUDIO, Worker, asked, at_once, sessions, status_of, until, workers

UNAVAILABLE_MS = 5_000
ENV = {"LINGUA_MODELS_UNAVAILABLE_MS": str(UNAVAILABLE_MS), "LINGUA_SELECTOR_SNAPSHOT_IDLE_MS": "100"}
#: Longer than any selector's snapshot takes to bring what Redis has.
SNAPSHOTS_S = 0.5
DETAILS = {"service_id": "nmt-sdk", "service_version": "1", "reason": "model not found"}


async def lacks_it(worker: Worker, job: Job) -> None:
    raise JobFailed("MODEL_NOT_AVAILABLE", "no such model", DETAILS)


async def is_ready(mesh: RunningMesh, node_id: str) -> bool:
    return await status_of(mesh.operator(), node_id) == "ready"


async def is_marked(mesh: RunningMesh, node_id: str) -> bool:
    return bool((await asked(mesh.operator(), "nodes", node_id))["models_unavailable"])


async def test_no_selector_asks_a_node_again_for_what_it_lacks(redis_server, mesh_dir) -> None:
    other_is_there = asyncio.Event()

    async def lacks_it_then(worker: Worker, job: Job) -> None:
        await other_is_there.wait()
        await lacks_it(worker, job)

    lacking, other = Worker("node-a", lacks_it_then), Worker("node-b", at_once)
    with RunningMesh(mesh_dir, redis_server.url, selectors=3, env=ENV) as mesh:
        async with workers(mesh.url("edge-0"), lacking), sessions(8, mesh.url("edge-1")) as speakers:
            first = asyncio.create_task(speakers[0].translate(AUDIO))
            await until(lambda: lacking.jobs, "node-a has the first job")
            async with workers(mesh.url("edge-0"), other):
                await until(lambda: is_ready(mesh, "node-b"), "node-b is ready")
                await asyncio.sleep(SNAPSHOTS_S)
                failed_s = time.monotonic()
                other_is_there.set()
                result = await first
                assert result.text_asr == "node-b#2"
                await until(lambda: is_marked(mesh, "node-a"), "node-a is marked")
                await asyncio.sleep(SNAPSHOTS_S)
                asked_before = len(lacking.jobs)
                lacking.work = at_once
                await until(lambda: works_again(speakers, lacking, asked_before), "node-a gets such work again")
                metrics = await asked(mesh.operator(), "metrics")
    assert lacking.came_s[asked_before] - failed_s >= UNAVAILABLE_MS / 1_000
    missing = metrics["model_not_available"]
    assert missing["received_total"] >= 1
    assert missing["marked_total"] >= 1
    assert [entry["key"] for entry in missing["by_service_top"]] == ["nmt-sdk"]
    assert [entry["key"] for entry in missing["by_reason_top"]] == ["not_found"]


@pytest.mark.parametrize("nodes", [1, 2])
async def test_the_error_reaches_the_client_when_nobody_has_the_model(redis_server, mesh_dir, nodes: int) -> None:
    """At once: nobody waits for nodes that have said no, however soon their marks end."""
    lacking = [Worker(f"node-{i}", lacks_it) for i in range(nodes)]
    with RunningMesh(mesh_dir, redis_server.url, env={**ENV, "LINGUA_JOB_PENDING_TIMEOUT_MS": "60000"}) as mesh:
        async with workers(mesh.url("edge-0"), *lacking), sessions(1, mesh.url("edge-1")) as [session]:
            with pytest.raises(SessionError) as error:
                await session.translate(AUDIO, timeout=30)
    assert error.value.code == "MODEL_NOT_AVAILABLE"
    assert [len(worker.jobs) for worker in lacking] == [1] * nodes


async def works_again(speakers: list, worker: Worker, asked_before: int) -> bool:
    """Speak once in each session; True once the worker got one of these."""
    await asyncio.gather(*(session.translate(AUDIO) for session in speakers))
    return len(worker.jobs) > asked_before
