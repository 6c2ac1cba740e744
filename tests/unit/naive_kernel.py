"""The slow and obvious twin of selector/core/kernel.py: plain Python over plain objects, one rule per line.

It shares nothing with the kernel but the order of the filters and the prices in `Rules`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mesh.frames import Dispatch, NodeCaps, NodeLoad
from selector.core.filters import Filter
from selector.core.kernel import LEAST_CONNECTIONS, Rules

_MASK = (1 << 64) - 1


@dataclass
class NaiveNode:
    row: int
    node_id: str
    status: str
    caps: NodeCaps
    load: NodeLoad
    leases: int
    seen_ms: int
    unreachable_until_ms: int = 0


def first_obstacle(node: NaiveNode, job: Dispatch, used: int, rules: Rules) -> Filter | None:
    caps, load = node.caps, node.load
    tests = [
        (Filter.OFFLINE, rules.now_ms - node.seen_ms >= rules.heartbeat_timeout_ms),
        (Filter.STATUS, node.status != "ready"),
        (Filter.UNREACHABLE, rules.now_ms < node.unreachable_until_ms),
        (Filter.GPU, caps.gpu_count == 0),
        (
            Filter.RESOURCES,
            any(p > rules.resource_threshold_percent for p in (load.cpu_percent, load.gpu_percent, load.mem_percent)),
        ),
        (Filter.PUBLIC, job.public and not caps.accept_public),
        (Filter.TENANT, caps.tenant_id != job.tenant_id and not caps.accept_public),
        (Filter.INSTALLED, not set(job.services) <= set(caps.services_installed)),
        (Filter.READY, not set(job.services) <= set(caps.services_ready)),
        (Filter.LANGUAGE, not speaks(caps, job)),
        (Filter.EXCLUDED, node.node_id in job.excluded),
        (Filter.SLOT, used >= caps.max_jobs),
    ]
    assert [name for name, _ in tests] == list(Filter)
    return next((name for name, stops in tests if stops), None)


def speaks(caps: NodeCaps, job: Dispatch) -> bool:
    if job.src_lang == "auto" and job.lang_a and job.lang_b:
        heard = spoken = {job.lang_a, job.lang_b}
    elif job.src_lang == "auto":
        heard, spoken = set(caps.asr_langs[:1]), {job.tgt_lang}
        if not heard:
            return False
    else:
        heard, spoken = {job.src_lang}, {job.tgt_lang}
    if not heard <= set(caps.asr_langs) or not spoken <= set(caps.semantic_langs):
        return False
    return not ("tts" in job.services and caps.tts_langs) or spoken <= set(caps.tts_langs)


def score(node: NaiveNode, job: Dispatch, used: int, rules: Rules) -> int:
    preferred = job.preferred_node == node.node_id
    if rules.strategy == LEAST_CONNECTIONS:
        return used - preferred
    load = max(node.load.cpu_percent, node.load.gpu_percent, node.load.mem_percent) / 100.0
    late_ms = max(0, rules.now_ms - node.seen_ms - rules.heartbeat_interval_ms)
    total = rules.load_ms * load * load + rules.stale_ms_per_ms * late_ms
    total += rules.busy_ms * used / node.caps.max_jobs
    if preferred:
        total -= rules.preferred_ms
    return math.floor(total + 0.5)


def tie(seed: int, row: int) -> int:
    mixed = (seed + (row + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


def choose(
    nodes: list[NaiveNode], jobs: list[Dispatch], seeds: list[int], rules: Rules, best: int
) -> list[tuple[list[tuple[int, int]], dict[Filter, int]]]:
    """Per job: the best (row, score) in order, and how many nodes each filter removed."""
    used = {}
    for node in nodes:
        fresh = rules.now_ms - node.seen_ms < rules.running_fresh_ms
        used[node.row] = max(node.leases, node.load.running_jobs if fresh else 0)
    answers = []
    for job, seed in zip(jobs, seeds, strict=True):
        removed: dict[Filter, int] = {}
        passed = []
        for node in nodes:
            obstacle = first_obstacle(node, job, used[node.row], rules)
            if obstacle is None:
                passed.append((score(node, job, used[node.row], rules), tie(seed, node.row), node.row))
            else:
                removed[obstacle] = removed.get(obstacle, 0) + 1
        passed.sort()
        if passed:
            used[passed[0][2]] += 1
        answers.append(([(row, points) for points, _, row in passed[:best]], removed))
    return answers
