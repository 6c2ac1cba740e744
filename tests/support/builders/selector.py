"""Nodes and jobs for the selector's tests: one that fits everything, changed field by field."""

from __future__ import annotations

from typing import Any

import msgspec

from lua.store.types.nodes import NodeFacts
from mesh.config.scheduler import PoolsConfig
from mesh.config.weights import Weights
from mesh.frames import Dispatch, NodeCaps, NodeLoad
from selector.core.job_rows import job_rows
from selector.core.kernel import Choice, Rules, choose
from selector.core.node_table import NodeTable
from selector.core.pools import PoolPlan

NOW_MS = 1_000_000


def rules_of(weights: Weights, now_ms: int = NOW_MS, compared_max: int = 256) -> Rules:
    return Rules.of(
        weights,
        now_ms=now_ms,
        heartbeat_timeout_ms=45_000,
        heartbeat_interval_ms=15_000,
        running_fresh_ms=2_000,
        resource_threshold_percent=85.0,
        reconnect_grace_ms=3_000,
        compared_max=compared_max,
    )


RULES = rules_of(Weights())
NO_POOLS = PoolPlan(PoolsConfig())

CAPS = NodeCaps(
    version="1.0",
    platform="linux",
    cpu_cores=8,
    memory_gb=32.0,
    gpu_count=1,
    gpu_memory_gb=12.0,
    services_installed=["asr", "nmt", "tts"],
    services_ready=["asr", "nmt", "tts"],
    asr_langs=["en", "zh"],
    semantic_langs=["es", "en", "zh"],
    tts_langs=[],
    accept_public=True,
    max_jobs=4,
)

JOB = Dispatch(
    request_id="r-1",
    attempt=1,
    session_id="s-1",
    utterance_index=0,
    edge="edge:a:1",
    tenant_id="",
    src_lang="en",
    tgt_lang="es",
    lang_a="",
    lang_b="",
    services=["asr", "nmt", "tts"],
    public=True,
    audio_ms=1_500,
    deadline_ms=0,
    trace_id="t-1",
)


def caps(**changes: Any) -> NodeCaps:
    return msgspec.structs.replace(CAPS, **changes)


def job(**changes: Any) -> Dispatch:
    return msgspec.structs.replace(JOB, **changes)


def facts(
    edge: str = "edge:b:1",
    epoch: int = 1,
    status: str = "ready",
    load: NodeLoad | None = None,
    in_pools: str = "",
    detached_ms: int = 0,
    **changes: Any,
) -> NodeFacts:
    return NodeFacts(edge, epoch, status, caps(**changes), load or NodeLoad(), in_pools, detached_ms)


def table_of(*nodes: tuple[str, NodeFacts], used: int = 0, seen_ms: int = NOW_MS) -> NodeTable:
    table = NodeTable(nodes_max=1_000)
    for node_id, its_facts in nodes:
        assert table.apply(0, 1, node_id, used, seen_ms, its_facts)
    return table


def pick(table: NodeTable, *jobs: Dispatch, rules: Rules = RULES, best: int = 3, plan: PoolPlan = NO_POOLS) -> Choice:
    rows = job_rows(jobs, table, plan)
    return choose(table.columns, table.index(), rows, table.speeds.prior(), rules, best)
