"""p50 and p99 of every stage of an utterance, from the timings that its result carries."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import uvloop

from bench.peers.processes import CLIENTS, Processes
from bench.table import ms, percentile, print_table
from linguamesh.session import Session
from mesh.words import LatencyStage

AUDIO: Final = bytes(10_240)
WARM_UP: Final = 50


async def _speak(urls: list[str], sessions: int, utterances: int) -> tuple[list[dict[str, int]], list[float]]:
    """Stages and seconds of every utterance after the warm-up."""
    stages: list[dict[str, int]] = []
    seconds: list[float] = []

    async def speak(session: Session, count: int) -> None:
        for number in range(count + WARM_UP // sessions + 1):
            began = time.perf_counter()
            result = await session.translate(AUDIO)
            if number > WARM_UP // sessions:
                seconds.append(time.perf_counter() - began)
                stages.append(result.stages)

    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(Session(urls[n % len(urls)], src="en", tgt="es", stage_timings=True))
            for n in range(sessions)
        ]
        await asyncio.gather(*(speak(session, utterances // sessions) for session in opened))
    return stages, seconds


def _print(sessions: int, stages: list[dict[str, int]], seconds: list[float]) -> None:
    rows = []
    for stage in LatencyStage:
        samples = [one.get(stage.value, 0) / 1e6 for one in stages]
        rows.append((stage.value, ms(percentile(samples, 0.5)), ms(percentile(samples, 0.99))))
    sums = [sum(one.values()) / 1e6 for one in stages]
    rows.append(("sum of stages", ms(percentile(sums, 0.5)), ms(percentile(sums, 0.99))))
    rows.append(("at the client", ms(percentile(seconds, 0.5)), ms(percentile(seconds, 0.99))))
    print_table(f"{sessions} outstanding, {len(stages)} utterances of 10 KB", ("stage", "p50 ms", "p99 ms"), rows)


def run(arguments: Sequence[str] = ()) -> None:
    """Measure and print: one utterance at a time, then 64 at once."""
    parser = argparse.ArgumentParser(prog="python -m bench waterfall", description=__doc__)
    parser.add_argument("--utterances", type=int, default=1_000, metavar="N")
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="lm-") as directory, Processes(Path(directory)) as processes:
        edges = processes.mesh("--selectors", "1")["edges"]
        urls = [edge["url"].replace("http", "ws", 1) for edge in edges]
        script = [sys.executable, CLIENTS / "mesh_raw.py", "nodes", f"{urls[0]}/ws/node", "8", "8"]
        processes.start("node", script)
        for sessions in (1, 64):
            stages, seconds = uvloop.run(_speak(urls[1:], sessions, options.utterances))
            if not any(stages):
                print("this mesh reports no stages")
                return
            _print(sessions, stages, seconds)
            print(flush=True)
