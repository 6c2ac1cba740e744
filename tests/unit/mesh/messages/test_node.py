from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.errors import PeerError
from mesh.messages import node as wire
from mesh.messages.base import audio_text
from mesh.messages.node import decode_from_node, decode_from_scheduler, decode_job_result, encode
from tests.support.builders import message_checks as checks
from tests.support.builders.messages import FROM_NODE, FROM_SCHEDULER, Sample

CASES = [pytest.param(decode_from_node, s, id=f"in-{s.type}") for s in FROM_NODE] + [
    pytest.param(decode_from_scheduler, s, id=f"out-{s.type}") for s in FROM_SCHEDULER
]
by_type = {sample.type: sample.message for sample in FROM_NODE}


def test_there_is_a_sample_of_every_type() -> None:
    assert {sample.type for sample in FROM_NODE} == wire.FROM_NODE.types
    assert {sample.type for sample in FROM_SCHEDULER} == wire.FROM_SCHEDULER.types


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


def register(**changes: Any) -> wire.NodeRegisterMessage:
    message = decode_from_node(json.dumps({**by_type["node_register"], **changes}))
    assert isinstance(message, wire.NodeRegisterMessage)
    return message


def heartbeat(**changes: Any) -> wire.NodeHeartbeatMessage:
    message = decode_from_node(json.dumps({**by_type["node_heartbeat"], **changes}))
    assert isinstance(message, wire.NodeHeartbeatMessage)
    return message


def test_unknown_service_types_are_kept_in_lower_case() -> None:
    kinds = ["asr", "ASR", "Phonetic", "punctuation", "teleport"]
    message = register(
        capability_by_type=[{"type": kind, "ready": True} for kind in kinds],
        installed_services=[{"service_id": "x", "type": kind, "device": "TPU", "status": "Odd"} for kind in kinds],
    )
    lower = [kind.lower() for kind in kinds]
    assert [capability.type for capability in message.capability_by_type or []] == lower
    assert [service.type for service in message.installed_services or []] == lower
    assert {(s.device, s.status) for s in message.installed_services or []} == {("tpu", "odd")}


def test_memory_may_be_a_float_and_whole_memory_stays_whole() -> None:
    hardware = {"cpu_cores": 8.0, "memory_gb": 31.8, "gpus": [{"name": "x", "memory_gb": 24}]}
    message = register(hardware=hardware)
    assert message.hardware.cpu_cores == 8
    assert json.loads(encode(message))["hardware"] == hardware
    assert '"memory_gb":24}' in encode(message)


@pytest.mark.parametrize("memory_gb", [-1, -0.5, 10**9, "32", None])
def test_senseless_memory_is_refused(memory_gb: Any) -> None:
    with pytest.raises(PeerError, match="memory_gb"):
        register(hardware={"cpu_cores": 8, "memory_gb": memory_gb})


def test_the_earliest_nodes_services_and_state_can_be_read() -> None:
    message = heartbeat(
        installed_services=[{"service_id": "m2m", "version": "1", "platform": "linux"}],
        capability_by_type=None,
        capability_state={"m2m": "ready"},
    )
    assert message.installed_services == [wire.InstalledService(service_id="m2m", version="1")]
    assert message.capability_by_type is None


def test_a_heartbeat_may_say_little_of_its_load() -> None:
    usage = heartbeat(resource_usage={"cpu_percent": None, "gpu_percent": None}).resource_usage
    assert (usage.cpu_percent, usage.gpu_percent, usage.mem_percent, usage.running_jobs) == (0, None, 0, 0)


def test_the_smallest_heartbeat_still_writes_what_the_original_requires() -> None:
    usage = wire.ResourceUsage()
    assert json.loads(encode(wire.NodeHeartbeatMessage(node_id="n", timestamp=1, resource_usage=usage))) == {
        "type": "node_heartbeat",
        "node_id": "n",
        "timestamp": 1,
        "resource_usage": {"cpu_percent": 0.0, "mem_percent": 0.0, "running_jobs": 0},
    }


def test_false_flags_of_a_job_are_not_written() -> None:
    sample = next(s.message for s in FROM_SCHEDULER if s.type == "job_assign")
    flags = {name: False for name in sample if name.startswith("is_")}
    message = decode_from_scheduler(json.dumps({**sample, **flags}))
    assert not flags.keys() & json.loads(encode(message)).keys()


def test_node_status_writes_a_reason_that_is_null() -> None:
    message = wire.NodeStatus(node_id="n", status="ready", reason=None, timestamp=5)
    assert '"reason":null' in encode(message)


def test_a_node_register_ack_says_what_the_original_says() -> None:
    assert json.loads(encode(wire.NodeRegisterAck(node_id="n"))) == {
        "type": "node_register_ack",
        "node_id": "n",
        "message": "registered",
        "status": "registering",
    }


@pytest.mark.parametrize("audio", ["", "UklGRg==", "A" * 400_000])
def test_speech_passes_through_undecoded(audio: str) -> None:
    text = json.dumps({**by_type["job_result"], "tts_audio": audio})
    result = decode_job_result(text)
    assert bytes(result.tts_audio) == json.dumps(audio).encode()
    assert audio_text(result.tts_audio) == audio
    assert json.loads(encode(result)) == json.loads(text)


@pytest.mark.parametrize("audio", [b"5", b"{}", b'"\xc3\xa9"'])
def test_speech_that_is_no_base64_text_is_refused(audio: bytes) -> None:
    text = json.dumps(by_type["job_result"]).encode().replace(b'"UklGRg=="', audio)
    assert "tts_audio" in checks.refused(decode_from_node, text).message


def test_bytes_that_are_no_utf8_are_refused_even_in_speech() -> None:
    checks.refused(decode_from_node, json.dumps(by_type["job_result"]).encode().replace(b"UklGRg==", b"\xff\xfe"))


def test_a_job_result_is_the_only_thing_that_decode_job_result_reads() -> None:
    checks.refused(decode_job_result, json.dumps(by_type["job_ack"]))


@pytest.mark.parametrize("text", checks.ABYSS, ids=range(len(checks.ABYSS)))
def test_what_is_no_message_gets_a_typed_error(text: str | bytes) -> None:
    checks.refused(decode_from_node, text)
    checks.refused(decode_from_scheduler, text)


@given(checks.anything)
@settings(max_examples=300, deadline=None)
def test_arbitrary_json_never_raises_anything_but_a_peer_error(tree: Any) -> None:
    for decode in (decode_from_node, decode_from_scheduler):
        checks.outcome(decode, json.dumps(tree))


@given(st.sampled_from(sorted(by_type)), st.dictionaries(st.text(max_size=5), checks.anything, max_size=3))
@settings(max_examples=200, deadline=None)
def test_a_known_type_with_arbitrary_fields_is_handled(kind: str, fields: dict[str, Any]) -> None:
    checks.outcome(decode_from_node, json.dumps({**fields, "type": kind}))


@given(checks.mutated(FROM_NODE))
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_mutated_message_is_taken_or_refused_cleanly(tree: dict[str, Any]) -> None:
    checks.outcome(decode_from_node, json.dumps(tree))


@given(checks.mutated(FROM_SCHEDULER))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_mutated_order_is_taken_or_refused_cleanly(tree: dict[str, Any]) -> None:
    checks.outcome(decode_from_scheduler, json.dumps(tree))
