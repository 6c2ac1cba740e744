from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.messages import client as wire
from mesh.messages.client import decode_from_client, decode_from_server
from tests.support.builders import message_checks as checks
from tests.support.builders.messages import FROM_CLIENT, FROM_SERVER, Sample

CASES = [pytest.param(decode_from_client, s, id=f"in-{s.type}") for s in FROM_CLIENT] + [
    pytest.param(decode_from_server, s, id=f"out-{s.type}") for s in FROM_SERVER
]
by_type = {sample.type: sample.message for sample in FROM_CLIENT}


def test_samples_cover_every_type() -> None:
    assert {sample.type for sample in FROM_CLIENT} == wire.FROM_CLIENT.types
    assert {sample.type for sample in FROM_SERVER} == wire.FROM_SERVER.types


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


def test_unknown_type_is_named_and_truncated() -> None:
    assert "'dance'" in checks.refused(decode_from_client, '{"type":"dance"}').message
    assert len(checks.refused(decode_from_client, json.dumps({"type": "d" * 9_000})).message) < 200


def test_message_of_the_other_direction_is_refused() -> None:
    checks.refused(decode_from_client, '{"type":"session_close_ack","session_id":"s"}')


@pytest.mark.parametrize("text", checks.ABYSS, ids=range(len(checks.ABYSS)))
def test_malformed_message_is_refused_with_a_typed_error(text: str | bytes) -> None:
    checks.refused(decode_from_client, text)
    checks.refused(decode_from_server, text)


def test_deep_nesting_in_ignored_or_free_field_is_refused() -> None:
    deep = "[" * 50_000 + "]" * 50_000
    checks.refused(decode_from_client, '{"type":"session_close","session_id":"s","reason":"r","x":' + deep + "}")
    checks.refused(decode_from_client, '{"type":"webrtc_offer","room_code":"1","to":"s","sdp":' + deep + "}")


@given(checks.anything)
@settings(max_examples=300, deadline=None)
def test_arbitrary_json_raises_peer_error_only(tree: Any) -> None:
    text = json.dumps(tree)
    for decode in (decode_from_client, decode_from_server):
        checks.outcome(decode, text)


@given(st.binary(max_size=200) | st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_raise_peer_error_only(text: bytes | str) -> None:
    checks.outcome(decode_from_client, text)


@given(checks.mutated(FROM_CLIENT))
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mutated_message_is_accepted_or_refused(tree: dict[str, Any]) -> None:
    checks.outcome(decode_from_client, json.dumps(tree))


@given(checks.mutated(FROM_SERVER))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mutated_server_message_is_accepted_or_refused(tree: dict[str, Any]) -> None:
    checks.outcome(decode_from_server, json.dumps(tree))


@pytest.mark.parametrize("name", wire.__all__)
def test_facade_exports_its_names(name: str) -> None:
    assert hasattr(wire, name)


def test_facade_exports_every_message() -> None:
    assert {cls.__name__ for cls in get_args(wire.ClientMessage) + get_args(wire.ServerMessage)} <= set(wire.__all__)
