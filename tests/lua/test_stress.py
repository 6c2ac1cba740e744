"""Eight processes, 20,000 requests, fifty nodes: no slot is sold twice, no request placed twice, nothing left over."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

from lua.store import Store
from mesh.cells import cell_of
from mesh.config.network import RedisConfig
from mesh.keys import Keys
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS, node_changes, register, sampled

PROCESSES = 8
REQUESTS = 20_000
DUPLICATES = 2_000
MAX_JOBS = 4
NODES = [f"node-{n}" for n in range(50)]
SEED = 20_251_116


def shares() -> list[list[str]]:
    """The requests of each process; one in ten is a copy of another, and copies meet in different processes."""
    order = random.Random(SEED)
    names = [f"r-{n}" for n in range(REQUESTS - DUPLICATES)]
    names += order.sample(names, DUPLICATES)
    order.shuffle(names)
    return [names[start::PROCESSES] for start in range(PROCESSES)]


def run_all(redis_config: RedisConfig) -> list[dict[str, Any]]:
    running = []
    try:
        for number, share in enumerate(shares()):
            task = {"url": redis_config.url, "cluster": redis_config.cluster, "seed": SEED + number, "nodes": NODES}
            command = [
                sys.executable,
                "-m",
                "tests.support.processes.committer",
                json.dumps(task | {"requests": share}),
            ]
            running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for process in running:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        results = [json.loads(process.communicate()[0]) for process in running]
        assert [process.returncode for process in running] == [0] * PROCESSES
        return results
    finally:
        for process in running:
            process.kill()
            process.communicate()


async def test_no_slot_is_leased_twice_under_stress(
    store: Store, redis_config: RedisConfig, raw: RedisClient, keys: Keys
) -> None:
    for node_id in NODES:
        await register(store, node_id, MAX_JOBS)
    with sampled(raw, keys, NODES) as seen:
        results = run_all(redis_config)
    assert seen[1] > 20, "the sampler looked"
    assert seen[0] == MAX_JOBS, "never more than max, and the test did fill a node"
    assert max(result["used_max"] for result in results) == MAX_JOBS
    assert sum(result["full"] for result in results) > 0, "nodes were contended for"

    jobs: dict[str, str] = {}
    for result in results:
        for request_id, job_id in result["new"].items():
            assert request_id not in jobs, "placed twice"
            jobs[request_id] = job_id
    bound = [pair for result in results for pair in result["bound"]]
    assert len(jobs) == REQUESTS - DUPLICATES and len(bound) == DUPLICATES
    assert all(jobs[request_id] == job_id for request_id, job_id in bound)
    assert len(set(jobs.values())) == len(jobs)

    assert all(raw.zcard(keys.leases(cell_of(node_id, CELLS), node_id)) == 0 for node_id in NODES)
    for cell in range(CELLS):
        assert all(row.used == 0 for row in (await node_changes(store, cell, 0, 1_000)).rows)
