"""Messages that a node builds from its profile and its jobs."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from linguamesh.errors import JobFailed
from linguamesh.node.job import Gpu, Result, Usage
from linguamesh.node.messages import ERROR_TEXT_MAX, Profile, job_assign_from, job_event, job_failure, job_result
from mesh.errors import ErrorCode, PeerError
from mesh.messages import binary
from mesh.messages import node as wire
from mesh.messages.audio import NOT_SENT
from mesh.messages.base import encode_utf8
from tests.unit.linguamesh.node.test_job import assignment

PROFILE = Profile(
    asr=["en"],
    semantic=["es"],
    tts=[],
    services=["asr", "nmt"],
    gpus=[Gpu("A", 8)],
    max_jobs=3,
    accept_public_jobs=True,
    models=["m-1"],
    pairs=[("en", "es")],
    region="eu",
    gpu_tier=None,
    tenant_id=None,
    binary_messages=True,
)


def test_registration_has_the_capabilities_of_the_profile() -> None:
    message = PROFILE.register("n-1")
    assert (message.node_id, message.max_concurrent_jobs, message.region) == ("n-1", 3, "eu")
    assert (message.result_ack, message.binary_messages) == (True, True)
    assert replace(PROFILE, binary_messages=False).register("n-1").binary_messages is None
    assert message.hardware.cpu_cores >= 1 and message.hardware.memory_gb >= 1
    pairs = message.language_capabilities.supported_language_pairs if message.language_capabilities else None
    assert pairs == [wire.LanguagePair(src="en", tgt="es")]


def test_heartbeat_names_the_running_jobs() -> None:
    message = PROFILE.heartbeat("n-1", Usage(cpu_percent=12.5), [("job-1", 2)])
    assert (message.resource_usage.cpu_percent, message.resource_usage.running_jobs) == (12.5, 1)
    assert message.jobs == [wire.JobRef(job_id="job-1", attempt_id=2)]


def test_binary_assignment_has_its_audio_copied_out_of_the_frame() -> None:
    head = encode_utf8(msgspec.structs.replace(assignment(""), audio=NOT_SENT))
    frame = bytearray(b"".join(binary.encode_parts(wire.JobAssign, head, b"speech")))
    assign = job_assign_from(memoryview(frame))
    frame[:] = bytes(len(frame))
    assert (assign.job_id, assign.audio, type(assign.audio)) == ("job-1", b"speech", bytes)


MALFORMED = {
    "empty": b"",
    "head beyond its end": b"\x21\xff\x00\x00\x00{}",
    "head is no JSON": b"\x21\x01\x00\x00\x00{",
    "head lacks fields": b"\x21\x02\x00\x00\x00{}",
    "message of another direction": b"".join(
        binary.encode_parts(wire.JobResult, encode_utf8(job_failure(assignment(""), "n-1", JobFailed("X", ""), 1)), b"")
    ),
    "audio in the head": b"".join(binary.encode_parts(wire.JobAssign, encode_utf8(assignment("QUJD")), b"")),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed_binary_assignment_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        job_assign_from(data)
    assert caught.value.code is ErrorCode.INVALID_MESSAGE


@pytest.mark.parametrize("kind", [wire.JobAck, wire.JobStarted])
def test_job_event_has_the_ids_of_its_assignment(kind: type[wire.JobAck]) -> None:
    message = job_event(kind, assignment(""), "n-1")
    assert type(message) is kind
    assert (message.job_id, message.attempt_id, message.node_id, message.trace_id) == ("job-1", 2, "n-1", "t-1")


def test_result_has_the_timings_of_the_handler_and_the_total() -> None:
    message = job_result(assignment(""), "n-1", Result("a", "b", b"\1\0", timings={"asr_ms": 3}), 40)
    assert message.extra is not None and message.extra.service_timings is not None
    assert (message.extra.service_timings.asr_ms, message.extra.service_timings.total_ms) == (3, 40)
    assert message.tts_audio is NOT_SENT, "it is sent apart"


def test_result_with_a_field_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        job_result(assignment(""), "n-1", Result(timings={"asr_ms": "soon"}), 40)  # type: ignore[dict-item]


def test_text_of_a_failure_is_bounded() -> None:
    message = job_failure(assignment(""), "n-1", JobFailed("X", "x" * 2 * ERROR_TEXT_MAX), 40)
    assert message.error is not None and len(message.error.message) == ERROR_TEXT_MAX
