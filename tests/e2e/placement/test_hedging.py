"""A late job is hedged: it runs on a second node as well; the first result counts, the other attempt is cancelled."""

from __future__ import annotations

import asyncio

from linguamesh.node import Job
from tests.support.clients.sdk import AUDIO, Worker, sessions, workers
from tests.support.conditions import until
from tests.support.processes.running_mesh import PATIENT, RunningMesh

#: No timeout may move the job: only a hedge can.
ENV = {**PATIENT, "LINGUA_JOB_DISPATCHED_TIMEOUT_MS": "600000"}
HEDGED_ENV = {**ENV, "LINGUA_JOB_HEDGING": "true", "LINGUA_JOB_HEDGE_BUDGET_PERCENT": "100"}
LEARNING_JOBS = 10
LATER_JOBS = 100


async def test_hedge_replaces_a_stalled_attempt(redis_server, mesh_dir) -> None:
    """Other jobs may be hedged too if the machine stalls. Nothing is assumed about them."""
    stalled: list[tuple[Worker, Job]] = []

    async def work(worker: Worker, job: Job) -> None:
        if job.utterance_index == LEARNING_JOBS and job.attempt == 1:
            stalled.append((worker, job))
            await asyncio.Event().wait()

    fleet = [Worker(f"node-{i}", work) for i in range(2)]
    with RunningMesh(mesh_dir, redis_server.url, env=HEDGED_ENV) as mesh:
        async with workers(mesh.url("edge-0"), *fleet), sessions(1, mesh.url("edge-1")) as [session]:
            for _ in range(LEARNING_JOBS):
                await session.translate(AUDIO)
            result = await session.translate(AUDIO)
            [(worker, job)] = stalled
            await until(lambda: job.job_id in worker.cancelled, "the stalled attempt is cancelled")
            again = await session.translate(AUDIO)
    other = next(one for one in fleet if one is not worker)
    assert result.text_asr == f"{other.node_id}#2"
    assert again.utterance_index == LEARNING_JOBS + 1


async def test_hedging_is_off_by_default(redis_server, mesh_dir) -> None:
    held, gate = asyncio.Event(), asyncio.Event()

    async def work(worker: Worker, job: Job) -> None:
        if job.utterance_index == LEARNING_JOBS and not held.is_set():
            held.set()
            await gate.wait()

    fleet = [Worker(f"node-{i}", work) for i in range(2)]
    with RunningMesh(mesh_dir, redis_server.url, env=ENV) as mesh:
        async with workers(mesh.url("edge-0"), *fleet), sessions(2, mesh.url("edge-1")) as [session, other]:
            for _ in range(LEARNING_JOBS):
                await session.translate(AUDIO)
            waiting = asyncio.create_task(session.translate(AUDIO))
            await held.wait()
            # Ten times as many, one after another: meanwhile the held job is late by far.
            for _ in range(LATER_JOBS):
                await other.translate(AUDIO)
            assert sum(len(worker.jobs) for worker in fleet) == LEARNING_JOBS + 1 + LATER_JOBS
            gate.set()
            assert (await waiting).text_asr.endswith("#1")
