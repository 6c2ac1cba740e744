"""A storm of MODEL_NOT_AVAILABLE: utterance -> result before and during 5,000 such words a second for 5 s.

The words come by WebSocket from nodes that do nothing else; the nodes that work are others. `python -m bench.storm
storm URL ...` is the process of the former: each line that it reads makes it storm once.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from bench.table import ms, percentile, print_table
from linguamesh.node import Job, Node, Result
from linguamesh.redis_server import RedisServer
from linguamesh.session import Session
from mesh import node_wire as wire
from tests.running_mesh import RunningMesh

SECONDS = 5.0
#: Calm and storm take turns, so that a noisy moment of the machine hits both alike.
ROUNDS = 3
WORDS_PER_S = 5_000
STORM_NODES = 50
#: Kinds of services that each of them says it lacks; the mesh hears of each once per second.
SERVICES = 10
#: Nodes do not wait for one another, so their words come a few at a time.
TURNS_PER_S = 250
WORKING_NODES = 8
AUDIO = bytes(10_000)
WARM_UP_S = 2.0
#: What the storm may cost at most.
BAR = 2.0


async def _answer(job: Job) -> Result:
    return Result(text_asr="", text_translated="x" * 1_000)


# --- the storm's process ----------------------------------------------------------------------------


async def _storm(urls: list[str]) -> None:
    async with AsyncExitStack() as stack:
        nodes = [
            Node(urls[index % len(urls)], _answer, asr=["xx"], semantic=["yy"], node_id=f"node-storm-{index}")
            for index in range(STORM_NODES)
        ]
        await asyncio.gather(*(stack.enter_async_context(node) for node in nodes))
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(await _rage(nodes), flush=True)


async def _rage(nodes: list[Node]) -> float:
    """Words per second that were really sent."""
    texts = [[_word(str(node.node_id), service) for service in range(SERVICES)] for node in nodes]
    began, sent = time.perf_counter(), 0
    for turn in range(round(SECONDS * TURNS_PER_S)):
        for step in range(WORDS_PER_S // TURNS_PER_S):
            place = sent % STORM_NODES
            await nodes[place]._send(texts[place][(turn + step) % SERVICES])
            sent += 1
        await asyncio.sleep(max(0.0, began + (turn + 1) / TURNS_PER_S - time.perf_counter()))
    return sent / (time.perf_counter() - began)


def _word(node_id: str, service: int) -> str:
    details = {"service_id": f"service-{service}", "service_version": "1", "reason": "model not found"}
    return wire.encode(
        wire.NodeError(node_id=node_id, code="MODEL_NOT_AVAILABLE", message="no such model", details=details)
    )


# --- what is measured -------------------------------------------------------------------------------


async def _nodes(url: str) -> None:
    async with AsyncExitStack() as stack:
        for index in range(WORKING_NODES):
            node = Node(url, _answer, asr=["en"], semantic=["es"], node_id=f"node-bench-{index}", max_jobs=32)
            await stack.enter_async_context(node)
        print("ready", flush=True)
        await asyncio.Event().wait()


async def _speak(session: Session, seconds: float) -> list[float]:
    """What each utterance took, one after another."""
    took: list[float] = []
    until = time.perf_counter() + seconds
    while (start := time.perf_counter()) < until:
        await session.translate(AUDIO)
        took.append(time.perf_counter() - start)
    return took


async def _speak_measured(mesh: RunningMesh, session: Session, took: list[float]) -> float:
    """Speak for a while; the seconds that a selector needed for a Dispatch, on average."""
    sum_before, count_before = _dispatching(mesh)
    took += await _speak(session, SECONDS)
    sum_after, count_after = _dispatching(mesh)
    return (sum_after - sum_before) / (count_after - count_before)


def _dispatching(mesh: RunningMesh) -> tuple[float, float]:
    name = "scheduler_dispatch_latency_seconds"
    return mesh.metric(f"{name}_sum"), mesh.metric(f"{name}_count")


async def _child(role: str, *urls: str) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "bench.storm", role, *urls]
    child = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    await child.stdout.readline()
    return child


async def _measure(directory: Path, redis_url: str) -> None:
    before: list[float] = []
    during: list[float] = []
    rates: list[float] = []
    calm = stormy = 0.0
    with RunningMesh(directory, redis_url, brokers=1, edges=2, selectors=2) as mesh:
        working = await _child("nodes", mesh.url("edge-0"))
        storm = await _child("storm", mesh.url("edge-0"), mesh.url("edge-1"))
        try:
            async with Session(mesh.url("edge-1"), src="en", tgt="es") as session:
                await _speak(session, WARM_UP_S)
                assert storm.stdin is not None and storm.stdout is not None
                for _ in range(ROUNDS):
                    calm += await _speak_measured(mesh, session, before)
                    storm.stdin.write(b"\n")
                    stormy += await _speak_measured(mesh, session, during)
                    rates.append(float(await storm.stdout.readline()))
            heard = mesh.metric("scheduler_model_na_received_total")
        finally:
            for child in (working, storm):
                if child.returncode is None:
                    child.kill()
                await child.wait()
    _print(before, during, min(rates), heard)
    print(
        f"  of this, a selector's part on average: {ms(calm / ROUNDS)} ms before, {ms(stormy / ROUNDS)} ms during, "
        f"ratio {stormy / calm:.2f}"
    )


def _print(before: list[float], during: list[float], rate: float, heard: float) -> None:
    rows = []
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        calm, stormy = percentile(before, share), percentile(during, share)
        rows.append((name, ms(calm), ms(stormy), f"{stormy / calm:.2f}", f"{BAR:g}" if name == "p99" else ""))
    print_table(
        f"Utterance -> result in a storm of MODEL_NOT_AVAILABLE, {rate:.0f} words/s for {SECONDS:g} s, {ROUNDS} times",
        ("", "before ms", "during ms", "ratio", "bar"),
        rows,
    )
    print(f"  {len(before)} and {len(during)} utterances; selectors heard of {heard:.0f} words")


def run() -> None:
    """Measure and print."""
    with TemporaryDirectory(prefix="lm-") as name:
        directory = Path(name)
        server = RedisServer.start(directory / "redis")
        try:
            uvloop.run(_measure(directory, server.url))
        finally:
            server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["storm"]:
        uvloop.run(_storm(sys.argv[2:]))
    elif sys.argv[1:2] == ["nodes"]:
        uvloop.run(_nodes(sys.argv[2]))
    else:
        run()
