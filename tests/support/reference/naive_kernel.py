"""The slow and obvious twin of selector/core/kernel.py: plain Python over plain objects, one rule per line.

It shares nothing with the kernel but the order of the filters, the prices in `Rules` and the plan of the pools.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from mesh.frames import Dispatch, NodeCaps, NodeLoad, pair_of
from mesh.states.speed import Speed
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
    detached_ms: int = 0
    pool: str = ""
    marks: set[str] = field(default_factory=set)
    speeds: dict[str, Speed] = field(default_factory=dict)


@dataclass
class NaiveChoice:
    #: Best first: row, score, terms, expected use, when its result is late.
    candidates: list[tuple[int, int, list[float], int, int]]
    removed: dict[Filter, int]
    pool: str | None
    compared: int


# --- filters --------------------------------------------------------------------------------------------


def first_obstacle(node: NaiveNode, job: Dispatch, pools: list[str], used: int, rules: Rules) -> Filter | None:
    caps, load = node.caps, node.load
    gone = node.detached_ms > 0 and rules.now_ms - node.detached_ms >= rules.reconnect_grace_ms
    own = caps.tenant_id == job.tenant_id and not (job.public and job.tenant_id == "")
    has_models = set(job.models) <= set(caps.models)
    tests = [
        (Filter.POOL, node.pool not in pools),
        (Filter.EXCLUDED, node.node_id in job.excluded),
        (
            Filter.OFFLINE,
            node.status == "offline" or gone or rules.now_ms - node.seen_ms >= rules.heartbeat_timeout_ms,
        ),
        (Filter.STATUS, node.status not in ("ready", "draining", "offline")),
        (Filter.DRAINING, node.status == "draining"),
        (Filter.UNREACHABLE, rules.now_ms < node.unreachable_until_ms),
        (Filter.GPU, caps.gpu_count == 0),
        (
            Filter.RESOURCES,
            any(p > rules.resource_threshold_percent for p in (load.cpu_percent, load.gpu_percent, load.mem_percent)),
        ),
        (Filter.PUBLIC, job.public and not (caps.accept_public or own)),
        (Filter.TENANT, not job.public and not (caps.accept_public or own)),
        (Filter.INSTALLED, not (set(job.services) <= set(caps.services_installed) and has_models)),
        (Filter.READY, not set(job.services) <= set(caps.services_ready)),
        (Filter.MODEL, bool(set(job.services) & node.marks)),
        (Filter.ASR, job.src_lang != "auto" and not hears(caps, job)),
        (Filter.AUTO, job.src_lang == "auto" and not hears(caps, job)),
        (Filter.PAIR, not translates(caps, job)),
        (Filter.TTS, not speaks(caps, job)),
        (Filter.SLOT, used >= caps.max_jobs),
    ]
    assert [name for name, _ in tests] == list(Filter)
    return next((name for name, stops in tests if stops), None)


def spoken(job: Dispatch) -> tuple[set[str], set[str]]:
    """What may be spoken, and what it may become."""
    if job.src_lang != "auto":
        return {job.src_lang}, {job.tgt_lang}
    if job.lang_a and job.lang_b:
        return {job.lang_a, job.lang_b}, {job.lang_a, job.lang_b}
    return set(job.auto_langs), {job.tgt_lang}


def hears(caps: NodeCaps, job: Dispatch) -> bool:
    sources, _ = spoken(job)
    return "asr" not in job.services or (bool(caps.asr_langs) if not sources else sources <= set(caps.asr_langs))


def translates(caps: NodeCaps, job: Dispatch) -> bool:
    if "nmt" not in job.services:
        return True
    sources, targets = spoken(job)
    pairs = {pair_of(a, b) for a in sources for b in targets if a != b}
    return targets <= set(caps.semantic_langs) and (not caps.pairs or pairs <= set(caps.pairs))


def speaks(caps: NodeCaps, job: Dispatch) -> bool:
    _, targets = spoken(job)
    return "tts" not in job.services or not caps.tts_langs or targets <= set(caps.tts_langs)


# --- score ----------------------------------------------------------------------------------------------


def fleet_speed(nodes: list[NaiveNode], pair: str) -> float | None:
    """The median: half of the nodes are faster."""
    means = sorted(node.speeds[pair].mean for node in nodes if pair in node.speeds)
    return means[(len(means) - 1) // 2] if means else None


def evened(mean: float, fleet: float, rules: Rules) -> float:
    """A mean that differs from the fleet's by no more than chance is the fleet's."""
    chance = fleet * rules.speed_even
    off = mean - fleet
    return fleet + (off - chance) if off > chance else fleet + (off + chance) if off < -chance else fleet


def terms_of(
    node: NaiveNode, job: Dispatch, used: int, nodes: list[NaiveNode], rules: Rules
) -> tuple[list[float], int]:
    """The terms of the score, and when a result is late."""
    audio_ms = float(max(job.audio_ms, rules.audio_ms_min)) if job.audio_ms > 0 else 0.0
    pair = pair_of(job.src_lang, job.tgt_lang)
    fleet, fleet_all = fleet_speed(nodes, pair), fleet_speed(nodes, "*")
    known = fleet if fleet is not None else fleet_all
    assumed = rules.optimism * known if known is not None else rules.speed_unknown
    speed = node.speeds.get(pair) or node.speeds.get("*") or Speed(0.0, 0.0, 0.0, 0)
    mean, variance, jobs = (float(np.float32(number)) for number in speed[:3])  # as the columns keep them
    compared_with = fleet if pair in node.speeds else fleet_all
    mean = mean if compared_with is None else evened(mean, compared_with, rules)
    half_life, age_ms = rules.speed_half_life_ms**2, float(max(0, rules.now_ms - speed.at_ms)) ** 2
    weight = jobs * half_life / (half_life + age_ms)
    part = 1.0 / (weight + rules.optimism_jobs)
    work = audio_ms * ((weight * mean + rules.optimism_jobs * assumed) * part)
    risk = audio_ms * (rules.risk * max(math.sqrt(weight * variance * part) - rules.speed_even * mean, 0.0))
    busy = max(rules.busy * work, rules.busy_ms) * (used / max(node.caps.max_jobs, 1))
    spread = weight * variance + rules.optimism_jobs * (assumed * assumed)
    deviation = math.sqrt(spread / (weight + rules.optimism_jobs))
    late_ms = math.floor(work + audio_ms * (1.65 * deviation) + busy + 0.5)
    if rules.strategy == LEAST_CONNECTIONS:
        return [0.0, 0.0, float(used), *[0.0] * 7], late_ms
    load = max(node.load.cpu_percent, node.load.gpu_percent, node.load.mem_percent) / 100.0
    silent_ms = max(0, rules.now_ms - node.seen_ms - rules.heartbeat_interval_ms)
    return [
        work,
        risk,
        busy,
        rules.load_ms * (load * load),
        rules.stale_ms_per_ms * silent_ms,
        rules.detached_ms if node.detached_ms > 0 else 0.0,
        rules.region_ms if job.region and job.region != node.caps.region else 0.0,
        rules.tier_ms if job.gpu_tier and job.gpu_tier != node.caps.gpu_tier else 0.0,
        -rules.warm_ms if job.warm_node == node.node_id else 0.0,
        -rules.paired_ms if job.preferred_node == node.node_id else 0.0,
    ], late_ms


def rounded(terms: list[float]) -> int:
    total = 0.0
    for term in terms:
        total += term
    return math.floor(total + 0.5)


def tie(seed: int, row: int) -> int:
    mixed = (seed + (row + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


# --- choice ---------------------------------------------------------------------------------------------


class Batch:
    """Jobs one after the other, each charged before the next."""

    def __init__(self, nodes: list[NaiveNode], rules: Rules, best: int) -> None:
        self.nodes, self.rules, self.best = nodes, rules, best
        self.charged = {node.row: 0 for node in nodes}

    def used(self, node: NaiveNode) -> int:
        fresh = self.rules.now_ms - node.seen_ms < self.rules.running_fresh_ms
        return max(node.leases, node.load.running_jobs if fresh else 0) + self.charged[node.row]

    def choose(self, job: Dispatch, seed: int, pools: list[str]) -> NaiveChoice:
        rules = self.rules
        removed: dict[Filter, int] = {}
        passed: list[NaiveNode] = []

        def look(nodes: list[NaiveNode], enough: int) -> None:
            start = len(passed)
            for node in nodes:
                if len(passed) - start >= enough:
                    return
                obstacle = first_obstacle(node, job, pools, self.used(node), rules)
                if obstacle is None:
                    passed.append(node)
                else:
                    removed[obstacle] = removed.get(obstacle, 0) + 1

        outside = [node for node in self.nodes if node.pool not in pools]
        if outside:
            removed[Filter.POOL] = len(outside)
        members_of = {pool: [node for node in self.nodes if node.pool == pool] for pool in pools}
        by_id = {
            node.node_id: node for members in members_of.values() if not self.lacks(members, job) for node in members
        }
        special = [by_id[name] for name in dict.fromkeys((job.preferred_node, job.warm_node)) if name in by_id]
        look(special, len(special))
        for pool in pools:
            members = members_of[pool]
            if not members:
                continue
            if lacking := self.lacks(members, job):
                for node in members:
                    obstacle = BY_STATUS.get(node.status, Filter.STATUS)
                    obstacle = lacking if obstacle is None else obstacle
                    removed[obstacle] = removed.get(obstacle, 0) + 1
                continue
            offset = tie(seed, -1) % len(members)
            circle = [node for node in members[offset:] + members[:offset] if node not in special]
            look(circle, max(rules.compared_max - len(passed), 1))
            if passed:
                break
        return self.rank(job, seed, passed, removed)

    def lacks(self, members: list[NaiveNode], job: Dispatch) -> Filter | None:
        """The filter that stops the whole pool, without a look at its nodes."""
        installed = {word for node in members for word in (*node.caps.services_installed, *node.caps.models)}
        ready = {
            word
            for node in members
            if node.status == "ready"
            for word in (*node.caps.services_ready, *node.caps.models)
        }
        needed = {*job.services, *job.models}
        return Filter.INSTALLED if not needed <= installed else Filter.READY if not needed <= ready else None

    def rank(self, job: Dispatch, seed: int, passed: list[NaiveNode], removed: dict[Filter, int]) -> NaiveChoice:
        ranked = []
        for node in passed:
            terms, late_ms = terms_of(node, job, self.used(node), self.nodes, self.rules)
            expected = node.leases + self.charged[node.row]
            ranked.append((rounded(terms), tie(seed, node.row), node.row, terms, expected, late_ms))
        ranked.sort()
        first = ranked[0][2] if ranked else None
        if first is not None:
            self.charged[first] += 1
        best = [(row, points, *rest) for points, _, row, *rest in ranked[: self.best]]
        return NaiveChoice(best, removed, None if first is None else self.nodes[first].pool, len(passed))


#: A node that is skipped with its pool counts under its status, unless it is ready.
BY_STATUS = {"ready": None, "draining": Filter.DRAINING, "offline": Filter.OFFLINE}
