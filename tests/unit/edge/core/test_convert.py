from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from edge.core import convert
from mesh import frames
from mesh.messages.client import NetworkTimings, SessionInit, Utterance, decode_from_client, decode_from_server
from mesh.messages.node import (
    JobError,
    JobResult,
    NodeAsrPartial,
    decode_from_node,
    decode_job_result,
    encode,
)
from tests.support.builders.messages import FROM_CLIENT, FROM_NODE, FROM_SCHEDULER

node_says = {sample.type: sample.message for sample in FROM_NODE}
client_says = {sample.type: sample.message for sample in FROM_CLIENT}
PUSH = frames.Push(
    job_id="job-03-ours",
    attempt=1,
    node_id="node-1",
    node_edge="edge:b:1",
    request_id="r",
    session_id="s-ours",
    utterance_index=9,
)
ASSIGN = frames.Assign(
    job_id="job-03-ab",
    attempt=1,
    node_id="node-1",
    node_epoch=1,
    request_id="r",
    session_id="s-1",
    utterance_index=7,
    session_edge="edge:a:1",
    deadline_ms=0,
    trace_id="t",
)


def result(**changes: Any) -> JobResult:
    return decode_job_result(json.dumps({**node_says["job_result"], **changes}))


def utterance(**changes: Any) -> Utterance:
    message = decode_from_client(json.dumps({**client_says["utterance"], **changes}))
    assert isinstance(message, Utterance)
    return message


def session(**changes: Any) -> SessionInit:
    message = decode_from_client(json.dumps({**client_says["session_init"], **changes}))
    assert isinstance(message, SessionInit)
    return message


def test_result_becomes_a_translation_with_the_ids_of_the_push() -> None:
    timings = NetworkTimings(node_to_scheduler_ms=3)
    message = convert.translation_result_from(
        result(), PUSH, trace_id="trace", network_timings=timings, scheduler_sent_at_ms=5, group_id="ours", part_index=2
    )
    written = json.loads(encode(message))
    node = node_says["job_result"]
    kept = (
        "text_asr text_translated tts_audio tts_format extra asr_quality_level reason_codes quality_score rerun_count"
    )
    assert {name: written[name] for name in kept.split()} == {name: node[name] for name in kept.split()}
    assert (written["session_id"], written["utterance_index"], written["job_id"]) == ("s-ours", 9, "job-03-ours")
    assert (written["trace_id"], written["group_id"], written["part_index"]) == ("trace", "ours", 2)
    assert written["service_timings"] == node["extra"]["service_timings"]
    assert written["network_timings"] == {"node_to_scheduler_ms": 3}
    decode_from_server(encode(message))


def test_tts_audio_is_not_copied() -> None:
    heard = result(tts_audio="A" * 100_000)
    assert convert.translation_result_from(heard, PUSH, trace_id="t").tts_audio is heard.tts_audio


def test_bare_result_gets_the_defaults_of_the_original() -> None:
    gone = ("text_asr", "text_translated", "tts_audio", "tts_format", "extra", "group_id", "part_index")
    written = json.loads(encode(convert.translation_result_from(result(**dict.fromkeys(gone)), PUSH, trace_id="t")))
    assert (written["text_asr"], written["text_translated"], written["tts_audio"]) == ("", "", "")
    assert written["tts_format"] == "pcm16"
    assert written["service_timings"] == {"total_ms": 240}
    assert not {"extra", "group_id", "part_index", "network_timings"} & set(written)


@pytest.mark.parametrize(
    ("changes", "silent"),
    [
        ({"text_asr": "", "text_translated": None, "tts_audio": ""}, True),
        ({"text_asr": "", "text_translated": None, "tts_audio": None}, True),
        ({"text_asr": "", "text_translated": "", "tts_audio": "AA"}, False),
        ({"text_asr": "hm", "text_translated": "", "tts_audio": ""}, False),
        ({"text_asr": "", "text_translated": "", "tts_audio": "", "success": False}, False),
    ],
)
def test_silence_is_success_without_text_or_speech(changes: dict[str, Any], silent: bool) -> None:
    assert convert.is_silence(result(**changes)) is silent


def test_partial_text_gets_the_ids_of_the_request() -> None:
    partial = decode_from_node(json.dumps(node_says["asr_partial"]))
    assert isinstance(partial, NodeAsrPartial)
    message = convert.asr_partial_from(partial, session_id="s-ours", utterance_index=9, trace_id="t")
    assert (message.session_id, message.utterance_index, message.job_id, message.text) == (
        "s-ours",
        9,
        partial.job_id,
        "hel",
    )


def test_node_error_is_forwarded_unchanged() -> None:
    error = convert.error_from(JobError(code="MODEL_NOT_AVAILABLE", message="gone", details={"service_id": "x"}))
    assert (error.code, error.message, error.details) == ("MODEL_NOT_AVAILABLE", "gone", {"service_id": "x"})
    assert convert.error_from(None).code == "PROCESSING_ERROR"


def test_utterance_becomes_a_job_assign_with_all_fields() -> None:
    audio = bytes(range(256))
    work = convert.work_from(utterance(manual_cut=True), session(), "t")
    assert (work.tgt_lang, work.group_id, work.part_index, work.context_text) == (
        utterance().tgt_lang,
        None,
        None,
        None,
    )
    grouped = convert.work_from(utterance(manual_cut=True), session(), "t", target="fr", group=("g", 0, ""))
    assert (grouped.tgt_lang, grouped.group_id, grouped.part_index, grouped.context_text) == ("fr", "g", 0, None)
    written = json.loads(encode(convert.job_assign_from(ASSIGN, frames.decode_work(frames.encode(work)), audio)))
    sample = next(s.message for s in FROM_SCHEDULER if s.type == "job_assign")
    later = {"group_id", "part_index", "context_text", "padding_ms", "turn_id"}
    later |= {"is_pause_triggered", "is_timeout_triggered", "is_max_duration_triggered"}
    assert list(written) == [name for name in sample if name not in later]
    assert written == {
        **{name: value for name, value in sample.items() if name not in later},
        "audio": b64encode(audio).decode(),
        "audio_format": "pcm16",
    }


def test_missing_fields_of_an_utterance_come_from_its_session() -> None:
    gone = ("dialect", "features", "mode", "lang_a", "lang_b", "auto_langs", "pipeline", "enable_streaming_asr")
    work = convert.work_from(utterance(**dict.fromkeys(gone)), session(enable_streaming_asr=False), "t")
    assert (work.dialect, work.mode, work.lang_a, work.lang_b) == ("us", "two_way_auto", "en", "es")
    assert work.enable_streaming_asr is False
    assert work.features is not None and work.features["emotion_detection"] is True
    assert work.pipeline == {
        "use_asr": True,
        "use_nmt": True,
        "use_tts": True,
        "use_semantic": False,
        "use_tone": False,
    }
