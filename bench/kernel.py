"""The kernel beside the same rules in numpy, on the same nodes and jobs, in the same run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from bench.table import print_table
from mesh.frames import Dispatch, NodeCaps, NodeLoad
from selector.core.columns import NodeFacts, NodeTable
from selector.core.filters import Filter
from selector.core.kernel import NO_ROW, NOT_ASKED, READY_STATUS, Choice, Columns, Jobs, Rows, Rules, choose
from selector.core.requests import job_rows

SIZES = (100, 1_000, 10_000, 100_000)
BATCH = 64
BEST = 3
SEED = 1
NOW_MS = 1_000_000
LANGUAGES = ("en", "zh", "es", "fr", "de", "ja", "ko", "ar")
RULES = Rules(
    now_ms=NOW_MS,
    heartbeat_timeout_ms=45_000,
    heartbeat_interval_ms=15_000,
    running_fresh_ms=2_000,
    resource_threshold_percent=85.0,
)


def run() -> None:
    """Print microseconds per decision, alone and in a batch."""
    rows = []
    for size in SIZES:
        chance = random.Random(SEED)
        table = fleet(size, chance)
        for batch in (1, BATCH):
            asked = [request(index, chance) for index in range(batch)]
            jobs, excluded = job_rows(asked, table)
            arguments = (table.columns, len(table), jobs, excluded, RULES, BEST)
            ours, theirs = choose(*arguments), numpy_choose(*arguments)
            assert np.array_equal(ours.rows, theirs.rows) and np.array_equal(ours.removed, theirs.removed)
            kernel_us = fastest_us(partial(choose, *arguments)) / batch
            numpy_us = fastest_us(partial(numpy_choose, *arguments)) / batch
            rows_us = fastest_us(partial(job_rows, asked, table)) / batch
            figures = (kernel_us, numpy_us, rows_us)
            rows.append((f"{size:,}", str(batch), *(f"{us:,.1f}" for us in figures), f"{numpy_us / kernel_us:.1f}x"))
    print_table(
        "kernel: microseconds per decision (filters, score, best 3, charging)",
        ("nodes", "batch", "kernel", "numpy", "frame to row", "numpy/kernel"),
        rows,
    )


def fleet(size: int, chance: random.Random) -> NodeTable:
    """Nodes as they might be: most ready, many partly used, each with a few languages."""
    table = NodeTable(nodes_max=size)
    for index in range(size):
        caps = NodeCaps(
            version="1",
            platform="linux",
            cpu_cores=8,
            memory_gb=32.0,
            gpu_count=1,
            gpu_memory_gb=12.0,
            services_installed=["asr", "nmt", "tts"],
            services_ready=["asr", "nmt", "tts"],
            asr_langs=chance.sample(LANGUAGES, 5),
            semantic_langs=chance.sample(LANGUAGES, 6),
            tts_langs=[],
            accept_public=chance.random() < 0.9,
            max_jobs=4,
        )
        cpu, gpu, memory = (chance.uniform(0, 90) for _ in range(3))
        load = NodeLoad(cpu, gpu, memory, chance.randrange(3))
        status = "ready" if chance.random() < 0.95 else "degraded"
        facts = NodeFacts("edge:b:1", 1, status, caps, load)
        table.apply(0, 1, f"node-{index}", chance.randrange(5), NOW_MS - chance.randrange(16_000), facts)
    return table


def request(index: int, chance: random.Random) -> Dispatch:
    """An utterance between two languages."""
    source, target = chance.sample(LANGUAGES, 2)
    return Dispatch(
        request_id=f"r-{index}",
        attempt=1,
        session_id="s",
        utterance_index=index,
        edge="edge:a:1",
        tenant_id="",
        src_lang=source,
        tgt_lang=target,
        lang_a="",
        lang_b="",
        services=["asr", "nmt", "tts"],
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


# --- the same in numpy ----------------------------------------------------------------------------------


def numpy_choose(columns: Columns, count: int, jobs: Jobs, excluded: Rows, rules: Rules, best: int) -> Choice:
    """The kernel's rules as whole-array operations; strategy predicted_ms only."""
    c = Columns(**{name: getattr(columns, name)[..., :count] for name in Columns._fields})
    choice = Choice(
        np.full((len(jobs), best), NO_ROW, dtype=np.int32),
        np.zeros((len(jobs), best), dtype=np.int64),
        np.zeros((len(jobs), len(Filter)), dtype=np.int32),
    )
    age_ms = rules.now_ms - c.seen_ms
    standing = [
        (Filter.OFFLINE, age_ms >= rules.heartbeat_timeout_ms),
        (Filter.STATUS, c.status != READY_STATUS),
        (Filter.UNREACHABLE, rules.now_ms < c.unreachable_until_ms),
        (Filter.GPU, c.gpus < 1),
        (Filter.RESOURCES, c.load_percent > rules.resource_threshold_percent),
    ]
    used = np.where(age_ms < rules.running_fresh_ms, np.maximum(c.used, c.running), c.used)
    load = c.load_percent / 100.0
    standing_ms = rules.load_ms * load * load + rules.stale_ms_per_ms * np.maximum(
        0, age_ms - rules.heartbeat_interval_ms
    )
    for index, job in enumerate(jobs):
        private = c.accept_public == 0
        services = job["services"]
        tests = [
            *standing,
            (Filter.PUBLIC, private & bool(job["public"])),
            (Filter.TENANT, private & (c.tenant != job["tenant"])),
            (Filter.INSTALLED, (c.installed & services != services) | bool(job["services_unknown"])),
            (Filter.READY, c.ready & services != services),
            (Filter.LANGUAGE, ~_speaks(c, job)),
            (Filter.EXCLUDED, _among(count, excluded[job["excluded_from"] : job["excluded_to"]])),
            (Filter.SLOT, used >= c.max_jobs),
        ]
        passed = np.ones(count, dtype=bool)
        for name, stops in tests:
            choice.removed[index, name] = np.count_nonzero(passed & stops)
            passed &= ~stops
        rows = np.flatnonzero(passed)
        price = standing_ms[rows] + rules.busy_ms * used[rows] / c.max_jobs[rows]
        price[rows == job["preferred"]] -= rules.preferred_ms
        scores = np.floor(price + 0.5).astype(np.int64)
        order = np.lexsort((rows, _ties(job["seed"], rows), scores))[:best]
        choice.rows[index, : len(order)] = rows[order]
        choice.scores[index, : len(order)] = scores[order]
        if len(order):
            used[rows[order[0]]] += 1
    return choice


def _speaks(c: Columns, job: np.void) -> npt.NDArray[np.bool_]:
    def holds(planes: npt.NDArray[np.uint64], language: int) -> npt.NDArray[np.bool_]:
        if language < 0:
            return np.full(planes.shape[1], language == NOT_ASKED)
        bits: npt.NDArray[np.uint64] = planes[language >> 6] >> np.uint64(language & 63)
        return (bits & np.uint64(1)).astype(np.bool_)

    heard = holds(c.asr, job["asr_a"]) & holds(c.asr, job["asr_b"])
    meant = holds(c.semantic, job["semantic_a"]) & holds(c.semantic, job["semantic_b"])
    said = (c.tts_named == 0) | (holds(c.tts, job["tts_a"]) & holds(c.tts, job["tts_b"]))
    some = (c.asr != 0).any(axis=0) | (not job["asr_any"])
    speaks: npt.NDArray[np.bool_] = heard & meant & said & some
    return speaks


def _among(count: int, rows: Rows) -> npt.NDArray[np.bool_]:
    mask = np.zeros(count, dtype=bool)
    mask[rows] = True
    return mask


def _ties(seed: np.uint64, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    mixed = seed + (rows + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
