from __future__ import annotations

from typing import Any

import pytest

from lua.store.types.deployment import Presence
from mesh.config.scheduler import ModelsConfig, Pool, PoolsConfig, TenantPool
from mesh.errors import ErrorCode
from mesh.states.speed import Speed
from selector.core.filters import Filter
from selector.operators.core.query_params import AUDIO_MS, Params, QueryRefusal, simulated
from selector.operators.core.report_json import (
    SAMPLES_MAX,
    Oversold,
    PoolReport,
    Standing,
    invariants_answer,
    node_answer,
    pool_number,
)
from selector.operators.core.simulate import NODES_SHOWN_MAX, Routing, SimulationVerdict, simulation_answer
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


# --- simulation -------------------------------------------------------------------------------------------


def verdict(node: Standing, obstacle: Filter | None = None, score_ms: int = 100) -> SimulationVerdict:
    return SimulationVerdict(node, f"hash.{node.pool_id}", obstacle, score_ms, {"work": 99.96})


def test_a_simulation_tells_pools_counts_and_nodes() -> None:
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
def test_a_pool_that_has_nobody_says_why(members: list[SimulationVerdict], reason: str) -> None:
    answer = simulation_answer(Routing("k", 1, 0, [0], None), ["asr", "tts"], members, None, ("", ""))
    assert answer["debug"]["attempts"] == [[0, reason, len(members)]]
    assert answer["selected_node_id"] is None and answer["nearest"] is None
    assert answer["debug"]["fallback_used"] is False


def test_a_large_fleet_is_cut_short_but_counted() -> None:
    verdicts = [verdict(standing(f"n{number}"), Filter.SLOT) for number in range(NODES_SHOWN_MAX + 50)]
    answer = simulation_answer(Routing("k", 1, 0, [0], None), [], verdicts, None, ("", ""))
    assert len(answer["nodes"]) == NODES_SHOWN_MAX
    assert answer["breakdown"]["capacity_exceeded"] == NODES_SHOWN_MAX + 50


# --- parameters -------------------------------------------------------------------------------------------


def test_a_simulated_job_has_the_defaults_of_the_original() -> None:
    routing_key, job = simulated(Params({}), frozenset())
    assert (routing_key, job.src_lang, job.tgt_lang, job.public, job.services) == ("default", "zh", "en", True, [])
    assert (job.audio_ms, job.excluded) == (AUDIO_MS, [])
    given = {"required": ["ASR", "nmt,tts", "asr"], "exclude_node_id": ["Node-1"], "accept_public": ["false"]}
    _, job = simulated(Params(given), frozenset())
    assert (job.services, job.excluded, job.public) == (["asr", "nmt", "tts"], ["Node-1"], False)


@pytest.mark.parametrize(
    ("params", "key", "tenant"),
    [
        ({"routing_key": ["k"], "session_id": ["s"]}, "k", ""),
        ({"tenant_id": ["t"], "session_id": ["s"]}, "t", "t"),
        ({"session_id": ["s"]}, "s", ""),
        ({"routing_key": ["acme"]}, "acme", "acme"),
        ({"routing_key": ["k"], "tenant_id": ["acme"]}, "k", ""),
        ({"routing_key": ["t"], "tenant_id": ["t"]}, "t", "t"),
        ({"routing_key": ["acme"], "tenant_id": ["t"]}, "acme", "acme"),
    ],
)
def test_the_routing_key_is_named_or_the_tenant_or_the_session(
    params: dict[str, list[str]], key: str, tenant: str
) -> None:
    routing_key, job = simulated(Params(params), frozenset({"acme"}))
    assert (routing_key, job.tenant_id) == (key, tenant)


@pytest.mark.parametrize(
    "params",
    [
        {"accept_public": ["perhaps"]},
        {"audio_ms": ["-1"]},
        {"audio_ms": ["9" * 12]},
        {"audio_ms": ["٣"]},
        {"session_id": ["x" * 500]},
        {"required": [str(number) for number in range(99)]},
    ],
)
def test_what_cannot_be_read_is_refused(params: dict[str, list[str]]) -> None:
    with pytest.raises(QueryRefusal) as caught:
        simulated(Params(params), frozenset())
    assert (caught.value.status, caught.value.code) == (400, ErrorCode.INVALID_MESSAGE)


@pytest.mark.parametrize("text", ["", "{", '{"no_such": 1}', '{"busy": -5}', '{"strategy": "magic"}', "[]"])
def test_bad_weights_are_refused(text: str) -> None:
    with pytest.raises(QueryRefusal) as caught:
        Params({"weights": [text]}).weights()
    assert caught.value.status == 400
    assert caught.value.answer()["code"] == "INVALID_MESSAGE"


def test_good_weights_are_read_and_the_rest_has_its_default() -> None:
    weights = Params({"weights": ['{"busy": 2.5}']}).weights()
    assert (weights.busy, weights.warm_ms) == (2.5, 50.0)
