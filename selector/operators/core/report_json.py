"""Reports for operators: pools, one node, invariants, as plain values that become JSON. Decides nothing.

The shapes of `pools` are the original system's, so that its dashboards go on working; ours adds fields, never changes
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from lua.store.types.deployment import Presence
from lua.store.types.nodes import NodeFacts
from mesh.config.scheduler import ModelsConfig, PoolsConfig
from mesh.frames import NodeCaps
from mesh.states.speed import Speed
from mesh.words import UTTERANCE_ENDS, EdgeCount

SAMPLES_MAX: Final = 5
OVERSOLD_SHOWN_MAX: Final = 100
TWO_LEVEL: Final = "two_level"


class Standing(NamedTuple):
    """How a node stands now."""

    node_id: str
    #: Number of its home pool, None if it has none.
    pool_id: int | None
    caps: NodeCaps
    is_online: bool
    is_ready: bool


# --- pools ------------------------------------------------------------------------------------------------


class _Pool:
    """One pool while it is counted."""

    def __init__(self, pool_id: int, name: str | None, required: list[str] | None, service_ids: Iterable[str]) -> None:
        self.pool_id = pool_id
        self.name = name
        self.required = required
        self.total = self.online = self.ready = 0
        self.installed = dict.fromkeys(service_ids, 0)
        self.ready_services = dict.fromkeys(service_ids, 0)
        self.samples: list[str] = []

    def answer(self) -> dict[str, Any]:
        named = {} if self.name is None else {"pool_name": self.name}
        required = {} if self.required is None else {"pool_required_services": self.required}
        return {
            "pool_id": self.pool_id,
            **named,
            **required,
            "total_nodes": self.total,
            "online_nodes": self.online,
            "ready_nodes": self.ready,
            "core_services_installed": self.installed,
            "core_services_ready": self.ready_services,
            "sample_node_ids": self.samples,
        }


class PoolReport:
    """Counts nodes by pool: `add` every node, then `answer`."""

    def __init__(self, pools: PoolsConfig, models: ModelsConfig) -> None:
        self._config = pools
        #: Core service type -> the id that reports name it by.
        self._service_ids = {
            "asr": models.asr_service_id,
            "nmt": models.nmt_service_id,
            "tts": models.tts_service_id,
        }
        self._without = 0
        self._pools: dict[int, _Pool] = {}
        for pool in pools.pools:
            self._add(pool.pool_id, pool.name, pool.required_services)
        if not pools.pools:
            for pool_id in range(pools.pool_count if pools.enabled else 1):
                self._add(pool_id, None, None)

    def _add(self, pool_id: int, name: str | None, required: list[str] | None) -> None:
        self._pools[pool_id] = _Pool(pool_id, name, required, self._service_ids.values())

    def add(self, node: Standing) -> None:
        """Count one node."""
        pool = None if node.pool_id is None else self._pools.get(node.pool_id)
        if pool is None:
            self._without += 1
            return
        pool.total += 1
        pool.online += node.is_online
        pool.ready += node.is_online and node.is_ready
        if len(pool.samples) < SAMPLES_MAX:
            pool.samples.append(node.node_id)
        installed = {service.lower() for service in node.caps.services_installed}
        ready = {service.lower() for service in node.caps.services_ready}
        for service, service_id in self._service_ids.items():
            pool.installed[service_id] += service in installed
            pool.ready_services[service_id] += node.is_online and node.is_ready and service in ready

    def answer(self) -> dict[str, Any]:
        """The body of /api/v1/phase3/pools."""
        return {
            "config": pools_config(self._config),
            "pools": [self._pools[pool_id].answer() for pool_id in sorted(self._pools)],
            "nodes_without_pool": self._without,
        }


def pools_config(config: PoolsConfig) -> dict[str, Any]:
    """The configuration of pools as the original system shows it."""
    return {
        "enabled": config.enabled,
        "mode": TWO_LEVEL,
        "pool_count": len(config.pools) or config.pool_count,
        "hash_seed": config.hash_seed,
        "fallback_scan_all_pools": config.fallback_scan_all_pools,
        "pools": msgspec.to_builtins(config.pools),
        "tenant_overrides": msgspec.to_builtins(config.tenant_overrides),
        "pool_match_scope": config.pool_match_scope,
        "pool_match_mode": config.pool_match_mode,
        "strict_pool_eligibility": config.strict_pool_eligibility,
    }


def pool_number(home: str) -> int | None:
    """The number in a home pool's name, as in `hash.3` or `cap.7`; None for no pool."""
    number = home.rpartition(".")[2]
    return int(number) if number.isdigit() else None


# --- one node ---------------------------------------------------------------------------------------------


def node_answer(
    node_id: str,
    facts: NodeFacts,
    *,
    used: int,
    seen_ms_ago: int,
    speeds: Mapping[str, Speed],
    marks: Mapping[str, int],
    clock_offset_ms: int,
) -> dict[str, Any]:
    """The body of /api/v1/nodes/<id>. Times of ours become wall clock times by `clock_offset_ms`."""

    def shown(time_ms: int) -> int:
        return time_ms + clock_offset_ms if time_ms else 0

    return {
        "node_id": node_id,
        "status": facts.status,
        "reason": facts.reason,
        "used": used,
        "max_jobs": facts.caps.max_jobs,
        "running_jobs": facts.load.running_jobs,
        "edge": facts.edge,
        "epoch": facts.epoch,
        "detached_ms": shown(facts.detached_ms),
        "drain_until_ms": shown(facts.drain_until_ms),
        "pools": facts.pools.split(",") if facts.pools else [],
        "services_ready": facts.caps.services_ready,
        "models_unavailable": {service: shown(until_ms) for service, until_ms in sorted(marks.items())},
        "speeds": {
            pair: {
                "mean": round(speed.mean, 4),
                "deviation": round(max(0.0, speed.variance) ** 0.5, 4),
                "jobs": round(speed.jobs, 2),
                "at_ms": shown(speed.at_ms),
            }
            for pair, speed in sorted(speeds.items())
        },
        "seen_ms_ago": seen_ms_ago,
    }


# --- invariants -------------------------------------------------------------------------------------------

ENDS: Final = (*UTTERANCE_ENDS, EdgeCount.IN_FLIGHT)
LEDGER_COUNTS: Final = ("ledger_leaked", "ledger_missing")


class Oversold(NamedTuple):
    """A node with more slots in use than it has."""

    node_id: str
    used: int
    max_jobs: int


def invariants_answer(
    oversold: Sequence[Oversold],
    edges: Sequence[tuple[str, Presence]],
    selectors: Mapping[str, Mapping[str, int]],
    drift: int,
) -> dict[str, Any]:
    """The body of /api/v1/invariants. `selectors`: identity -> what it counted.

    `drift` does not make `ok` false: each node's last audit found it and repaired it.
    """
    jobs = {name: sum(facts.counts.get(name, 0) for _, facts in edges) for name in (EdgeCount.ACCEPTED, *ENDS)}
    balanced = all(_is_balanced(facts.counts) for _, facts in edges)
    ledger = {name: sum(counts.get(name, 0) for counts in selectors.values()) for name in LEDGER_COUNTS}
    return {
        "ok": balanced and not oversold,
        "oversold": [one._asdict() for one in oversold[:OVERSOLD_SHOWN_MAX]],
        "jobs": {**jobs, "balanced": balanced},
        "edges": [_process(identity, facts) for identity, facts in sorted(edges)],
        "ledger": {
            "drift": drift,
            "leaked_total": ledger["ledger_leaked"],
            "missing_total": ledger["ledger_missing"],
        },
    }


def _is_balanced(counts: Mapping[str, int]) -> bool:
    """Every accepted utterance has ended or is in flight. An edge reads all its counts at one moment."""
    return counts.get(EdgeCount.ACCEPTED, 0) == sum(counts.get(name, 0) for name in ENDS)


def _process(identity: str, facts: Presence) -> dict[str, Any]:
    return {
        "edge": identity,
        "host": facts.host,
        "pid": facts.pid,
        "version": facts.version,
        "started_at_ms": facts.started_at_ms,
        "counts": dict(facts.counts),
        "balanced": _is_balanced(facts.counts),
    }
