"""Microseconds per decision by size of the fleet: the kernel, and making rows of frames. Alone and in a batch."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from bench.table import print_table
from lua.store.types.nodes import NodeFacts
from mesh.config.network import SelectorConfig
from mesh.config.scheduler import PoolsConfig
from mesh.config.weights import Weights
from mesh.frames import Dispatch, NodeCaps, NodeLoad, pair_of
from mesh.states.speed import ANY_PAIR, Speed
from selector.core.job_rows import job_rows
from selector.core.kernel import Rules, choose, examine
from selector.core.node_table import NodeTable
from selector.core.pools import PoolPlan
from selector.kernel_cache import warm_up

SIZES = (100, 1_000, 10_000, 100_000)
BATCH = 64
BEST = 3
SEED = 1
NOW_MS = 1_000_000
LANGUAGES = ("en", "zh", "es", "fr", "de", "ja", "ko", "ar")


class Kind(NamedTuple):
    """A kind of fleet: languages per node, who takes public jobs, the highest load and use."""

    sources: int
    written: int
    public: float
    load_percent: float
    used: int


MIXED = Kind(5, 6, 0.9, 90.0, 4)
ALIKE = Kind(8, 8, 1.0, 80.0, 3)
SERVICES = ["asr", "nmt", "tts"]
RULES = Rules.of(
    Weights(),
    now_ms=NOW_MS,
    heartbeat_timeout_ms=45_000,
    heartbeat_interval_ms=15_000,
    running_fresh_ms=2_000,
    resource_threshold_percent=85.0,
    reconnect_grace_ms=3_000,
    compared_max=SelectorConfig().compared_max,
)


def run() -> None:
    """Print what one decision costs, with and without pools, with candidates and without."""
    warm_up()
    _by_size(MIXED, "every node has other languages, about a quarter may take a job")
    _by_size(ALIKE, "nodes are alike, nearly all may take a job")
    _without_a_free_node()


def _by_size(kind: Kind, text: str) -> None:
    rows = []
    smallest: dict[tuple[bool, int], float] = {}
    for pools in (False, True):
        plan = PoolPlan(PoolsConfig(enabled=pools))
        for size in SIZES:
            table = fleet(size, random.Random(SEED), plan, kind)
            for batch in (1, BATCH):
                rows_us, kernel_us = _times(table, plan, requests(batch), batch)
                total = rows_us + kernel_us
                base = smallest.setdefault((pools, batch), total)
                figures = (f"{rows_us:,.1f}", f"{kernel_us:,.1f}", f"{total:,.1f}", f"{total / base:.2f}x")
                rows.append((f"{size:,}", "16" if pools else "none", str(batch), *figures))
    print_table(
        f"kernel: microseconds per decision (filters, score, best 3, charging); {text}",
        ("nodes", "pools", "batch", "frame to row", "kernel", "both", "of 100 nodes"),
        rows,
    )


def _without_a_free_node() -> None:
    """The costliest answer: every node must be looked at to say that there is none."""
    rows = []
    plan = PoolPlan(PoolsConfig())
    for size in SIZES:
        table = fleet(size, random.Random(SEED), plan, MIXED)
        table.columns.used[:] = table.columns.max_jobs
        _, kernel_us = _times(table, plan, requests(BATCH), BATCH)
        one = job_rows(requests(1), table, plan)
        examine_us = fastest_us(partial(examine, table.columns, table.index(), one, table.speeds.prior(), RULES))
        rows.append((f"{size:,}", f"{kernel_us:,.1f}", f"{examine_us:,.0f}"))
    print_table(
        "kernel: microseconds when every node is full", ("nodes", "per decision of 64", "examine one job"), rows
    )


def _times(table: NodeTable, plan: PoolPlan, asked: Sequence[Dispatch], batch: int) -> tuple[float, float]:
    rows = job_rows(asked, table, plan)
    choosing = partial(choose, table.columns, table.index(), rows, table.speeds.prior(), RULES, BEST)
    return fastest_us(partial(job_rows, asked, table, plan)) / batch, fastest_us(choosing) / batch


def fleet(size: int, chance: random.Random, plan: PoolPlan, kind: Kind) -> NodeTable:
    """Nodes as they might be: most ready, many partly used, their speeds known for a few pairs."""
    table = NodeTable(nodes_max=size)
    for index in range(size):
        node_id = f"node-{index}"
        caps = NodeCaps(
            version="1",
            platform="linux",
            cpu_cores=8,
            memory_gb=32.0,
            gpu_count=1,
            gpu_memory_gb=12.0,
            services_installed=SERVICES,
            services_ready=SERVICES,
            asr_langs=chance.sample(LANGUAGES, kind.sources),
            semantic_langs=chance.sample(LANGUAGES, kind.written),
            tts_langs=[],
            accept_public=chance.random() < kind.public,
            max_jobs=4,
        )
        cpu, gpu, memory = (chance.uniform(0, kind.load_percent) for _ in range(3))
        load = NodeLoad(cpu, gpu, memory, chance.randrange(3))
        status = "ready" if chance.random() < 0.95 else "degraded"
        facts = NodeFacts("edge:b:1", 1, status, caps, load, plan.home_of(node_id, caps))
        table.apply(0, 1, node_id, chance.randrange(kind.used + 1), NOW_MS - chance.randrange(16_000), facts)
        pairs = [ANY_PAIR, *(pair_of(*chance.sample(LANGUAGES, 2)) for _ in range(8))]
        table.set_speeds(node_id, {pair: Speed(chance.uniform(0.2, 0.5), 0.01, 8.0, NOW_MS) for pair in pairs})
    return table


def requests(count: int) -> list[Dispatch]:
    """Utterances between two languages."""
    chance = random.Random(SEED)
    return [_request(index, *chance.sample(LANGUAGES, 2)) for index in range(count)]


def _request(index: int, source: str, target: str) -> Dispatch:
    return Dispatch(
        request_id=f"r-{index}",
        attempt=1,
        session_id=f"s-{index}",
        utterance_index=index,
        edge="edge:a:1",
        tenant_id="",
        src_lang=source,
        tgt_lang=target,
        lang_a="",
        lang_b="",
        services=SERVICES,
        public=True,
        audio_ms=1_500,
        deadline_ms=0,
        trace_id="t",
    )


def fastest_us(call: Callable[[], object], seconds: float = 0.3) -> float:
    """The fastest of many calls: what the machine does when nothing else disturbs it."""
    best = float("inf")
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best * 1e6
