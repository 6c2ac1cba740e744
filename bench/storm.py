"""A storm of MODEL_NOT_AVAILABLE: utterance -> result before and during 5,000 such reports a second for 5 s.

The reports come by WebSocket from nodes that do nothing else; the nodes that work are others. `python -m bench.storm
storm URL ...` is the process of the former: each line that it reads makes it storm once.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median

import psutil
import uvloop

from bench.servers import redis_at_hand
from bench.table import ms, percentile, print_table
from linguamesh.node import Job, Node, Result
from linguamesh.session import Session
from mesh.messages import node as wire
from tests.support.processes.running_mesh import RunningMesh

SECONDS = 5.0
#: Calm and storm take turns, so that a noisy moment of the machine hits both alike.
ROUNDS = 6
WORDS_PER_S = 5_000
STORM_NODES = 50
#: After a storm, until what edges were too slow to read on purpose has been read.
SETTLE_S = 6.0
#: Services that each of them reports as missing; edges forward each report now and then.
SERVICES = 10
#: Nodes do not wait for one another, so their reports come a few at a time.
TURNS_PER_S = 250
WORKING_NODES = 8
UTTERANCES_PER_S = 50
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
    texts = [[_report(str(node.node_id), service) for service in range(SERVICES)] for node in nodes]
    began, sent = time.perf_counter(), 0
    for turn in range(round(SECONDS * TURNS_PER_S)):
        for step in range(WORDS_PER_S // TURNS_PER_S):
            place = sent % STORM_NODES
            await nodes[place]._send(texts[place][(turn + step) % SERVICES])
            sent += 1
        await asyncio.sleep(max(0.0, began + (turn + 1) / TURNS_PER_S - time.perf_counter()))
    return sent / (time.perf_counter() - began)


def _report(node_id: str, service: int) -> str:
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
    """What each utterance took. They come at a fixed pace, whatever becomes of those before: none is left out."""

    async def one() -> float:
        start = time.perf_counter()
        await session.translate(AUDIO)
        return time.perf_counter() - start

    began, under_way = time.perf_counter(), []
    for number in range(round(seconds * UTTERANCES_PER_S)):
        await asyncio.sleep(max(0.0, began + number / UTTERANCES_PER_S - time.perf_counter()))
        under_way.append(asyncio.create_task(one()))
    return list(await asyncio.gather(*under_way))


@dataclass
class Weather:
    """What was measured in calm, or in the storm."""

    #: What the utterances of each round took.
    seconds: list[list[float]] = field(default_factory=list)
    #: Share of the machine's processors that had nothing to do: with little of it the ratio tells of the machine.
    idle: list[float] = field(default_factory=list)
    #: Seconds that a selector needed for a Dispatch, on average.
    selector: list[float] = field(default_factory=list)

    def all(self) -> list[float]:
        """What the utterances of all rounds took."""
        return list(chain.from_iterable(self.seconds))

    async def measure(self, mesh: RunningMesh, session: Session) -> None:
        """Speak for a while."""
        sum_before, count_before = _dispatching(mesh)
        psutil.cpu_times_percent()
        self.seconds.append(await _speak(session, SECONDS))
        self.idle.append(psutil.cpu_times_percent().idle)
        sum_after, count_after = _dispatching(mesh)
        self.selector.append((sum_after - sum_before) / (count_after - count_before))


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
    calm, storm, rates = Weather(), Weather(), []
    with RunningMesh(directory, redis_url, brokers=1, edges=2, selectors=2) as mesh:
        working = await _child("nodes", mesh.url("edge-0"))
        raging = await _child("storm", mesh.url("edge-0"), mesh.url("edge-1"))
        try:
            assert raging.stdin is not None and raging.stdout is not None
            async with Session(mesh.url("edge-1"), src="en", tgt="es") as session:
                await _speak(session, WARM_UP_S)
                for _ in range(ROUNDS):
                    await calm.measure(mesh, session)
                    raging.stdin.write(b"\n")
                    await storm.measure(mesh, session)
                    rates.append(float(await raging.stdout.readline()))
                    await asyncio.sleep(SETTLE_S)
            received = mesh.metric("scheduler_model_na_received_total")
        finally:
            for child in (working, raging):
                child.kill()
                await child.wait()
    _print(calm, storm, min(rates), received)


def _print(calm: Weather, storm: Weather, rate: float, received: float) -> None:
    rows = []
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        befores = [percentile(seconds, share) for seconds in calm.seconds]
        durings = [percentile(seconds, share) for seconds in storm.seconds]
        ratios = [during / before for before, during in zip(befores, durings, strict=True)]
        before, during = percentile(calm.all(), share), percentile(storm.all(), share)
        spread = f"{during / before:.2f} (rounds: {min(ratios):.2f} to {max(ratios):.2f})"
        rows.append((name, ms(before), ms(during), spread, f"{BAR:g}" if name == "p99" else ""))
    before, during = median(calm.selector), median(storm.selector)
    rows.append(("a selector's part, mean", ms(before), ms(during), f"{during / before:.2f}", ""))
    rows.append(("idle processors, %", f"{median(calm.idle):.0f}", f"{median(storm.idle):.0f}", "", ""))
    print_table(
        f"Utterance -> result in a storm of MODEL_NOT_AVAILABLE, {rate:.0f} reports/s for {SECONDS:g} s",
        ("", "before ms", "during ms", "ratio", "bar"),
        rows,
    )
    print(f"  {ROUNDS} rounds, {UTTERANCES_PER_S} utterances/s; selectors received {received:.0f} reports")


def run() -> None:
    """Measure and print."""
    with redis_at_hand() as (directory, url):
        uvloop.run(_measure(directory, url))


if __name__ == "__main__":
    if sys.argv[1:2] == ["storm"]:
        uvloop.run(_storm(sys.argv[2:]))
    elif sys.argv[1:2] == ["nodes"]:
        uvloop.run(_nodes(sys.argv[2]))
    else:
        run()
