"""Every question of an operator, asked by frames, answered by real selectors."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest

from linguamesh.local.redis_server import RedisServer
from mesh import clock
from mesh.cells import cell_of
from mesh.config.weights import Weights
from mesh.frames import ControlNode, EdgeReport, NodeOffline, Push, Query, QueryAnswer, StatusChanged
from mesh.keys import Keys
from selector.core.filters import REASON
from tests.support.processes.selector import FakeEdge, Rig, selecting, until

POOLS = '[{"pool_id": 1, "name": "full", "required_services": ["asr", "nmt", "tts"]}, {"pool_id": 2, "name": "any"}]'


@pytest.fixture(scope="module")
def mesh(_redis_process: RedisServer) -> Iterator[Rig]:
    """Two selectors with pools."""
    with selecting(
        _redis_process,
        "s1",
        "s2",
        LINGUA_POOLS_ENABLED="true",
        LINGUA_POOLS_POOLS=POOLS,
        LINGUA_SELECTOR_WEIGHTS_MS="50",
        LINGUA_SELECTOR_PRESENCE_MS="100",
    ) as rig:
        yield rig


async def until_known(rig: Rig, edge: FakeEdge, node_id: str, status: str = "ready") -> None:
    """Every selector knows the node by now."""
    for name in ("s1", "s2"):

        async def is_so(name: str = name) -> bool:
            code, answer = await edge.query("node", to=rig.identities[name], node_id=node_id)
            return code == 200 and answer["status"] == status

        await until(is_so)


async def test_an_unknown_question_is_refused_with_what_there_is(edge: FakeEdge) -> None:
    status, answer = await edge.query("fortune")
    assert (status, answer["code"]) == (400, "INVALID_MESSAGE")
    assert "weights_set" in answer["message"]


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("node", {}),
        ("node", {"node_id": "{x}"}),
        ("drain", {"node_id": "a b"}),
        ("drain", {"node_id": "n", "deadline_ms": "soon"}),
        ("pair", {}),
        ("pair", {"node_id": "{x}"}),
        ("explain", {}),
        ("simulate", {"accept_public": "perhaps"}),
        ("weights_set", {}),
        ("weights_set", {"weights": "{"}),
        ("weights_set", {"weights": '{"busy": -1}'}),
    ],
)
async def test_a_bad_question_is_told_what_is_wrong(edge: FakeEdge, kind: str, params: dict[str, str]) -> None:
    status, answer = await edge.query(kind, **params)
    assert status == 400
    assert answer["code"] in ("INVALID_MESSAGE", "INVALID_ID") and answer["message"]


@pytest.mark.parametrize(
    ("kind", "params"),
    [("node", {"node_id": "nobody"}), ("drain", {"node_id": "nobody"}), ("explain", {"job_id": "job-00-none"})],
)
async def test_what_is_not_there_is_not_found(edge: FakeEdge, kind: str, params: dict[str, str]) -> None:
    status, answer = await edge.query(kind, **params)
    assert status == 404 and answer["message"]


async def test_selectors_are_all_named(rig: Rig, edge: FakeEdge) -> None:
    async def are_two() -> bool:
        status, answer = await edge.query("selectors")
        return status == 200 and answer == {"selectors": sorted(rig.identities[name] for name in ("s1", "s2"))}

    await until(are_two)


async def test_a_node_is_told_with_everything(rig: Rig, edge: FakeEdge) -> None:
    epoch = await edge.add_node("node-1", max_jobs=3, region="eu")
    assign, _ = await edge.place("r-1")
    edge.finish(assign, took_ms=300)
    await edge.take(Push)
    await until_known(rig, edge, "node-1")
    edge.send_record("node-1", NodeOffline("node-1", edge.identity, epoch, "closed"))

    async def is_detached() -> bool:
        status, answer = await edge.query("node", node_id="node-1")
        return status == 200 and answer["detached_ms"] > 0

    await until(is_detached)
    _, answer = await edge.query("node", node_id="node-1")
    assert (answer["status"], answer["edge"], answer["epoch"]) == ("ready", edge.identity, epoch)
    assert (answer["used"], answer["max_jobs"], answer["running_jobs"]) == (0, 3, 0)
    assert "cap.1" in answer["pools"] and "place.eu.any" in answer["pools"]
    assert answer["models_unavailable"] == {} and answer["drain_until_ms"] == 0
    assert set(answer["speeds"]) == {"*", "en>es"}
    assert answer["speeds"]["en>es"]["mean"] == pytest.approx(300 / 1_500, rel=0.01)
    assert answer["seen_ms_ago"] >= 0


async def test_pools_have_the_original_shape(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    await edge.add_node("node-2", services_installed=["asr"], services_ready=["asr"])
    for node_id in ("node-1", "node-2"):
        await until_known(rig, edge, node_id)
    status, answer = await edge.query("pools")
    assert status == 200
    assert answer["config"]["enabled"] is True and answer["config"]["mode"] == "two_level"
    assert [(pool["pool_id"], pool["pool_name"]) for pool in answer["pools"]] == [(1, "full"), (2, "any")]
    full, other = answer["pools"]
    assert (full["total_nodes"], full["online_nodes"], full["ready_nodes"]) == (1, 1, 1)
    assert full["sample_node_ids"] == ["node-1"] and other["sample_node_ids"] == ["node-2"]
    assert full["core_services_ready"] == {"node-inference": 1, "nmt-m2m100": 1, "piper-tts": 1}


async def test_a_simulation_tells_node_by_node(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    await edge.add_node("node-2", services_installed=["asr"], services_ready=["asr"])
    for node_id in ("node-1", "node-2"):
        await until_known(rig, edge, node_id)
    asked = {"required": ["ASR", "nmt", "tts"], "src_lang": "en", "tgt_lang": "es", "routing_key": "k"}
    status, answer = await edge.query("simulate", **asked)
    assert status == 200
    assert (answer["routing_key"], answer["required"]) == ("k", ["asr", "nmt", "tts"])
    assert answer["selected_node_id"] == "node-1"
    assert set(answer["debug"]) == {"pool_count", "preferred_pool", "selected_pool", "fallback_used", "attempts"}
    assert answer["debug"]["pool_count"] == 2 and answer["debug"]["selected_pool"] == 1
    assert answer["debug"]["attempts"][-1] == [1, "ok", 1]
    assert answer["breakdown"]["total_nodes"] == 2 and set(REASON.values()) < set(answer["breakdown"])
    first, second = answer["nodes"]
    assert (first["node_id"], first["reason"]) == ("node-1", "ok")
    assert {"work", "busy", "stale"} <= set(first["terms"]) and isinstance(first["score_ms"], int)
    assert (second["node_id"], second["reason"]) == ("node-2", "service_not_installed")
    assert answer["nearest"]["node_id"] == "node-2"

    status, answer = await edge.query("simulate", **asked, exclude_node_id="node-1")
    assert answer["selected_node_id"] is None
    assert [node["reason"] for node in answer["nodes"] if node["node_id"] == "node-1"] == ["excluded"]
    assert await rig.used("node-1") == 0, "nothing was done"


async def test_a_decision_is_explained_by_the_selector_that_made_it(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    assign, _ = await edge.place("r-1")
    answers = [await edge.query("explain", to=rig.identities[name], job_id=assign.job_id) for name in ("s1", "s2")]
    found = [answer for status, answer in answers if status == 200]
    assert len(found) == 1, "one placed it"
    assert found[0]["job_id"] == assign.job_id and found[0]["words"]
    by_request = [await edge.query("explain", to=rig.identities[name], request_id="r-1") for name in ("s1", "s2")]
    assert sorted(status for status, _ in by_request) == [200, 404]
    sizes = [len((await edge.query_bytes("recording", to=rig.identities[name]))[1]) for name in ("s1", "s2")]
    assert max(sizes) > 0


async def test_weights_set_at_one_selector_are_in_force_at_the_other(rig: Rig, edge: FakeEdge) -> None:
    first, second = rig.identities["s1"], rig.identities["s2"]
    status, before = await edge.query("weights", to=second)
    assert (status, before["version"], before["by"]) == (200, 0, "")
    assert before["weights"] == msgspec.to_builtins(Weights())
    text = json.dumps({"strategy": "least_connections", "warm_ms": 7})
    status, answer = await edge.query("weights_set", to=first, weights=text, expected_version="0", by="anna")
    assert (status, answer) == (200, {"version": 1})

    async def has_come() -> bool:
        _, seen = await edge.query("weights", to=second)
        return bool(seen["version"] == 1)

    await until(has_come)
    _, seen = await edge.query("weights", to=second)
    assert (seen["weights"]["strategy"], seen["weights"]["warm_ms"], seen["by"]) == ("least_connections", 7, "anna")
    assert seen["since_ms"] > 0
    status, answer = await edge.query("weights_set", to=second, weights="{}", expected_version="0")
    assert status == 409
    status, answer = await edge.query("weights_set", to=second, weights="{}")
    assert (status, answer) == (200, {"version": 2}), "without an expectation it replaces whatever there is"


async def test_weights_that_cannot_be_read_are_passed_over(rig: Rig, edge: FakeEdge, redis_server: RedisServer) -> None:
    await edge.query("weights_set", to=rig.identities["s1"], weights='{"warm_ms": 9}')
    with redis_server.client() as client:
        for field in client.hkeys(Keys().weights()):
            if field not in (b"version",):
                client.hset(Keys().weights(), field, b"\xc1 nonsense")
        client.hincrby(Keys().weights(), "version", 5)
    status, answer = await edge.query("weights", to=rig.identities["s1"])
    assert (status, answer["weights"]["warm_ms"]) == (200, 9), "the last good set stays in force"
    await edge.add_node("node-1")
    await edge.place("r-1")


async def test_a_drain_is_told_to_the_edge_and_ended_by_resume(rig: Rig, edge: FakeEdge) -> None:
    epoch = await edge.add_node("node-1")
    await edge.take(StatusChanged, lambda frame: frame.status == "ready")
    before_ms = clock.wall_ms()
    status, answer = await edge.query("drain", node_id="node-1", deadline_ms="5000", reason="update")
    assert (status, answer["node_id"], answer["status"]) == (200, "node-1", "draining")
    assert answer["drain_until_ms"] >= before_ms + 5_000
    control, _ = await edge.take(ControlNode)
    assert (control.node_id, control.epoch, control.command, control.reason) == ("node-1", epoch, "drain", "update")
    assert control.deadline_ms >= before_ms + 5_000
    changed, _ = await edge.take(StatusChanged)
    assert (changed.status, changed.reason, changed.epoch) == ("draining", "update", epoch)
    edge.beat("node-1", epoch)
    await until_known(rig, edge, "node-1", "draining")
    status, answer = await edge.query("simulate", src_lang="en", tgt_lang="es")
    assert answer["selected_node_id"] is None and answer["breakdown"]["draining"] == 1

    status, answer = await edge.query("drain", node_id="node-1", resume="true")
    assert (status, answer["status"], answer["drain_until_ms"]) == (200, "ready", 0)
    control, _ = await edge.take(ControlNode)
    assert (control.command, control.deadline_ms) == ("resume", 0)
    await edge.place("r-1")


async def test_invariants_add_up_what_edges_and_selectors_say(rig: Rig, edge: FakeEdge) -> None:
    other = await rig.add_edge("b")
    for one, counts in (
        (edge, {"accepted": 5, "delivered": 3, "failed": 1, "in_flight": 1, "sessions": 2, "nonsense": 7}),
        (other, {"accepted": 2, "refused": 1, "cancelled": 1}),
    ):
        one.send_record("s-1", EdgeReport(one.identity, "host", 7, "1.0", 1_000, counts))

    async def are_two() -> bool:
        _, answer = await edge.query("invariants")
        return len(answer["edges"]) == 2

    await until(are_two)
    status, answer = await edge.query("invariants")
    assert status == 200 and answer["ok"] is True and answer["oversold"] == []
    assert answer["jobs"] == {
        "accepted": 7, "delivered": 3, "failed": 1, "refused": 1, "cancelled": 1, "in_flight": 1, "balanced": True,
    }  # fmt: skip
    assert {one["edge"] for one in answer["edges"]} == {edge.identity, other.identity}
    assert "nonsense" not in answer["edges"][0]["counts"]
    assert set(answer["ledger"]) == {"drift", "leaked_total", "missing_total"}

    edge.send_record("s-1", EdgeReport(other.identity, "host", 7, "1.0", 1_000, {"accepted": 99}))  # not its own
    edge.send_record("s-1", EdgeReport(edge.identity, "host", 7, "1.0", 1_000, {"accepted": 6, "delivered": 5}))

    async def is_broken() -> bool:
        _, answer = await edge.query("invariants")
        return answer["ok"] is False

    await until(is_broken)
    _, answer = await edge.query("invariants")
    assert (answer["jobs"]["accepted"], answer["jobs"]["balanced"]) == (8, False)


async def test_an_oversold_node_breaks_the_invariants(rig: Rig, edge: FakeEdge, redis_server: RedisServer) -> None:
    epoch = await edge.add_node("node-1", max_jobs=1)
    await edge.place("r-1")
    cell = cell_of("node-1", rig.config.mesh.cells)
    with redis_server.client() as client:
        client.zadd(Keys().leases(cell, "node-1"), {"job-00-x#1": 2**52})
    edge.beat("node-1", epoch)

    async def is_seen() -> bool:
        _, answer = await edge.query("invariants")
        return answer["oversold"] == [{"node_id": "node-1", "used": 2, "max_jobs": 1}] and not answer["ok"]

    await until(is_seen)


async def test_metrics_have_the_original_shape(rig: Rig, edge: FakeEdge) -> None:
    status, answer = await edge.query("metrics")
    assert status == 200
    assert set(answer) == {"model_not_available", "dispatch_exclude"}
    assert {"received_total", "by_service_top", "other_marked_node_total"} <= set(answer["model_not_available"])
    for one in answer["dispatch_exclude"]["by_reason"]:
        assert set(one) == {"reason", "total", "sample_node_ids"}


async def test_too_many_questions_are_told_so_and_none_is_forgotten(rig: Rig, edge: FakeEdge) -> None:
    asked = 900  # fewer than a pipe holds, more than a lane does
    for number in range(asked):
        question = Query(f"flood-{number}", edge.identity, "selectors", {})
        assert edge.link.send(rig.identities["s1"], 0, question)
    answers = [await edge.take(QueryAnswer, lambda frame: frame.ref.startswith("flood-")) for _ in range(asked)]
    assert len({frame.ref for frame, _ in answers}) == asked
    statuses = {frame.status for frame, _ in answers}
    assert 200 in statuses and statuses <= {200, 503}
    refused = [json.loads(payload[0]) for frame, payload in answers if frame.status == 503]
    assert all(answer["code"] == "SLOW_DOWN" for answer in refused)
