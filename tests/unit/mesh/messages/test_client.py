from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.errors import ErrorCode, PeerError
from mesh.messages import client as wire
from mesh.messages.base import audio_raw, audio_text
from mesh.messages.client import decode_from_client, decode_from_server, encode
from tests.support.builders import message_checks as checks
from tests.support.builders.messages import FROM_CLIENT, FROM_SERVER, Sample

CASES = [pytest.param(decode_from_client, s, id=f"in-{s.type}") for s in FROM_CLIENT] + [
    pytest.param(decode_from_server, s, id=f"out-{s.type}") for s in FROM_SERVER
]
by_type = {sample.type: sample.message for sample in FROM_CLIENT}


def test_there_is_a_sample_of_every_type() -> None:
    assert {sample.type for sample in FROM_CLIENT} == wire.FROM_CLIENT.types
    assert {sample.type for sample in FROM_SERVER} == wire.FROM_SERVER.types


@pytest.mark.parametrize(("decode", "sample"), CASES)
def test_every_field_comes_back_under_its_name_and_in_its_place(decode: checks.Decode, sample: Sample) -> None:
    checks.check_round_trip(decode, sample)


@pytest.mark.parametrize(("decode", "sample"), CASES)
def test_a_missing_required_field_is_named(decode: checks.Decode, sample: Sample) -> None:
    checks.check_required(decode, sample)


@pytest.mark.parametrize(("decode", "sample"), CASES)
def test_optional_fields_may_be_absent_or_null_and_are_then_not_written(decode: checks.Decode, sample: Sample) -> None:
    checks.check_optional(decode, sample)


@pytest.mark.parametrize(("decode", "sample"), CASES)
def test_unknown_fields_are_ignored(decode: checks.Decode, sample: Sample) -> None:
    checks.check_unknown_fields(decode, sample)


def session_init(**changes: Any) -> wire.SessionInit:
    message = decode_from_client(json.dumps({**by_type["session_init"], **changes}))
    assert isinstance(message, wire.SessionInit)
    return message


@pytest.mark.parametrize("mode", ["two_way_auto", "TWO_WAY_AUTO", "Two_Way_Auto"])
def test_the_case_of_an_enumerated_word_does_not_matter(mode: str) -> None:
    assert session_init(mode=mode).mode == "two_way_auto"


def test_the_case_of_the_type_does_not_matter() -> None:
    assert session_init(type="SESSION_INIT") == session_init()


def test_a_word_that_is_no_mode_is_refused_by_name() -> None:
    with pytest.raises(PeerError, match="mode"):
        session_init(mode="three_way")


def test_a_whole_number_may_come_as_a_float() -> None:
    assert session_init(partial_update_interval_ms=1000.0).partial_update_interval_ms == 1000


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({}, (True, True, True, False, False)),
        ({"use_tts": False}, (True, True, False, False, False)),
        ({"use_asr": None, "use_semantic": True}, (True, True, True, True, False)),
    ],
)
def test_a_partial_pipeline_is_completed_from_the_default_one(given: dict[str, Any], meant: tuple[bool, ...]) -> None:
    message = decode_from_client(json.dumps({**by_type["utterance"], "pipeline": given}))
    assert isinstance(message, wire.Utterance)
    pipeline = json.loads(encode(message))["pipeline"]
    assert tuple(pipeline.values()) == meant
    assert list(pipeline) == ["use_asr", "use_nmt", "use_tts", "use_semantic", "use_tone"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("utterance_index", -1),
        ("utterance_index", 2**60),
        ("utterance_index", 10**40),
        ("utterance_index", True),
        ("sample_rate", 0),
        ("sample_rate", 10**9),
        ("audio_format", "x" * 500),
        ("auto_langs", ["en"] * 1_000),
        ("session_id", "x" * 1_000),
        ("manual_cut", "yes"),
    ],
)
def test_what_is_out_of_bounds_is_refused_by_name(field: str, value: Any) -> None:
    text = json.dumps({**by_type["utterance"], field: value})
    assert field in checks.refused(decode_from_client, text).message


def test_an_unknown_type_is_named_and_cut() -> None:
    assert "'dance'" in checks.refused(decode_from_client, '{"type":"dance"}').message
    assert len(checks.refused(decode_from_client, json.dumps({"type": "d" * 9_000})).message) < 200


def test_a_message_of_the_other_direction_is_unknown() -> None:
    checks.refused(decode_from_client, '{"type":"session_close_ack","session_id":"s"}')


@pytest.mark.parametrize("text", checks.ABYSS, ids=range(len(checks.ABYSS)))
def test_what_is_no_message_gets_a_typed_error(text: str | bytes) -> None:
    checks.refused(decode_from_client, text)
    checks.refused(decode_from_server, text)


def test_an_abyss_inside_an_ignored_or_free_field_is_refused() -> None:
    deep = "[" * 50_000 + "]" * 50_000
    checks.refused(decode_from_client, '{"type":"session_close","session_id":"s","reason":"r","x":' + deep + "}")
    checks.refused(decode_from_client, '{"type":"webrtc_offer","room_code":"1","to":"s","sdp":' + deep + "}")


def test_the_error_message_keeps_the_original_shape() -> None:
    message = wire.error_message(ErrorCode.NO_AVAILABLE_NODE, "none free", {"offline": 3})
    written = json.loads(encode(message))
    assert list(written) == ["type", "code", "message", "details"]
    assert written["code"] == "NO_AVAILABLE_NODE"
    assert written["details"] == {"offline": 3, "number": 400, "hint": ErrorCode.NO_AVAILABLE_NODE.hint}


def test_a_peer_error_becomes_an_error_message() -> None:
    message = wire.error_of(PeerError(ErrorCode.INVALID_ID, "bad id", {"id": "{"}))
    assert (message.code, message.message, message.details["id"]) == ("INVALID_ID", "bad id", "{")


@pytest.mark.parametrize("audio", ["5", "{}", "true", '"caf\u00e9"'])
def test_audio_that_is_no_base64_text_is_refused(audio: str) -> None:
    text = json.dumps(by_type_out["translation_result"]).replace('"UklGRg=="', audio)
    assert "tts_audio" in checks.refused(decode_from_server, text).message


by_type_out = {sample.type: sample.message for sample in FROM_SERVER}


def test_audio_text_and_its_json_are_inverse() -> None:
    assert audio_text(audio_raw("UklGRg==")) == "UklGRg=="
    assert audio_text(audio_raw("")) == ""


@given(checks.anything)
@settings(max_examples=300, deadline=None)
def test_arbitrary_json_never_raises_anything_but_a_peer_error(tree: Any) -> None:
    text = json.dumps(tree)
    for decode in (decode_from_client, decode_from_server):
        checks.outcome(decode, text)


@given(st.binary(max_size=200) | st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_never_raise_anything_but_a_peer_error(text: bytes | str) -> None:
    checks.outcome(decode_from_client, text)


@given(checks.mutated(FROM_CLIENT))
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_mutated_message_is_taken_or_refused_cleanly(tree: dict[str, Any]) -> None:
    checks.outcome(decode_from_client, json.dumps(tree))


@given(checks.mutated(FROM_SERVER))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_mutated_answer_is_taken_or_refused_cleanly(tree: dict[str, Any]) -> None:
    checks.outcome(decode_from_server, json.dumps(tree))
