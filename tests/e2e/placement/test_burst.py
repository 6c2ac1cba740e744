"""A hundred utterances in one moment on a hundred equal nodes: they spread, however many selectors decide."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from linguamesh.operator import Operator
from tests.support.clients.sdk import AUDIO, Worker, held_by, placements, sessions, status_of, workers
from tests.support.conditions import until
from tests.support.processes.running_mesh import PATIENT, RunningMesh

JOBS = NODES = 100
#: The jobs are held until all are placed: no timeout may move one.
ENV = {**PATIENT, "LINGUA_JOB_DISPATCHED_TIMEOUT_MS": "600000"}


async def ready_in_all(mesh: RunningMesh, selectors: int, fleet: list[Worker]) -> None:
    """Return once every node is ready, and every selector has read a snapshot that says so."""
    operator = Operator(mesh.url("edge-0"))
    for worker in fleet:

        async def is_ready(node_id: str = worker.node_id) -> bool:
            return await status_of(operator, node_id) == "ready"

        await until(is_ready, f"{worker.node_id} is ready")
    before = refreshes(mesh, selectors)
    await until(
        lambda: all(b > a + 1 for a, b in zip(before, refreshes(mesh, selectors), strict=True)), "new snapshots"
    )


def refreshes(mesh: RunningMesh, selectors: int) -> list[float]:
    """How often each selector has read its snapshot."""
    name = "lingua_selector_snapshot_seconds_count"
    return [mesh.processes[f"selector-{i}"].metric(name) for i in range(selectors)]


@pytest.mark.parametrize("selectors", [1, 4, 8])
async def test_a_burst_spreads_over_the_fleet(redis_server, mesh_dir, selectors: int) -> None:
    everybody_has_one = asyncio.Event()
    fleet = [Worker(f"node-{number}", held_by(everybody_has_one)) for number in range(NODES)]
    with RunningMesh(mesh_dir, redis_server.url, edges=2, selectors=selectors, env=ENV) as mesh:
        urls = mesh.url("edge-0"), mesh.url("edge-1")
        async with workers(urls[0], *fleet[::2]), workers(urls[1], *fleet[1::2]), sessions(JOBS, *urls) as speakers:
            await ready_in_all(mesh, selectors, fleet)
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
