from __future__ import annotations

from typing import Any

import pytest

from selector.core.filters import Filter
from selector.operators.core.report_json import (
    Standing,
)
from selector.operators.core.simulate import NODES_SHOWN_MAX, Routing, SimulationVerdict, simulation_answer
from tests.support.builders.selector import caps


def standing(node_id: str, pool_id: int | None = 0, *, online: bool = True, ready: bool = True, **its: Any) -> Standing:
    return Standing(node_id, pool_id, caps(**its), online, ready)


def verdict(node: Standing, obstacle: Filter | None = None, score_ms: int = 100) -> SimulationVerdict:
    return SimulationVerdict(node, f"hash.{node.pool_id}", obstacle, score_ms, {"work": 99.96})


def test_simulation_lists_pools_counts_and_nodes() -> None:
    verdicts = [
        verdict(standing("away", 1, online=False), Filter.OFFLINE),
        verdict(standing("full", 0), Filter.SLOT),
        verdict(standing("dear", 2), None, 300),
        verdict(standing("cheap", 2), None, 200),
        verdict(standing("other", 3), Filter.POOL),
    ]
    routing = Routing("key", 4, 1, [1, 0, 2], 2)
    answer = simulation_answer(routing, ["asr"], verdicts, "cheap", ("full", "has no free slot"))
    assert answer["debug"] == {
        "pool_count": 4,
        "preferred_pool": 1,
        "selected_pool": 2,
        "fallback_used": True,
        "attempts": [[1, "offline", 1], [0, "capacity_exceeded", 1], [2, "ok", 2]],
    }
    assert (answer["routing_key"], answer["required"], answer["selected_node_id"]) == ("key", ["asr"], "cheap")
    breakdown = answer["breakdown"]
    assert (breakdown["total_nodes"], breakdown["offline"], breakdown["capacity_exceeded"]) == (5, 1, 1)
    assert [node["node_id"] for node in answer["nodes"]] == ["cheap", "dear", "full", "away", "other"]
    assert answer["nodes"][0] == {
        "node_id": "cheap",
        "pool": "hash.2",
        "reason": "ok",
        "score_ms": 200,
        "terms": {"work": 100.0},
    }
    assert answer["nearest"] == {"node_id": "full", "reason": "has no free slot"}


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([], "no_nodes"),
        ([verdict(standing("a", online=False), Filter.OFFLINE)], "offline"),
        ([verdict(standing("a", ready=False), Filter.STATUS)], "status_not_ready"),
        ([verdict(standing("a", services_ready=["nmt"]), Filter.READY)], "missing_core_asr_not_ready"),
        ([verdict(standing("a", services_ready=["asr"]), Filter.READY)], "missing_core_tts_not_ready"),
        ([verdict(standing("a"), Filter.PAIR)], "lang_pair_unsupported"),
    ],
)
def test_pool_without_a_candidate_has_a_reason(members: list[SimulationVerdict], reason: str) -> None:
    answer = simulation_answer(Routing("k", 1, 0, [0], None), ["asr", "tts"], members, None, ("", ""))
    assert answer["debug"]["attempts"] == [[0, reason, len(members)]]
    assert answer["selected_node_id"] is None and answer["nearest"] is None
    assert answer["debug"]["fallback_used"] is False


def test_large_fleet_is_truncated_but_counted() -> None:
    verdicts = [verdict(standing(f"n{number}"), Filter.SLOT) for number in range(NODES_SHOWN_MAX + 50)]
    answer = simulation_answer(Routing("k", 1, 0, [0], None), [], verdicts, None, ("", ""))
    assert len(answer["nodes"]) == NODES_SHOWN_MAX
    assert answer["breakdown"]["capacity_exceeded"] == NODES_SHOWN_MAX + 50
