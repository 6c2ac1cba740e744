"""A job that is late is given to a second node as well: the first result counts, and the other is cancelled."""

from __future__ import annotations

import asyncio

from linguamesh.node import Job
from tests.support.processes.running_mesh import RunningMesh
from tests.support.processes.speakers import AUDIO, Worker, sessions, until, workers

ENV = {
    "LINGUA_JOB_HEDGING": "true",
    "LINGUA_JOB_HEDGE_BUDGET_PERCENT": "100",
    # Nothing else may move the job.
    "LINGUA_JOB_DISPATCHED_TIMEOUT_MS": "60000",
}
LEARNING_JOBS = 10
LATER_JOBS = 200


async def test_a_stalled_node_costs_little(redis_server, mesh_dir) -> None:
    async def work(worker: Worker, job: Job) -> None:
        if job.utterance_index == LEARNING_JOBS and job.attempt == 1:
            await asyncio.Event().wait()
        await asyncio.sleep(0.02)

    fleet = [Worker(f"node-{i}", work) for i in range(2)]
    with RunningMesh(mesh_dir, redis_server.url, env=ENV) as mesh:
        async with workers(mesh.url("edge-0"), *fleet), sessions(1, mesh.url("edge-1")) as [session]:
            for _ in range(LEARNING_JOBS):
                await session.translate(AUDIO)
            result = await session.translate(AUDIO, timeout=20)
            [stalled] = await until(lambda: [w for w in fleet if w.cancelled], "the stalled attempt is cancelled")
            again = await session.translate(AUDIO, timeout=20)
    other = next(worker for worker in fleet if worker is not stalled)
    assert result.text_asr == f"{other.node_id}#2"
    assert len(stalled.cancelled) == 1
    assert again.utterance_index == LEARNING_JOBS + 1


async def test_hedging_is_off_by_default(redis_server, mesh_dir) -> None:
    held, gate = asyncio.Event(), asyncio.Event()

    async def work(worker: Worker, job: Job) -> None:
        if job.utterance_index == LEARNING_JOBS and not held.is_set():
            held.set()
            await gate.wait()

    fleet = [Worker(f"node-{i}", work) for i in range(2)]
    with RunningMesh(mesh_dir, redis_server.url, env={"LINGUA_JOB_DISPATCHED_TIMEOUT_MS": "60000"}) as mesh:
        async with workers(mesh.url("edge-0"), *fleet), sessions(2, mesh.url("edge-1")) as [session, other]:
            for _ in range(LEARNING_JOBS):
                await session.translate(AUDIO)
            waiting = asyncio.create_task(session.translate(AUDIO, timeout=30))
            await held.wait()
            # Twenty times as many, one after another: meanwhile the held job is late by far.
            for _ in range(LATER_JOBS):
                await other.translate(AUDIO)
            assert sum(len(worker.jobs) for worker in fleet) == LEARNING_JOBS + 1 + LATER_JOBS
            gate.set()
            assert (await waiting).text_asr.endswith("#1")
