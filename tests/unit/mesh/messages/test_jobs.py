from __future__ import annotations

import json

import pytest

from mesh.messages.audio import audio_text
from mesh.messages.jobs import JobResult
from mesh.messages.node import decode_from_node, decode_from_scheduler, decode_job_result, encode
from tests.support.builders import message_checks as checks
from tests.support.builders.messages import FROM_NODE, FROM_SCHEDULER

by_type = {sample.type: sample.message for sample in FROM_NODE}


def test_assignment_omits_false_flags() -> None:
    sample = next(s.message for s in FROM_SCHEDULER if s.type == "job_assign")
    flags = {name: False for name in sample if name.startswith("is_")}
    message = decode_from_scheduler(json.dumps({**sample, **flags}))
    assert not flags.keys() & json.loads(encode(message)).keys()


@pytest.mark.parametrize("audio", ["", "UklGRg==", "A" * 400_000])
def test_result_forwards_audio_undecoded(audio: str) -> None:
    text = json.dumps({**by_type["job_result"], "tts_audio": audio})
    result = decode_job_result(text)
    assert isinstance(result, JobResult)
    assert bytes(result.tts_audio) == json.dumps(audio).encode()
    assert audio_text(result.tts_audio) == audio
    assert json.loads(encode(result)) == json.loads(text)


@pytest.mark.parametrize("audio", [b"5", b"{}", b'"\xc3\xa9"'])
def test_result_refuses_audio_that_is_no_base64_text(audio: bytes) -> None:
    text = json.dumps(by_type["job_result"]).encode().replace(b'"UklGRg=="', audio)
    assert "tts_audio" in checks.refused(decode_from_node, text).message


def test_result_refuses_audio_that_is_no_utf8() -> None:
    checks.refused(decode_from_node, json.dumps(by_type["job_result"]).encode().replace(b"UklGRg==", b"\xff\xfe"))


def test_decode_job_result_refuses_other_messages() -> None:
    checks.refused(decode_job_result, json.dumps(by_type["job_ack"]))
