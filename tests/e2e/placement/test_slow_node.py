"""A node three times slower than the rest loses its share of the work within 20 jobs, and regains it."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import deque

from linguamesh.node import Job
from linguamesh.session import Session
from tests.support.clients.sdk import Worker, sessions, workers
from tests.support.conditions import until
from tests.support.processes.running_mesh import PATIENT, RunningMesh

NODES = 4
#: Fewer sessions than nodes: the slow node is never the only free one.
SESSIONS = 2
AUDIO = bytes(2 * 16_000)  # a second of PCM16
SLOWNESS = 3
WORK_S = 0.05
LEARNING_JOBS = 20
MEASURED_JOBS = 40
FAIR_SHARE = MEASURED_JOBS / NODES


class Fleet:
    """Nodes of one speed, the first of them slower while `is_slow`.

    The slow node takes a multiple of the time that results of the others take from end to end. So its slowness is
    relative to the load of the machine.
    """

    def __init__(self) -> None:
        self.workers = [Worker(f"node-{i}", self._work) for i in range(NODES)]
        self.slow = self.workers[0]
        self.is_slow = True
        self._recent_s: deque[float] = deque([WORK_S], maxlen=10)

    async def _work(self, worker: Worker, job: Job) -> None:
        usual_s = max(WORK_S, statistics.median(self._recent_s))
        await asyncio.sleep(SLOWNESS * usual_s if worker is self.slow and self.is_slow else WORK_S)

    async def translate(self, clients: list[Session], jobs: int) -> int:
        """`jobs` utterances, one at a time in each session; how many of them the slow node received."""
        before = len(self.slow.jobs)
        await asyncio.gather(*(self._one_after_another(session, jobs // len(clients)) for session in clients))
        return len(self.slow.jobs) - before

    async def _one_after_another(self, session: Session, jobs: int) -> None:
        for _ in range(jobs):
            began_s = time.monotonic()
            result = await session.translate(AUDIO)
            if not result.text_asr.startswith(f"{self.slow.node_id}#"):
                self._recent_s.append(time.monotonic() - began_s)


async def test_slow_node_loses_its_share(redis_server, mesh_dir) -> None:
    """Observations keep their value: a slow machine must not give the node another try."""
    fleet, env = Fleet(), {**PATIENT, "LINGUA_WEIGHTS_SPEED_HALF_LIFE_S": "86400"}
    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        async with workers(mesh.url("edge-0"), *fleet.workers), sessions(SESSIONS, mesh.url("edge-1")) as clients:
            await fleet.translate(clients, LEARNING_JOBS)
            received = await fleet.translate(clients, MEASURED_JOBS)
    assert received <= FAIR_SHARE / 2, f"{received} of {MEASURED_JOBS} jobs; a fair share is {FAIR_SHARE:g}"


async def test_recovered_node_regains_its_share(redis_server, mesh_dir) -> None:
    """Observations lose their value within seconds, so that the test sees a recovery."""
    fleet, env = Fleet(), {**PATIENT, "LINGUA_WEIGHTS_SPEED_HALF_LIFE_S": "2"}

    async def was_observed() -> bool:
        return await fleet.translate(clients, LEARNING_JOBS) > 0

    async def has_its_share() -> bool:
        return await fleet.translate(clients, MEASURED_JOBS) >= FAIR_SHARE / 2

    with RunningMesh(mesh_dir, redis_server.url, env=env) as mesh:
        async with workers(mesh.url("edge-0"), *fleet.workers), sessions(SESSIONS, mesh.url("edge-1")) as clients:
            await until(was_observed, "the slowness of the node was observed")
            fleet.is_slow = False
            await until(has_its_share, "the recovered node has its share again")
