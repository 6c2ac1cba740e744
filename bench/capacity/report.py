"""Latency at 70 % of capacity, slots, processes and what bounds them, and the cost at rest.

The work is that of `make bench ARGS=peers`: 10 KB in, 1 KB out, nodes that answer at once, raw sockets. Own CPU is that
of edges, brokers, selectors and Redis.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psutil

from bench.capacity import idle
from bench.peers.contenders import NODES, SMALL_BYTES, USERS, Contender, start_mesh
from bench.peers.processes import Processes, Window
from bench.table import percentile, print_table

LOAD: Final = 0.7
WARM_UP_JOBS: Final = 300
OUTSTANDING: Final = 64
#: A process that uses more of a core than this bounds the run; so does a machine with less of it left.
BOUND_CORES: Final = 0.85


@contextmanager
def _mesh(edges: int = 2, selectors: int = 1, slots_each: int = 1) -> Iterator[Processes]:
    with TemporaryDirectory(prefix="lm-") as directory, Processes(Path(directory)) as processes:
        contender = Contender("mesh", SMALL_BYTES, start_mesh)
        start_mesh(processes, contender, edges=edges, selectors=selectors, slots_each=slots_each)
        processes.measure(outstanding=8, jobs=WARM_UP_JOBS, seconds=20)
        yield processes


def _full(processes: Processes, seconds: float) -> Window:
    return processes.measure(outstanding=OUTSTANDING, jobs=1_000_000, seconds=seconds)


# --- latency below capacity -----------------------------------------------------------------------


def report_latency(seconds: float, slots_each: int) -> None:
    """p50 and p99 of an open loop at LOAD of the closed loop's throughput."""
    with _mesh(slots_each=slots_each) as processes:
        rate = _full(processes, seconds).jobs_per_s
        rows = []
        for spacing in ("even", "exponential"):
            window = processes.measure(rate=LOAD * rate, spacing=spacing, seed=1, seconds=seconds)
            p50, p99 = (percentile(window.latencies, share) * 1_000 for share in (0.5, 0.99))
            rows.append((spacing, f"{LOAD * rate:.0f}", f"{p50:.2f}", f"{p99:.2f}", f"{p99 / p50:.1f}"))
    title = f"Arrivals at {LOAD:.0%} of {rate:.0f} jobs/s, {NODES * slots_each} slots"
    print_table(title, ("spacing", "jobs/s", "p50 ms", "p99 ms", "p99 / p50"), rows)


# --- slots and processes --------------------------------------------------------------------------


def report_slots(seconds: float) -> None:
    """Own CPU per job where requests wait for a slot, and where none does."""
    rows, own = [], []
    for slots_each in (1, 8):
        with _mesh(slots_each=slots_each) as processes:
            window = _full(processes, seconds)
        own.append(window.cpu_ms(*USERS))
        rows.append((f"{NODES * slots_each} slots", f"{window.jobs_per_s:.0f}", f"{own[-1]:.3f}", _by_kind(window)))
    rows.append(("64 slots / 8 slots", "", f"{own[1] / own[0]:.2f}", ""))
    print_table(f"{OUTSTANDING} outstanding", ("", "jobs/s", "own CPU ms/job", "by kind"), rows)


def report_processes(seconds: float) -> None:
    """More selectors and more edges, and what bounds each run."""
    rows = []
    for edges, selectors in ((2, 1), (2, 2), (4, 1)):
        with _mesh(edges=edges, selectors=selectors, slots_each=8) as processes:
            window = _full(processes, seconds)
        counts = {"edge": edges, "selector": selectors}
        rows.append((f"{edges} edges, {selectors} selectors", f"{window.jobs_per_s:.0f}", _by_kind(window)))
        rows.append(("", "", f"bound by {bound(window, counts, psutil.cpu_count() or 1)}"))
    print_table(f"{OUTSTANDING} outstanding, 64 slots", ("", "jobs/s", "CPU ms/job"), rows)


def bound(window: Window, counts: dict[str, int], cores: int) -> str:
    """What bounds the throughput: a kind whose processes are busy, all cores of the machine, or waiting."""
    shares = {kind: used / window.seconds / counts.get(kind, 1) for kind, used in window.cpu_s.items()}
    busiest = max(shares, key=lambda kind: shares[kind])
    total = sum(window.cpu_s.values()) / window.seconds + window.foreign_cores
    if total > cores - (1 - BOUND_CORES):
        used = ", ".join(f"{kind} {share:.0%}" for kind, share in sorted(shares.items(), key=lambda item: -item[1]))
        return f"the machine: {total:.1f} of {cores} cores are busy (each process: {used})"
    if shares[busiest] > BOUND_CORES:
        return f"{busiest}: each of its processes uses {shares[busiest]:.0%} of a core"
    return f"waiting: no process uses more than {shares[busiest]:.0%} of a core"


def _by_kind(window: Window) -> str:
    jobs = max(1, len(window.latencies))
    return ", ".join(f"{kind} {used * 1_000 / jobs:.2f}" for kind, used in sorted(window.cpu_s.items()) if used)


def run(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench capacity", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each window")
    parser.add_argument("--only", choices=("latency", "slots", "processes", "idle"))
    options = parser.parse_args(arguments)
    parts = {
        "latency": lambda: [report_latency(options.seconds, slots_each) for slots_each in (1, 8)],
        "slots": lambda: report_slots(options.seconds),
        "processes": lambda: report_processes(options.seconds),
        "idle": idle.run,
    }
    for name, part in parts.items():
        if options.only in (None, name):
            part()
            print(flush=True)
