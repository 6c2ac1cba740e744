"""A hundred utterances in one moment on a hundred equal nodes: they spread, however many selectors decide."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.support.clients.sdk import AUDIO, Worker, held_by, placements, sessions, workers
from tests.support.conditions import until
from tests.support.processes.running_mesh import PATIENT, RunningMesh

JOBS = NODES = 100
#: The jobs are held until all are placed: no timeout may move one.
ENV = {**PATIENT, "LINGUA_JOB_DISPATCHED_TIMEOUT_MS": "600000"}


def ready_in_all(mesh: RunningMesh, selectors: int) -> bool:
    """True once every selector's snapshot holds every node."""
    rows = [mesh.processes[f"selector-{i}"].metric("lingua_selector_snapshot_rows") for i in range(selectors)]
    return rows == [NODES] * selectors


@pytest.mark.parametrize("selectors", [1, 4, 8])
async def test_a_burst_spreads_over_the_fleet(redis_server, mesh_dir, selectors: int) -> None:
    everybody_has_one = asyncio.Event()
    fleet = [Worker(f"node-{number}", held_by(everybody_has_one)) for number in range(NODES)]
    with RunningMesh(mesh_dir, redis_server.url, edges=2, selectors=selectors, env=ENV) as mesh:
        urls = mesh.url("edge-0"), mesh.url("edge-1")
        async with workers(urls[0], *fleet[::2]), workers(urls[1], *fleet[1::2]), sessions(JOBS, *urls) as speakers:
            await until(lambda: ready_in_all(mesh, selectors), "all selectors know all nodes")
            waiting = asyncio.gather(*(session.translate(AUDIO) for session in speakers))
            await until(lambda: placements(fleet).total() >= JOBS or waiting.done(), "all jobs are placed")
            spread = Counter(placements(fleet).values())
            decided = [
                mesh.processes[f"selector-{i}"].metric("lingua_selector_dispatch_total") for i in range(selectors)
            ]
            everybody_has_one.set()
            results = await waiting
    assert len(results) == JOBS
    assert max(spread) <= 1.5 * JOBS / NODES, f"jobs per node -> nodes: {dict(spread)}"
    assert sum(1 for count in decided if count) > selectors // 2, f"too few selectors took part: {decided}"
