"""The client's side of a measurement, without any import of this project: windows of jobs, on request by stdin.

A request is one line of JSON: {"outstanding", "jobs", "seconds"} keeps that many jobs under way until one bound is
reached; {"rate", "spacing", "seed", "seconds"} starts jobs at given times, whether or not earlier ones have ended. The
reply is one line: {"seconds", "latencies"}. In an open loop a latency counts from the time at which the job was due.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time

RESULT_BYTES = 1_024


class Work:
    """What every client sends: bytes that do not compress, the same in each job."""

    def __init__(self, payload_bytes: int) -> None:
        self.payload = random.Random(1).randbytes(payload_bytes)


def check(result: str | bytes) -> None:
    """Every contender returns as much."""
    if len(result) != RESULT_BYTES:
        raise SystemExit(f"a result of {len(result)} bytes")


async def closed_loop(submit, payload: bytes, outstanding: int, jobs: int, seconds: float) -> list[float]:
    """Latencies in seconds. `submit(payload)` returns the result."""
    latencies: list[float] = []
    deadline, left = time.perf_counter() + seconds, jobs

    async def lane() -> None:
        nonlocal left
        while left > 0 and time.perf_counter() < deadline:
            left -= 1
            began = time.perf_counter()
            check(await submit(payload))
            latencies.append(time.perf_counter() - began)

    await asyncio.gather(*(lane() for _ in range(outstanding)))
    return latencies


def arrivals(rate: float, spacing: str, seed: int, seconds: float) -> list[float]:
    """Seconds at which jobs are due: evenly, or as a Poisson process."""
    generator, due, times = random.Random(seed), 0.0, []
    while due < seconds:
        times.append(due)
        due += generator.expovariate(rate) if spacing == "exponential" else 1 / rate
    return times


async def open_loop(submit, payload: bytes, times: list[float]) -> list[float]:
    """Latencies from the due time, in the order of completion."""
    latencies: list[float] = []
    began = time.perf_counter()

    async def job(due: float) -> None:
        check(await submit(payload))
        latencies.append(time.perf_counter() - due)

    jobs = []
    for at in times:
        delay = began + at - time.perf_counter()
        if delay > 0:
            await asyncio.sleep(delay)
        jobs.append(asyncio.create_task(job(began + at)))
    await asyncio.gather(*jobs)
    return latencies


async def serve(submit, payload: bytes) -> None:
    """Announce readiness and run windows until stdin ends."""
    loop = asyncio.get_running_loop()
    print("ready", flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        began = time.perf_counter()
        if "rate" in request:
            times = arrivals(request["rate"], request["spacing"], request["seed"], request["seconds"])
            latencies = await open_loop(submit, payload, times)
        else:
            latencies = await closed_loop(submit, payload, **request)
        print(json.dumps({"seconds": time.perf_counter() - began, "latencies": latencies}), flush=True)


def serve_callbacks(submit, wait, payload: bytes) -> None:
    """The same for a library without asyncio: `submit(payload, done)` returns at once, `wait()` runs callbacks."""
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        latencies: list[float] = []
        began = time.perf_counter()
        deadline, started, running = began + request["seconds"], 0, 0

        def done_since(at: float, latencies: list[float] = latencies):
            def done(result: str | bytes) -> None:
                check(result)
                latencies.append(time.perf_counter() - at)

            return done

        while True:
            running = started - len(latencies)
            more = started < request["jobs"] and time.perf_counter() < deadline
            if more and running < request["outstanding"]:
                started += 1
                submit(payload, done_since(time.perf_counter()))
            elif running:
                wait()
            else:
                break
        print(json.dumps({"seconds": time.perf_counter() - began, "latencies": latencies}), flush=True)
