"""Explanations of decisions, their replay bit for bit, and weights that reach every selector."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from linguamesh.operator import Operator
from tests.support.clients.sdk import AUDIO, Worker, at_once, query, sessions, workers
from tests.support.conditions import until
from tests.support.processes.lingua_command import lingua
from tests.support.processes.running_mesh import RunningMesh

SELECTORS = 3
SESSIONS, UTTERANCES_EACH = 6, 5


async def typed(mesh: RunningMesh, *words: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(lingua, *words, "--url", mesh.url("edge-1"))


async def test_decisions_are_explained_and_replayed(redis_server, mesh_dir) -> None:
    fleet = [Worker(f"node-{i}", at_once) for i in range(4)]
    with RunningMesh(mesh_dir, redis_server.url, selectors=SELECTORS) as mesh:
        async with workers(mesh.url("edge-0"), *fleet), sessions(SESSIONS, mesh.url("edge-1")) as speakers:
            results = await asyncio.gather(*(s.translate(AUDIO) for s in speakers for _ in range(UTTERANCES_EACH)))
            for result in results[:: len(results) // 3]:
                chosen = result.text_asr.partition("#")[0]
                shown = await typed(mesh, "explain", result.job_id)
                assert (shown.returncode, shown.stderr) == (0, "")
                assert chosen in shown.stdout
                record = json.loads((await typed(mesh, "explain", result.job_id, "--json")).stdout)
                assert record["job_id"] == result.job_id
                assert "\n".join(record["words"]) + "\n" == shown.stdout
            unknown = await typed(mesh, "explain", "job-00-none")
            assert (unknown.returncode, unknown.stdout) == (1, "")
            again = await typed(mesh, "replay", "--json")
            assert again.returncode == 0, again.stderr
            other = mesh_dir / "other.toml"
            other.write_text("warm_ms = 0\noptimism = 1.2\n")
            changed = await typed(mesh, "replay", "--weights", str(other))
            assert changed.returncode == 0, changed.stderr
    outcomes = json.loads(again.stdout)["selectors"]
    assert len(outcomes) == SELECTORS
    assert [outcome["different"] for outcome in outcomes] == [0] * SELECTORS
    assert sum(outcome["decisions"] for outcome in outcomes) >= len(results)
    assert "with the new weights" in changed.stdout


async def test_weights_reach_every_selector(redis_server, mesh_dir: Path) -> None:
    """Also a selector that starts later. A decision names the version that it was made by."""
    file = mesh_dir / "new.toml"
    file.write_text('strategy = "least_connections"\nwarm_ms = 75\n')
    fleet = [Worker(f"node-{i}", at_once) for i in range(2)]
    env = {"LINGUA_SELECTOR_WEIGHTS_MS": "100"}
    with RunningMesh(mesh_dir, redis_server.url, selectors=SELECTORS, env=env) as mesh:
        operator = mesh.operator()
        before = await query(operator, "weights")
        assert (before["version"], before["weights"]["warm_ms"]) == (0, 50.0)
        done = await typed(mesh, "weights", "set", str(file))
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0] == "Version 1 is in force."
        shown = await typed(mesh, "weights", "show")
        assert "warm_ms = 75.0" in shown.stdout
        late = mesh.start("selector", SELECTORS)
        await asyncio.to_thread(late.wait_ready)
        async with workers(mesh.url("edge-0"), *fleet), sessions(8, mesh.url("edge-1")) as speakers:
            await until(lambda: decided_by(operator, speakers, 1, SELECTORS + 1), "all selectors decide by version 1")


async def decided_by(operator: Operator, speakers: list, version: int, selectors: int) -> bool:
    """True once every selector has decided something and all of the latest decisions are of that version."""
    results = await asyncio.gather(*(session.translate(AUDIO) for session in speakers))
    records: list[dict[str, Any]] = [await query(operator, "explain", result.job_id) for result in results]
    return {record["weights_version"] for record in records} == {version}
