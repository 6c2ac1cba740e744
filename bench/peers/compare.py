"""`make bench ARGS=peers`: every contender by turns on the same work, and the tables of docs/performance.md.

10 KB in, 1 KB out, 8 slots, workers without work; 1 job outstanding, then 64. Nothing is installed without --install.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.peers.contenders import CONTENDERS, USERS, Contender
from bench.peers.processes import ContenderFailed, Processes, Window
from bench.table import percentile

WARM_UP_JOBS: Final = 300
#: Above this share of a core, other programs have spoilt the run.
FOREIGN_CORES_MAX: Final = 0.2
#: Ours, and whom it is compared with.
COMPARED: Final = {"mesh": ("floor", "celery", "taskiq", "bullmq", "nats"), "mesh, SDK, 50 KB": ("bullmq, 50 KB",)}


@dataclass(frozen=True, slots=True)
class Figures:
    """One contender, means over the rounds."""

    name: str
    p50_ms: float
    jobs_per_s: float
    p99_ms: float
    cpu_ms: float
    #: Without clients and workers; None for the peers, whose workers do a part of the queue's work.
    own_cpu_ms: float | None
    by_kind_ms: dict[str, float]


def figures_of(name: str, rounds: Sequence[tuple[Window, Window]]) -> Figures:
    """From windows with 1 and with 64 outstanding."""
    count = len(rounds)
    kinds = rounds[0][1].cpu_s
    by_kind = {kind: sum(_cpu_ms(many, kind) for _, many in rounds) / count for kind in kinds}
    return Figures(
        name,
        sum(percentile(one.latencies, 0.5) for one, _ in rounds) / count * 1_000,
        sum(many.jobs_per_s for _, many in rounds) / count,
        sum(percentile(many.latencies, 0.99) for _, many in rounds) / count * 1_000,
        sum(by_kind.values()),
        sum(ms for kind, ms in by_kind.items() if kind not in USERS) if "selector" in by_kind else None,
        by_kind,
    )


def _cpu_ms(window: Window, kind: str) -> float:
    return window.cpu_s.get(kind, 0.0) * 1_000 / max(1, len(window.latencies))


def table(figures: Sequence[Figures]) -> str:
    """Markdown: a row per contender."""
    lines = [
        "| | p50, 1 outstanding | jobs/s, 64 outstanding | p99, 64 outstanding | CPU per job | own CPU per job |",
        "|---|---|---|---|---|---|",
    ]
    for one in figures:
        own = "" if one.own_cpu_ms is None else f"{one.own_cpu_ms:.2f} ms: {_kinds(one)}"
        lines.append(
            f"| {one.name} | {one.p50_ms:.2f} ms | {one.jobs_per_s:,.0f} | {one.p99_ms:.1f} ms | {one.cpu_ms:.2f} ms "
            f"| {own} |"
        )
    return "\n".join(lines)


def _kinds(one: Figures) -> str:
    return ", ".join(f"{kind} {ms:.2f}" for kind, ms in sorted(one.by_kind_ms.items()) if kind not in USERS)


def ratios(figures: Sequence[Figures]) -> str:
    """Markdown: ours against each of the others."""
    by_name = {one.name: one for one in figures}
    lines = ["| ours / theirs | p50 | jobs/s | CPU per job | own CPU per job |", "|---|---|---|---|---|"]
    for ours_name, others in COMPARED.items():
        for other_name in others:
            ours, other = by_name.get(ours_name), by_name.get(other_name)
            if ours and other:
                own = f"{ours.own_cpu_ms / other.own_cpu_ms:.2f}" if ours.own_cpu_ms and other.own_cpu_ms else ""
                lines.append(
                    f"| {ours_name} / {other_name} | {ours.p50_ms / other.p50_ms:.2f} "
                    f"| {ours.jobs_per_s / other.jobs_per_s:.2f} | {ours.cpu_ms / other.cpu_ms:.2f} | {own} |"
                )
    return "\n".join(lines)


def _measure(contender: Contender, jobs: int, seconds: float) -> tuple[Window, Window]:
    with TemporaryDirectory(prefix="lm-") as directory, Processes(Path(directory)) as processes:
        contender.start(processes, contender)
        processes.measure(outstanding=8, jobs=WARM_UP_JOBS, seconds=20)
        one = processes.measure(outstanding=1, jobs=jobs, seconds=seconds)
        return one, processes.measure(outstanding=64, jobs=jobs * 6, seconds=seconds)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench peers", description=__doc__)
    parser.add_argument("--install", action="store_true", help="install missing peers into the cache folder")
    parser.add_argument("--only", metavar="NAME,...", help="contenders by the beginning of their name")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1_000, help="with 1 outstanding; 6 times as many with 64")
    parser.add_argument("--seconds", type=float, default=12.0, help="bound on each window")
    return parser.parse_args(arguments)


def run(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    options = _parse(arguments)
    wanted = tuple(options.only.split(",")) if options.only else ("",)
    contenders = [one for one in CONTENDERS if one.name.startswith(wanted)]
    for contender in contenders:
        if options.install and contender.missing().startswith("not installed"):
            print(f"installing {contender.name}", flush=True)
            contender.install()
    present = [one for one in contenders if not one.missing()]
    for contender in contenders:
        if contender not in present:
            print(f"left out: {contender.name}: {contender.missing()}")
    windows: dict[str, list[tuple[Window, Window]]] = {one.name: [] for one in present}
    for number in range(options.rounds):
        for contender in present:
            print(f"round {number + 1}: {contender.name}", flush=True)
            try:
                windows[contender.name].append(_measure(contender, options.jobs, options.seconds))
            except ContenderFailed as error:
                print(f"failed: {contender.name}: {error}", flush=True)
    windows = {name: rounds for name, rounds in windows.items() if rounds}
    figures = [figures_of(name, rounds) for name, rounds in windows.items()]
    print(f"\n{table(figures)}\n\n{ratios(figures)}\n")
    every = [window for rounds in windows.values() for pair in rounds for window in pair]
    foreign = max((window.foreign_cores for window in every), default=0.0)
    spoilt = ": repeat the run on an idle machine" if foreign > FOREIGN_CORES_MAX else ""
    print(f"Cores that other programs used, at worst: {foreign:.2f}{spoilt}")
