from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.messages.client import decode_from_client, decode_from_server, encode
from mesh.messages.utterances import Utterance
from tests.support.builders import message_checks as checks
from tests.support.builders.messages import FROM_CLIENT, FROM_SERVER

by_type = {sample.type: sample.message for sample in FROM_CLIENT}
by_type_out = {sample.type: sample.message for sample in FROM_SERVER}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({}, (True, True, True, False, False)),
        ({"use_tts": False}, (True, True, False, False, False)),
        ({"use_asr": None, "use_semantic": True}, (True, True, True, True, False)),
    ],
)
def test_partial_pipeline_is_completed_from_the_default(given: dict[str, Any], meant: tuple[bool, ...]) -> None:
    message = decode_from_client(json.dumps({**by_type["utterance"], "pipeline": given}))
    assert isinstance(message, Utterance)
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
def test_value_out_of_bounds_is_refused_by_name(field: str, value: Any) -> None:
    text = json.dumps({**by_type["utterance"], field: value})
    assert field in checks.refused(decode_from_client, text).message


@pytest.mark.parametrize("audio", ["5", "{}", "true", '"caf\u00e9"'])
def test_result_refuses_audio_that_is_no_base64_text(audio: str) -> None:
    text = json.dumps(by_type_out["translation_result"]).replace('"UklGRg=="', audio)
    assert "tts_audio" in checks.refused(decode_from_server, text).message
