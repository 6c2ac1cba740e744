"""Commits per second: our store in batches, beside redis-benchmark running the same script."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from bench.table import print_table
from linguamesh.local.redis_server import RedisServer
from lua.engine.batch import CallGroup, PendingCall, command_of
from lua.engine.connection import Command
from lua.engine.loader import load_scripts
from lua.engine.runner import Runner
from lua.store import Store
from lua.store.commits import CommitStore
from lua.store.jobs import JobStore
from lua.store.types.commits import CommitRequest
from lua.store.types.nodes import Heartbeat
from mesh.config import Config
from mesh.config.network import RedisConfig
from mesh.frames import NodeCaps, NodeLoad
from mesh.keys import Keys
from mesh.random_ids import new_job_unique

NODES = 50
COMMITS = 20_000
BATCHES = (1, 8, 64)
#: Compared at every commit, and never exceeded.
EXPECTED = (COMMITS, COMMITS, COMMITS)
CAPS = NodeCaps("1", "linux", 8, 16.0, 1, 8.0, ["asr"], ["asr"], ["en"], ["es"], [], True, COMMITS)


def _request(index: int, unique: str) -> CommitRequest:
    candidates = [f"node-{(index + step) % NODES}" for step in range(3)]
    return CommitRequest(f"request-{unique}", "s-1", "edge:bench:1", 0, 1, unique, candidates, 0, "trace", EXPECTED)


async def _ours(store: Store, batch: int) -> float:
    count = COMMITS if batch > 1 else COMMITS // 10
    requests = [_request(index, new_job_unique()) for index in range(count)]
    began = time.perf_counter()
    for start in range(0, count, batch):
        placed = await store.commits.commit(requests[start : start + batch])
        assert all(one.verdict == "new" for one in placed)
    return count / (time.perf_counter() - began)


def _the_same_command(runner: Runner, config: Config) -> Command:
    """One commit as the runner would send it, with redis-benchmark's placeholder in place of the unique id."""
    call = CommitStore(runner, Keys(), config, JobStore(runner, Keys(), config))._commit_call(
        _request(0, "__rand_int__")
    )
    group = CallGroup([], 1, asyncio.get_running_loop().create_future())
    script = load_scripts()["job_commit"]
    return command_of([PendingCall(script, call.keys, script.arguments(call.args), 0, group, 0)])


def _redis_benchmark(binary: str, port: int, command: Command, pipeline: int) -> float:
    options = ["-p", str(port), "-n", str(COMMITS), "-c", "1", "-P", str(pipeline), "-r", "1000000000", "--csv"]
    output = subprocess.run(
        [binary, *options, *map(str, command)], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    return float(output.strip().splitlines()[-1].split(",")[1].strip('"'))


async def _measure(server: RedisServer) -> None:
    config = Config(redis=RedisConfig(url=server.url))
    runner = await Runner.connect(config.redis)
    store = Store(runner, Keys(), config)
    for index in range(NODES):
        node_id = f"node-{index}"
        epoch = (await store.nodes.register(node_id, "edge:bench:1", CAPS, [])).epoch
        await store.nodes.heartbeat(Heartbeat(node_id, "edge:bench:1", epoch, NodeLoad(), True))
    rows = [(f"our store, batches of {batch}", f"{await _ours(store, batch):.0f}") for batch in BATCHES]
    binary = shutil.which("redis-benchmark") or shutil.which("valkey-benchmark")
    if binary:
        command = _the_same_command(runner, config)
        for pipeline in (1, 64):
            rate = await asyncio.to_thread(_redis_benchmark, binary, server.port, command, pipeline)
            rows.append((f"redis-benchmark, one client, pipeline of {pipeline}", f"{rate:.0f}"))
    print_table(f"Commits onto {NODES} nodes, 3 candidates each", ("", "commits/s"), rows)
    if not binary:
        print("  redis-benchmark is not installed, so there is nothing to compare with (Debian: redis-tools)")
    await runner.close()


def run() -> None:
    """Measure and print."""
    with TemporaryDirectory(prefix="lm-") as directory:
        server = RedisServer.start(Path(directory))
        try:
            uvloop.run(_measure(server))
        finally:
            server.stop()


if __name__ == "__main__":
    run()
