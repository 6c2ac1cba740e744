"""kill -9 of one process in the middle of a run: every job still ends in a result, once."""

from __future__ import annotations

import asyncio

import pytest

from linguamesh.node import Job, Result
from tests.support.clients.echo import assert_each_once, echo, nodes_on, translate_all
from tests.support.processes.running_mesh import PATIENT, RunningMesh

SESSIONS = 10
UTTERANCES_EACH = 20


async def slow_echo(job: Job) -> Result:
    """Work that takes a while, so that the kill finds jobs at every stage."""
    await asyncio.sleep(0.02)
    return await echo(job)


@pytest.mark.parametrize("victim", ["broker-0", "broker-1", "selector-0", "selector-1", "selector-2", "edge-2"])
async def test_every_job_ends_in_a_result(redis_server, mesh_dir, victim: str) -> None:
    """edge-2 owns no endpoint of any job; brokers and selectors own nothing at all."""
    ended = 0

    with RunningMesh(mesh_dir, redis_server.url, brokers=2, edges=3, selectors=3, env=PATIENT) as mesh:

        def on_each() -> None:
            nonlocal ended
            ended += 1
            if ended == SESSIONS * UTTERANCES_EACH // 5:
                mesh.kill(victim)

        async with nodes_on(mesh.url("edge-0"), 4, slow_echo):
            speakers = (translate_all(mesh.url("edge-1"), UTTERANCES_EACH, on_each) for _ in range(SESSIONS))
            answers = await asyncio.gather(*speakers)
        assert mesh.processes[victim].popen.poll() is not None
    assert_each_once(list(answers), UTTERANCES_EACH)
