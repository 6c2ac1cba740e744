from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.messages import node as wire
from mesh.messages.node import decode_from_node, decode_from_scheduler, encode
from tests.support.builders import message_checks as checks
from tests.support.builders.messages import FROM_NODE, FROM_SCHEDULER, Sample

CASES = [pytest.param(decode_from_node, s, id=f"in-{s.type}") for s in FROM_NODE] + [
    pytest.param(decode_from_scheduler, s, id=f"out-{s.type}") for s in FROM_SCHEDULER
]
by_type = {sample.type: sample.message for sample in FROM_NODE}


def test_samples_cover_every_type() -> None:
    assert {sample.type for sample in FROM_NODE} == wire.FROM_NODE.types
    assert {sample.type for sample in FROM_SCHEDULER} == wire.FROM_SCHEDULER.types


@pytest.mark.parametrize(("decode", "sample"), CASES)
def test_message_round_trips_with_names_and_order(decode: checks.Decode, sample: Sample) -> None:
    checks.check_round_trip(decode, sample)


@pytest.mark.parametrize(("decode", "sample"), CASES)
def test_missing_required_field_is_refused_by_name(decode: checks.Decode, sample: Sample) -> None:
    checks.check_required(decode, sample)


@pytest.mark.parametrize(("decode", "sample"), CASES)
def test_optional_fields_may_be_absent_or_null(decode: checks.Decode, sample: Sample) -> None:
    checks.check_optional(decode, sample)


@pytest.mark.parametrize(("decode", "sample"), CASES)
def test_unknown_fields_are_ignored(decode: checks.Decode, sample: Sample) -> None:
    checks.check_unknown_fields(decode, sample)


def test_smallest_heartbeat_writes_the_fields_that_the_original_requires() -> None:
    usage = wire.ResourceUsage()
    assert json.loads(encode(wire.NodeHeartbeatMessage(node_id="n", timestamp=1, resource_usage=usage))) == {
        "type": "node_heartbeat",
        "node_id": "n",
        "timestamp": 1,
        "resource_usage": {"cpu_percent": 0.0, "mem_percent": 0.0, "running_jobs": 0},
    }


def test_node_status_writes_a_reason_that_is_null() -> None:
    message = wire.NodeStatus(node_id="n", status="ready", reason=None, timestamp=5)
    assert '"reason":null' in encode(message)


def test_register_ack_matches_the_original() -> None:
    assert json.loads(encode(wire.NodeRegisterAck(node_id="n"))) == {
        "type": "node_register_ack",
        "node_id": "n",
        "message": "registered",
        "status": "registering",
    }


@pytest.mark.parametrize("text", checks.ABYSS, ids=range(len(checks.ABYSS)))
def test_malformed_message_is_refused_with_a_typed_error(text: str | bytes) -> None:
    checks.refused(decode_from_node, text)
    checks.refused(decode_from_scheduler, text)


@given(checks.anything)
@settings(max_examples=300, deadline=None)
def test_arbitrary_json_raises_peer_error_only(tree: Any) -> None:
    for decode in (decode_from_node, decode_from_scheduler):
        checks.outcome(decode, json.dumps(tree))


@given(st.sampled_from(sorted(by_type)), st.dictionaries(st.text(max_size=5), checks.anything, max_size=3))
@settings(max_examples=200, deadline=None)
def test_known_type_with_arbitrary_fields_is_accepted_or_refused(kind: str, fields: dict[str, Any]) -> None:
    checks.outcome(decode_from_node, json.dumps({**fields, "type": kind}))


@given(checks.mutated(FROM_NODE))
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mutated_message_is_accepted_or_refused(tree: dict[str, Any]) -> None:
    checks.outcome(decode_from_node, json.dumps(tree))


@given(checks.mutated(FROM_SCHEDULER))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mutated_scheduler_message_is_accepted_or_refused(tree: dict[str, Any]) -> None:
    checks.outcome(decode_from_scheduler, json.dumps(tree))


@pytest.mark.parametrize("name", wire.__all__)
def test_facade_exports_its_names(name: str) -> None:
    assert hasattr(wire, name)


def test_facade_exports_every_message() -> None:
    assert {cls.__name__ for cls in get_args(wire.NodeMessage) + get_args(wire.SchedulerMessage)} <= set(wire.__all__)
