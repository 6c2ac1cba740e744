"""Simulation of a job, node by node: the body of /api/v1/phase3/simulate, from the kernel's verdicts.

The shape is the original system's (routing_key, required, selected_node_id, debug, breakdown); `nodes` and `nearest`
are ours. In `debug.attempts` each pool that would be looked through has its number, what came of it, and how many nodes
it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from mesh.words import RefusalReason
from selector.core.filters import REASON, Filter, main_filter
from selector.operators.core.report_json import Standing

OK: Final = "ok"
NODES_SHOWN_MAX: Final = 1_000
#: Core services, in the order in which a missing one is named.
_CORE: Final = ("asr", "nmt", "tts")


class SimulationVerdict(NamedTuple):
    """One node and the kernel's verdict on it."""

    node: Standing
    pool: str
    #: None: it may take the job.
    obstacle: Filter | None
    score_ms: int
    terms: Mapping[str, float]

    @property
    def reason(self) -> str:
        return OK if self.obstacle is None else REASON[self.obstacle]


class Routing(NamedTuple):
    """Which pools the job may use, in order, and which of them was chosen (None: no node was found)."""

    routing_key: str
    pool_count: int
    preferred: int | None
    order: Sequence[int]
    selected: int | None


def simulation_answer(
    routing: Routing,
    required: Sequence[str],
    verdicts: Sequence[SimulationVerdict],
    selected_node_id: str | None,
    nearest: tuple[str, str],
) -> dict[str, Any]:
    """The whole body."""
    counts = Counter(verdict.obstacle for verdict in verdicts if verdict.obstacle is not None)
    by_filter = [counts[place] for place in Filter]
    worst = main_filter(by_filter)
    return {
        "routing_key": routing.routing_key,
        "required": list(required),
        "selected_node_id": selected_node_id,
        "debug": {
            "pool_count": routing.pool_count,
            "preferred_pool": routing.preferred,
            "selected_pool": routing.selected,
            "fallback_used": routing.selected is not None and routing.selected != routing.preferred,
            "attempts": _attempts(routing, required, verdicts),
        },
        "breakdown": {
            "total_nodes": len(verdicts),
            **{REASON[place]: counts[place] for place in Filter},
            "best_reason": RefusalReason.NO_NODES if not verdicts else OK if worst is None else REASON[worst],
        },
        "nodes": [_shown(verdict) for verdict in sorted(verdicts, key=_closest_first)[:NODES_SHOWN_MAX]],
        "nearest": {"node_id": nearest[0], "reason": nearest[1]} if nearest[0] else None,
    }


def _attempts(routing: Routing, required: Sequence[str], verdicts: Sequence[SimulationVerdict]) -> list[list[Any]]:
    members: dict[int, list[SimulationVerdict]] = {pool: [] for pool in routing.order}
    for verdict in verdicts:
        if verdict.node.pool_id in members:
            members[verdict.node.pool_id].append(verdict)
    attempts: list[list[Any]] = []
    for pool in routing.order:
        found = pool == routing.selected
        attempts.append([pool, OK if found else _why_not(members[pool], required), len(members[pool])])
        if found:
            break
    return attempts


def _why_not(members: Sequence[SimulationVerdict], required: Sequence[str]) -> str:
    """Why a pool has no node for the job: at once, where its nodes lack something in common, else the main reason."""
    if not members:
        return RefusalReason.NO_NODES
    online = [verdict.node for verdict in members if verdict.node.is_online]
    ready = [node for node in online if node.is_ready]
    if not ready:
        return REASON[Filter.STATUS if online else Filter.OFFLINE]
    has = {service.lower() for node in ready for service in node.caps.services_ready}
    for service in _CORE:
        if service in required and service not in has:
            return f"missing_core_{service}_not_ready"
    counts = Counter(verdict.obstacle for verdict in members)
    worst = main_filter([counts[place] for place in Filter])
    return OK if worst is None else REASON[worst]


def _closest_first(verdict: SimulationVerdict) -> tuple[int, int, str]:
    """Nodes that may take the job, the cheapest first; then those that were stopped last."""
    stopped_at = len(Filter) if verdict.obstacle is None else int(verdict.obstacle)
    return -stopped_at, verdict.score_ms, verdict.node.node_id


def _shown(verdict: SimulationVerdict) -> dict[str, Any]:
    return {
        "node_id": verdict.node.node_id,
        "pool": verdict.pool,
        "reason": verdict.reason,
        "score_ms": verdict.score_ms,
        "terms": {name: round(value, 1) for name, value in verdict.terms.items()},
    }
