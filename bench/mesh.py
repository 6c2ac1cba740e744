"""Utterance -> result through the whole mesh, beside bare WebSocket, ZeroMQ and Redis round trips, in one run.

10 KB of audio in, 1 KB of result out, nodes that answer at once: what remains is the mesh itself.
`python -m bench.mesh nodes URL COUNT` is the node process.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from bench.hops import bare
from bench.servers import redis_at_hand
from bench.table import ms, percentile, print_table
from linguamesh.local.redis_server import free_port
from linguamesh.node import Job, Node, Result
from linguamesh.session import Session
from tests.support.processes.running_mesh import RunningMesh

AUDIO = bytes(10_000)
ANSWER = "x" * 1_000
NODES = 8
SAMPLES = 500
WARM_UP = 50
#: Sessions at once, each with one utterance under way, for the throughput figure.
SESSIONS = 64
UTTERANCES_EACH = 50


async def _answer(job: Job) -> Result:
    return Result(text_asr="", text_translated=ANSWER)


async def _nodes(url: str, count: int) -> None:
    async with AsyncExitStack() as stack:
        for index in range(count):
            node = Node(url, _answer, asr=["en"], semantic=["es"], node_id=f"node-bench-{index}", max_jobs=32)
            await stack.enter_async_context(node)
        print("ready", flush=True)
        await asyncio.Event().wait()


async def _one_by_one(url: str) -> list[float]:
    seconds = []
    async with Session(url, src="en", tgt="es") as session:
        for _ in range(SAMPLES + WARM_UP):
            start = time.perf_counter()
            await session.translate(AUDIO)
            seconds.append(time.perf_counter() - start)
    return seconds[WARM_UP:]


async def _at_once(urls: list[str]) -> tuple[float, list[float]]:
    seconds: list[float] = []

    async def speak(session: Session) -> None:
        for _ in range(UTTERANCES_EACH):
            start = time.perf_counter()
            await session.translate(AUDIO, timeout=60)
            seconds.append(time.perf_counter() - start)

    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(Session(urls[index % len(urls)], src="en", tgt="es"))
            for index in range(SESSIONS)
        ]
        began = time.perf_counter()
        await asyncio.gather(*(speak(session) for session in sessions))
        return len(seconds) / (time.perf_counter() - began), seconds


async def _measure(directory: Path, redis_url: str) -> None:
    websocket = await bare.websocket_seconds(free_port(), AUDIO)
    zeromq = await bare.zeromq_seconds(directory, AUDIO)
    redis = await bare.redis_seconds(redis_url)
    with RunningMesh(directory, redis_url, brokers=1, edges=2, selectors=2) as mesh:
        command = [sys.executable, "-m", "bench.mesh", "nodes", mesh.url("edge-0"), str(NODES)]
        child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        try:
            assert child.stdout is not None
            await child.stdout.readline()
            whole = await _one_by_one(mesh.url("edge-1"))
            rate, loaded = await _at_once([mesh.url("edge-0"), mesh.url("edge-1")])
        finally:
            child.kill()
            await child.wait()
    _print(websocket, zeromq, redis, whole, rate, loaded)


def _print(
    websocket: list[float],
    zeromq: list[float],
    redis: list[float],
    whole: list[float],
    rate: float,
    loaded: list[float],
) -> None:
    parts = {"bare WebSocket round trip": websocket, "bare ZeroMQ round trip": zeromq, "bare Redis round trip": redis}
    rows = [(name, ms(percentile(s, 0.5)), ms(percentile(s, 0.99)), "") for name, s in parts.items()]
    one_each = sum(percentile(s, 0.5) for s in parts.values())
    # What the path is made of: client and node sockets, four broker crossings of two hops each, two commits.
    as_used = 2 * percentile(websocket, 0.5) + 4 * percentile(zeromq, 0.5) + 2 * percentile(redis, 0.5)
    middle = percentile(whole, 0.5)
    rows += [
        ("sum, one of each", ms(one_each), "", "1.00"),
        ("sum, as often as a job uses them", ms(as_used), "", f"{as_used / one_each:.2f}"),
        ("utterance -> result, whole mesh", ms(middle), ms(percentile(whole, 0.99)), f"{middle / one_each:.2f}"),
    ]
    print_table("One utterance at a time, 10 KB in, 1 KB out", ("", "p50 ms", "p99 ms", "x sum"), rows)
    print(
        f"  {SESSIONS} sessions at once: {rate:.0f} utterances/s, "
        f"p50 {ms(percentile(loaded, 0.5))} ms, p99 {ms(percentile(loaded, 0.99))} ms"
    )


def run() -> None:
    """Measure and print."""
    with redis_at_hand() as (directory, url):
        uvloop.run(_measure(directory, url))


if __name__ == "__main__":
    if sys.argv[1:2] == ["nodes"]:
        uvloop.run(_nodes(sys.argv[2], int(sys.argv[3])))
    else:
        run()
