from __future__ import annotations

from typing import Any

import pytest

from lua.store.types.deployment import Presence
from mesh.config.scheduler import ModelsConfig, Pool, PoolsConfig, TenantPool
from mesh.states.speed import Speed
from selector.operators.core.report_json import (
    SAMPLES_MAX,
    Oversold,
    PoolReport,
    Standing,
    invariants_answer,
    node_answer,
    pool_number,
)
from tests.support.builders.selector import caps, facts

# --- pools ----------------------------------------------------------------------------------------------


def standing(node_id: str, pool_id: int | None = 0, *, online: bool = True, ready: bool = True, **its: Any) -> Standing:
    return Standing(node_id, pool_id, caps(**its), online, ready)


def test_pools_are_told_in_the_original_shape() -> None:
    config = PoolsConfig(
        enabled=True,
        pools=[Pool(7, "full", ["asr", "nmt", "tts"]), Pool(2, "ears", ["asr"])],
        tenant_overrides=[TenantPool("acme", 7)],
    )
    report = PoolReport(config, ModelsConfig())
    for number in range(7):
        report.add(standing(f"n{number}", 7, online=number != 0, ready=number != 1))
    report.add(standing("ear", 2, services_installed=["ASR"], services_ready=["asr"]))
    report.add(standing("nowhere", None))
    answer = report.answer()
    assert answer["config"] == {
        "enabled": True,
        "mode": "two_level",
        "pool_count": 2,
        "hash_seed": 0,
        "fallback_scan_all_pools": True,
        "pools": [
            {
                "pool_id": 7,
                "name": "full",
                "required_services": ["asr", "nmt", "tts"],
                "languages": [],
                "region": "",
                "gpu_tier": "",
            },
            {"pool_id": 2, "name": "ears", "required_services": ["asr"], "languages": [], "region": "", "gpu_tier": ""},
        ],
        "tenant_overrides": [{"tenant_id": "acme", "pool_id": 7, "exclusive": False}],
        "pool_match_scope": "core_only",
        "pool_match_mode": "contains",
        "strict_pool_eligibility": False,
    }
    assert [pool["pool_id"] for pool in answer["pools"]] == [2, 7]
    ears, full = answer["pools"]
    assert full == {
        "pool_id": 7,
        "pool_name": "full",
        "pool_required_services": ["asr", "nmt", "tts"],
        "total_nodes": 7,
        "online_nodes": 6,
        "ready_nodes": 5,
        "core_services_installed": {"node-inference": 7, "nmt-m2m100": 7, "piper-tts": 7},
        "core_services_ready": {"node-inference": 5, "nmt-m2m100": 5, "piper-tts": 5},
        "sample_node_ids": [f"n{number}" for number in range(SAMPLES_MAX)],
    }
    assert ears["core_services_installed"] == {"node-inference": 1, "nmt-m2m100": 0, "piper-tts": 0}
    assert answer["nodes_without_pool"] == 1


def test_hash_pools_are_all_listed_and_have_no_names() -> None:
    answer = PoolReport(PoolsConfig(enabled=True, pool_count=3), ModelsConfig()).answer()
    assert [pool["pool_id"] for pool in answer["pools"]] == [0, 1, 2]
    assert not any("pool_name" in pool for pool in answer["pools"])
    without = PoolReport(PoolsConfig(), ModelsConfig())
    without.add(standing("n"))
    assert [pool["total_nodes"] for pool in without.answer()["pools"]] == [1], "all in one"


@pytest.mark.parametrize(("home", "number"), [("hash.3", 3), ("cap.65535", 65535), ("", None), ("pair.en.es", None)])
def test_a_home_pools_number_is_in_its_name(home: str, number: int | None) -> None:
    assert pool_number(home) == number


# --- one node, invariants ---------------------------------------------------------------------------------


def test_a_node_is_told_with_times_on_the_wall_clock() -> None:
    its = facts()._replace(pools="hash.1,pair.en.es", detached_ms=50, reason="closed")
    answer = node_answer(
        "n",
        its,
        used=2,
        seen_ms_ago=7,
        speeds={"en>es": Speed(0.25, 0.04, 3.0, 60)},
        marks={"tts": 90},
        clock_offset_ms=1_000,
    )
    assert answer["detached_ms"] == 1_050 and answer["drain_until_ms"] == 0
    assert answer["pools"] == ["hash.1", "pair.en.es"]
    assert answer["models_unavailable"] == {"tts": 1_090}
    assert answer["speeds"] == {"en>es": {"mean": 0.25, "deviation": 0.2, "jobs": 3.0, "at_ms": 1_060}}
    assert (answer["used"], answer["max_jobs"], answer["reason"], answer["seen_ms_ago"]) == (2, 4, "closed", 7)


def presence(**counts: int) -> Presence:
    return Presence("host", 1, "1.0", 5, counts)


def test_invariants_hold_while_every_utterance_is_accounted_for() -> None:
    even = presence(accepted=10, delivered=5, failed=1, refused=1, cancelled=1, in_flight=2)
    answer = invariants_answer(
        [], [("edge:b", even), ("edge:a", presence())], {"s1": {"ledger_leaked": 2}, "s2": {}}, 1
    )
    assert answer["ok"] is True
    assert answer["jobs"] == {
        "accepted": 10,
        "delivered": 5,
        "failed": 1,
        "refused": 1,
        "cancelled": 1,
        "in_flight": 2,
        "balanced": True,
    }
    assert [edge["edge"] for edge in answer["edges"]] == ["edge:a", "edge:b"]
    assert answer["ledger"] == {"drift": 1, "leaked_total": 2, "missing_total": 0}


def test_invariants_break_by_one_lost_utterance_or_one_slot_too_many() -> None:
    odd = presence(accepted=10, delivered=9)
    other = presence(accepted=9, delivered=10)
    broken = invariants_answer([], [("edge:a", odd), ("edge:b", other)], {}, 0)
    assert (broken["ok"], broken["jobs"]["balanced"]) == (False, False), "two wrongs do not make a right"
    oversold = invariants_answer([Oversold("n", 5, 4)], [], {}, 0)
    assert oversold["ok"] is False
    assert oversold["oversold"] == [{"node_id": "n", "used": 5, "max_jobs": 4}]
