"""A node three times slower than the rest loses its share of the work within 20 jobs, and regains it."""

from __future__ import annotations

import asyncio

from linguamesh.node import Job
from linguamesh.session import Session
from tests.support.processes.running_mesh import RunningMesh
from tests.support.processes.speakers import Worker, sessions, until, workers

NODES = 4
#: At once, fewer than nodes: whoever is slow need not be chosen for want of others.
SPEAKERS = 2
AUDIO = bytes(2 * 16_000)  # a second of PCM16
WORK_S = 0.1
LEARNING_JOBS = 20
MEASURED_JOBS = 40
#: What a node was seen to need counts little after a few seconds, so that the test sees a recovery.
ENV = {"LINGUA_WEIGHTS_SPEED_HALF_LIFE_S": "2"}


async def test_a_slow_node_loses_its_share_and_regains_it(redis_server, mesh_dir) -> None:
    pace = {"node-0": 3 * WORK_S}

    async def work(worker: Worker, job: Job) -> None:
        await asyncio.sleep(pace.get(worker.node_id, WORK_S))

    fleet = [Worker(f"node-{i}", work) for i in range(NODES)]
    slow = fleet[0]
    with RunningMesh(mesh_dir, redis_server.url, env=ENV) as mesh:
        async with workers(mesh.url("edge-0"), *fleet), sessions(SPEAKERS, mesh.url("edge-1")) as speakers:
            await speak(speakers, LEARNING_JOBS)
            before = len(slow.jobs)
            await speak(speakers, MEASURED_JOBS)
            got_while_slow = len(slow.jobs) - before
            pace.clear()
            await until(lambda: has_its_share(speakers, slow), "the recovered node has its share again", 60)
    fair = MEASURED_JOBS / NODES
    assert got_while_slow <= fair / 2, f"{got_while_slow} of {MEASURED_JOBS} jobs; a fair share is {fair:g}"


async def speak(speakers: list[Session], jobs: int) -> None:
    """So many utterances, one at a time in each session."""

    async def one_after_another(session: Session) -> None:
        for _ in range(jobs // len(speakers)):
            await session.translate(AUDIO)

    await asyncio.gather(*(one_after_another(session) for session in speakers))


async def has_its_share(speakers: list[Session], worker: Worker) -> bool:
    """Speak as often as measured before; True if the worker got at least half of a fair share."""
    before = len(worker.jobs)
    await speak(speakers, MEASURED_JOBS)
    return len(worker.jobs) - before >= MEASURED_JOBS / NODES / 2
