"""Sessions, audio lengths, questions and what clients are told."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.core import asks, results
from edge.core.audio import OPUS_PACKETS_MAX, duration_ms, from_base64, opus_packets
from edge.core.request import Attempt, Request
from edge.core.session import Limits, Session
from mesh.choosing import ModulesConfig
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Failed, Push, SessionClaim, SessionClaimed
from mesh.node_wire import decode_from_node, decode_job_result
from mesh.session_wire import FeatureFlags, PipelineConfig, SessionInit, Utterance, encode

INIT = SessionInit(client_version="1", platform="web", src_lang="zh", tgt_lang="EN", tenant_id="t1", dialect="north")


def session(**limits: int) -> Session:
    return Session("s-1", INIT, "trace", Limits(**{"waiting_max": 3, "remembered_max": 4, **limits}))


def utterance(index: int = 0, **fields: Any) -> Utterance:
    base: dict[str, Any] = {
        "session_id": "s-1", "utterance_index": index, "manual_cut": False, "src_lang": "zh", "tgt_lang": "en",
        "audio": "", "audio_format": "pcm16", "sample_rate": 16_000,
    }  # fmt: skip
    return Utterance(**{**base, **fields})


def dispatched(own: Session, message: Utterance) -> Any:
    return own.dispatch(message, edge="a", audio_ms=1_000, trace_id="t-1", deadline_ms=99)


# --- session --------------------------------------------------------------------------------------


def test_utterance_becomes_a_dispatch_with_the_sessions_defaults() -> None:
    frame, work = dispatched(session(), utterance(4, tgt_lang=" EN ", mode="two_way_auto", lang_a="zh", lang_b="EN"))
    assert frame.request_id == "s-1:4:en:t-1" and frame.attempt == 1 and frame.edge == "a"
    assert (frame.src_lang, frame.tgt_lang, frame.lang_a, frame.lang_b) == ("zh", "en", "zh", "en")
    assert frame.services == ["asr", "nmt", "tts"] and frame.tenant_id == "t1" and frame.deadline_ms == 99
    assert work.dialect == "north" and work.mode == "two_way_auto"
    assert work.enable_streaming_asr is True and work.partial_update_interval_ms == 1_000
    assert work.is_manual_cut is False


def test_pipeline_names_the_services() -> None:
    pipeline = PipelineConfig(use_tts=False, use_semantic=True, use_tone=True)
    frame, work = dispatched(session(), utterance(pipeline=pipeline))
    assert frame.services == ["asr", "nmt", "semantic", "tone"] and work.pipeline["use_tts"] is False


def test_repeated_index_is_not_new_but_another_target_is() -> None:
    own = session()
    assert own.is_new(utterance(0), 0)
    dispatched(own, utterance(0))
    assert not own.is_new(utterance(0), 1) and not own.is_new(utterance(0, tgt_lang="EN"), 1)
    assert own.is_new(utterance(0, tgt_lang="es"), 1)
    assert not own.is_new(utterance(0), 3), "a repeat is ignored even when the session is full"


def test_failed_utterance_may_be_sent_again_as_another_request() -> None:
    own = session()
    ids = [dispatched(own, utterance(0))[0].request_id]
    for _ in range(2):
        own.failed(ids[-1])
        assert own.is_new(utterance(0), 0)
        ids.append(dispatched(own, utterance(0))[0].request_id)
        assert not own.is_new(utterance(0), 1), "the second try is under way"
    assert len(set(ids)) == 3, "a dead job is bound to the first id"
    own.failed("s-1:7:en:t-1")
    assert len(own._seen) == 1


def test_other_features_are_another_job_and_the_same_ones_are_not() -> None:
    own, plain = session(remembered_max=9), FeatureFlags()
    emotion, both = FeatureFlags(emotion_detection=True), FeatureFlags(emotion_detection=True, persona_adaptation=True)
    first = dispatched(own, utterance(0))[0].request_id
    assert first == "s-1:0:en:t-1"
    assert not own.is_new(utterance(0, features=plain), 1), "all off is as none"
    ids = {first, *(dispatched(own, utterance(0, features=one))[0].request_id for one in (emotion, both))}
    assert len(ids) == 3, "one binding per job, whatever the trace"
    assert not own.is_new(utterance(0, features=emotion), 1)
    own.failed(first)
    assert own.is_new(utterance(0), 1) and not own.is_new(utterance(0, features=both), 1)


def test_features_need_services_and_models() -> None:
    init = msgspec.structs.replace(INIT, features=FeatureFlags(voice_style_detection=True))
    own = Session("s-1", init, "trace", Limits(3, 4), ModulesConfig().table)
    frame, work = dispatched(own, utterance(0))
    assert frame.services == ["asr", "nmt", "tts", "tone"] and frame.models == ["speaker-id-ecapa", "vc-model-v1"]
    assert work.features == {"voice_style_detection": True}
    assert frame.request_id == "s-1:0:en:t-1", "the session's own features need no mention"
    frame, _ = dispatched(own, utterance(1, features=FeatureFlags(persona_adaptation=True)))
    assert frame.models == ["persona-style-transformer"] and frame.request_id.startswith("s-1:1:en:t-1:")


def test_wishes_of_a_session_ride_with_every_utterance() -> None:
    init = msgspec.structs.replace(
        INIT, src_lang="auto", auto_langs=["ZH", "en"], region="eu", gpu_tier="a", tenant_id=None
    )
    own = Session("s-1", init, "trace", Limits(3, 4))
    frame, _ = dispatched(own, utterance(0, src_lang="auto"))
    assert (frame.auto_langs, frame.region, frame.gpu_tier, frame.public) == (["zh", "en"], "eu", "a", True)
    assert (frame.warm_node, frame.preferred_node) == ("", "")
    own.warm_node, own.preferred_node = "n-1", "n-2"
    frame, _ = dispatched(own, utterance(1, src_lang="auto", auto_langs=["ja"]))
    assert (frame.warm_node, frame.preferred_node, frame.auto_langs) == ("n-1", "n-2", ["ja"])
    assert not dispatched(session(), utterance(0))[0].public, "a tenant's job is not a public one"
    with pytest.raises(PeerError):
        dispatched(own, utterance(2, auto_langs=["{}"]))


def test_too_many_waiting_utterances_are_refused_and_may_be_tried_again() -> None:
    own = session()
    with pytest.raises(PeerError) as error:
        own.is_new(utterance(9), 3)
    assert error.value.code is ErrorCode.TOO_MANY_UTTERANCES
    assert own.is_new(utterance(9), 2)


def test_memory_of_indices_is_bounded() -> None:
    own = session()
    for index in range(6):
        dispatched(own, utterance(index))
    assert own.is_new(utterance(1), 0) and not own.is_new(utterance(2), 0)


@pytest.mark.parametrize("lang", ["", "e n", "{c01}", "x" * 36, "ü"])
def test_languages_that_cannot_be(lang: str) -> None:
    with pytest.raises(PeerError) as error:
        dispatched(session(), utterance(tgt_lang=lang))
    assert error.value.code is ErrorCode.INVALID_MESSAGE
    with pytest.raises(PeerError):
        Session("s", msgspec.structs.replace(INIT, src_lang=lang), "t", Limits(1, 1))


def test_only_the_own_open_session_is_accepted() -> None:
    own = session()
    own.own("s-1")
    with pytest.raises(PeerError) as error:
        own.own("s-2")
    assert error.value.code is ErrorCode.ID_MISMATCH
    own.closed = True
    with pytest.raises(PeerError) as error:
        own.own("s-1")
    assert error.value.code is ErrorCode.SESSION_CLOSED


def test_client_is_asked_to_slow_down_now_and_then() -> None:
    own = session()
    assert [own.may_slow_down(now) for now in (0, 100, 499, 500, 600)] == [True, False, False, True, False]


# --- audio ----------------------------------------------------------------------------------------


def test_durations() -> None:
    assert duration_ms(bytes(32_000), "pcm16", 16_000) == 1_000
    assert duration_ms(bytes(32_000), "PCM16", 8_000) == 2_000
    packets = b"".join(len(packet).to_bytes(2, "little") + packet for packet in (b"a" * 60, b"b" * 300, b"c"))
    assert duration_ms(packets, "opus", 16_000) == 60
    assert duration_ms(b"anything", "flac", 16_000) == 0 == duration_ms(b"ab", "pcm16", 0)


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=700), max_size=20), st.binary(max_size=40))
def test_opus_packets_are_counted_and_torn_ones_are_not(packets: list[bytes], torn: bytes) -> None:
    audio = b"".join(len(packet).to_bytes(2, "little") + packet for packet in packets)
    assert opus_packets(audio) == len(packets)
    assert opus_packets(audio + (len(torn) + 1).to_bytes(2, "little") + torn) == len(packets)


@settings(deadline=None)
@given(st.binary(max_size=2_000))
def test_opus_of_any_bytes_is_at_most_a_packet_per_three(noise: bytes) -> None:
    assert 0 <= opus_packets(noise) <= len(noise) // 3


def test_counting_of_opus_packets_is_bounded() -> None:
    assert opus_packets(b"\x01\x00x" * (OPUS_PACKETS_MAX + 5)) == OPUS_PACKETS_MAX
    assert opus_packets(bytes(2 * OPUS_PACKETS_MAX) + b"\x01\x00x") == 0, "empty packets are looked at too"


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_base64_round_trip(audio: bytes) -> None:
    assert from_base64(base64.b64encode(audio).decode()) == audio


@pytest.mark.parametrize("text", ["a", "ab", "!!!!", "YWJj\n YWJj", "ü", "=", "YQ==YQ=="])
def test_what_is_not_base64_is_a_fault(text: str) -> None:
    with pytest.raises(PeerError) as error:
        from_base64(text)
    assert error.value.code is ErrorCode.INVALID_AUDIO


# --- what clients are told ------------------------------------------------------------------------


def request() -> Request:
    frame, work = dispatched(session(), utterance(4))
    attempt = Attempt(1, 1_000, job_id="job-00-1")
    return Request(frame, msgspec.msgpack.encode(work), b"", 1_000, 9_000, attempt, placed_ms=1_040)


def result(**fields: Any) -> Any:
    base: dict[str, Any] = {
        "type": "job_result", "job_id": "job-00-1", "attempt_id": 1, "node_id": "n", "session_id": "forged",
        "utterance_index": 77, "success": True, "trace_id": "forged",
    }  # fmt: skip
    return decode_job_result(json.dumps({**base, **fields}))


PUSH = Push("job-00-1", 1, "n", "b", "r", "s-1", 4)


def told(**fields: Any) -> list[dict[str, Any]]:
    messages = results.for_result(request(), PUSH, result(**fields), 1_500, 50_000)
    return [json.loads(encode(message)) for message in messages]


def test_full_result() -> None:
    asr, nmt, translation = told(
        text_asr="hola", text_translated="hello", tts_audio="QUJD", processing_time_ms=300, node_completed_at_ms=49_990
    )
    assert (asr["event"], nmt["event"], asr["elapsed_ms"], asr["status"]) == ("ASR_FINAL", "NMT_DONE", 500, "ok")
    assert translation["session_id"] == "s-1" and translation["utterance_index"] == 4
    assert translation["trace_id"] == "t-1" and translation["tts_format"] == "pcm16"
    assert translation["service_timings"] == {"total_ms": 300}
    assert translation["network_timings"] == {"scheduler_to_node_ms": 40, "node_to_scheduler_ms": 10}
    assert translation["scheduler_sent_at_ms"] == 50_000


def test_nodes_with_a_wrong_clock_give_no_negative_times() -> None:
    assert told(text_asr="x", node_completed_at_ms=60_000)[-1]["network_timings"]["node_to_scheduler_ms"] == 0


def test_text_without_sound_and_sound_without_text_are_results() -> None:
    assert [message["type"] for message in told(text_asr="x")] == ["ui_event", "translation_result"]
    assert [message["type"] for message in told(tts_audio="QUJD")] == ["translation_result"]


@pytest.mark.parametrize("fields", [{}, {"text_asr": "", "text_translated": "", "tts_audio": ""}, {"tts_audio": None}])
def test_silence_is_a_missing_result(fields: dict[str, Any]) -> None:
    (missing,) = told(**fields)
    assert missing == {
        "type": "missing_result", "session_id": "s-1", "utterance_index": 4, "reason": "silence_detected",
        "created_at_ms": 50_000, "trace_id": "t-1",
    }  # fmt: skip


def test_failures_of_the_node_and_of_the_mesh() -> None:
    event, error = told(success=False, error={"code": "NMT_TIMEOUT", "message": "slow", "details": [1]})
    assert (event["event"], event["error_code"], event["status"]) == ("ERROR", "NMT_TIMEOUT", "error")
    assert (error["type"], error["code"], error["message"]) == ("error", "NMT_TIMEOUT", "slow")
    assert error["details"]["details"] == [1]
    event, error = told(success=False, error={"code": "OWN_CODE", "message": "m"})
    assert "error_code" not in event and event["hint"] and error["code"] == "OWN_CODE"
    event, error = told(success=False)
    assert error["code"] == "PROCESSING_ERROR"
    messages = results.for_failure(request(), ErrorCode.JOB_TIMEOUT, "late", {"reason": "x"}, 1_500)
    event, error = [json.loads(encode(message)) for message in messages]
    assert event["error_code"] == error["code"] == "JOB_TIMEOUT"
    assert error["details"]["utterance_index"] == 4 and error["details"]["reason"] == "x"


def test_partial_text_carries_the_job_id() -> None:
    node_says = {
        "type": "asr_partial", "job_id": "job-00-1", "node_id": "n", "session_id": "forged", "utterance_index": 77,
        "text": "ho", "is_final": False, "trace_id": "forged",
    }  # fmt: skip
    partial: Any = decode_from_node(json.dumps(node_says))
    message, event = [json.loads(encode(message)) for message in results.for_partial(request(), partial, 1_200)]
    assert message["job_id"] == "job-00-1" and message["session_id"] == "s-1" and message["utterance_index"] == 4
    assert event["event"] == "ASR_PARTIAL" and event["elapsed_ms"] == 200


# --- questions ------------------------------------------------------------------------------------


class Asked:
    """One question, its answers, and whether its asker is still there."""

    def __init__(self) -> None:
        self.core = asks.Asks(asks.Limits(400, 1_500, 5_000))
        self.answers: list[Any] = []
        self.wanted = True
        self.ask = self.core.ask(
            SessionClaim("1", "s", "a", 0, "", "", ""), 3, self.answers.append, 0, lambda: self.wanted
        )

    def tick(self, now_ms: int) -> int:
        again = self.core.tick(now_ms)
        self.core.check()
        return len(again)


def test_answered_question_is_closed() -> None:
    asked = Asked()
    asked.core.on_answer(SessionClaimed("1", "s", 5))
    assert asked.answers == [SessionClaimed("1", "s", 5)] and asked.core.next_due_ms() is None
    asked.core.on_answer(SessionClaimed("1", "s", 5))
    assert len(asked.answers) == 1


def test_unanswered_question_is_repeated_then_given_up() -> None:
    asked = Asked()
    assert [asked.tick(now) for now in (400, 1_200, 2_700, 4_200)] == [1, 1, 1, 1]
    assert asked.tick(5_000) == 0
    assert asked.answers == [None] and asked.core.next_due_ms() is None


def test_every_answer_to_a_repeated_question_is_passed_on() -> None:
    asked = Asked()
    asked.tick(400)
    for epoch in (5, 6):
        asked.core.on_answer(SessionClaimed("1", "s", epoch))
    asked.core.on_answer(Failed("1", "X", "after success it means nothing"))
    assert [answer.epoch for answer in asked.answers] == [5, 6]
    assert asked.tick(1_200) == 0 and asked.tick(5_000) == 0 and len(asked.answers) == 2


def test_question_given_back_is_asked_again_soon_but_not_for_an_asker_that_left() -> None:
    asked = Asked()
    asked.core.on_lost("1", 50, 10)
    assert asked.core.next_due_ms() == 60 and asked.tick(60) == 1
    asked.wanted = False
    assert asked.tick(5_000 - 1) == 0
    asked.core.on_answer(SessionClaimed("1", "s", 5))
    assert len(asked.answers) == 1


@pytest.mark.parametrize("details", [{"service_id": "x", "utterance_index": 99}, ["odd"], None])
def test_failure_of_a_node_names_its_utterance_whatever_the_node_says(details: Any) -> None:
    event, error = told(success=False, error={"code": "NMT_TIMEOUT", "message": "slow", "details": details})
    assert (event["event"], event["utterance_index"], error["code"]) == ("ERROR", 4, "NMT_TIMEOUT")
    said = {"service_id": "x"} if isinstance(details, dict) else {"details": ["odd"]} if details else {}
    about = {"session_id": "s-1", "utterance_index": 4, "trace_id": "t-1", "request_id": "s-1:4:en:t-1"}
    assert error["details"] == {**said, **about}
