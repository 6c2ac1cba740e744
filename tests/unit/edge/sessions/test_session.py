"""Sessions, audio lengths, questions and what clients are told."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.audio.core.formats import OPUS_PACKETS_MAX, audio_of, duration_ms, opus_packets
from edge.audio.core.segment import FinalizeReason, Segment
from edge.link.core import rpc
from edge.requests.core.request import Attempt, Request
from edge.sessions.core.results import client_messages
from edge.sessions.core.session import FinalizedUtterance, Session, language_of
from edge.sessions.core.utterances.groups import GroupPosition
from mesh.config.scheduler import ModulesConfig
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Failed, Push, SessionClaim, SessionClaimed
from mesh.messages.client import FeatureFlags, PipelineConfig, SessionInit, Utterance, encode
from mesh.messages.node import decode_from_node, decode_job_result

INIT = SessionInit(client_version="1", platform="web", src_lang="zh", tgt_lang="EN", tenant_id="t1", dialect="north")


def session(seen_max: int = 4) -> Session:
    return Session("s-1", INIT, "trace", seen_max)


def utterance(index: int = 0, **fields: Any) -> Utterance:
    base: dict[str, Any] = {
        "session_id": "s-1", "utterance_index": index, "manual_cut": False, "src_lang": "zh", "tgt_lang": "en",
        "audio": "", "audio_format": "pcm16", "sample_rate": 16_000,
    }  # fmt: skip
    return Utterance(**{**base, **fields})


def dispatched(own: Session, message: Utterance) -> Any:
    own.remember(message)
    spoken = FinalizedUtterance(message, bytes(32_000), 1_000, "t-1")
    return own.dispatch(spoken, message.tgt_lang, None, edge="a", deadline_ms=99)


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


def test_needs_of_one_utterance_are_not_those_of_the_next() -> None:
    own = session(seen_max=9)
    other = {"pipeline": PipelineConfig(use_tts=False)}
    services = [dispatched(own, utterance(index, **fields))[0].services for index, fields in enumerate([{}, other] * 2)]
    assert services == [["asr", "nmt", "tts"], ["asr", "nmt"]] * 2


def test_repeated_index_is_not_new_but_another_target_is() -> None:
    own = session()
    assert own.key_of(utterance(0)) not in own.seen
    dispatched(own, utterance(0))
    assert own.key_of(utterance(0)) in own.seen and own.key_of(utterance(0, tgt_lang="EN")) in own.seen
    assert own.key_of(utterance(0, tgt_lang="es")) not in own.seen


def test_other_features_are_another_job_and_the_same_ones_are_not() -> None:
    own, plain = session(seen_max=9), FeatureFlags()
    emotion, both = FeatureFlags(emotion_detection=True), FeatureFlags(emotion_detection=True, persona_adaptation=True)
    first = dispatched(own, utterance(0))[0].request_id
    assert first == "s-1:0:en:t-1"
    assert own.key_of(utterance(0, features=plain)) in own.seen, "all off is as none"
    ids = {first, *(dispatched(own, utterance(0, features=one))[0].request_id for one in (emotion, both))}
    assert len(ids) == 3, "one binding per job, whatever the trace"
    assert own.key_of(utterance(0, features=emotion)) in own.seen
    assert own.key_of(utterance(1)) not in own.seen and own.key_of(utterance(0, features=both)) in own.seen


def test_features_need_services_and_models() -> None:
    init = msgspec.structs.replace(INIT, features=FeatureFlags(voice_style_detection=True))
    own = Session("s-1", init, "trace", 4, ModulesConfig().table)
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
    own = Session("s-1", init, "trace", 4)
    frame, _ = dispatched(own, utterance(0, src_lang="auto"))
    assert (frame.auto_langs, frame.region, frame.gpu_tier, frame.public) == (["zh", "en"], "eu", "a", True)
    assert (frame.warm_node, frame.preferred_node) == ("", "")
    own.warm_node, own.preferred_node = "n-1", "n-2"
    frame, _ = dispatched(own, utterance(1, src_lang="auto", auto_langs=["ja"]))
    assert (frame.warm_node, frame.preferred_node, frame.auto_langs) == ("n-1", "n-2", ["ja"])
    assert not dispatched(session(), utterance(0))[0].public, "a tenant's job is not a public one"
    with pytest.raises(PeerError):
        dispatched(own, utterance(2, auto_langs=["{}"]))


def test_memory_of_indices_is_bounded() -> None:
    own = session()
    for index in range(6):
        dispatched(own, utterance(index))
    assert own.key_of(utterance(1)) not in own.seen and own.key_of(utterance(2)) in own.seen


@pytest.mark.parametrize("lang", ["", "e n", "{c01}", "x" * 36, "ü"])
def test_languages_that_cannot_be(lang: str) -> None:
    with pytest.raises(PeerError) as error:
        dispatched(session(), utterance(tgt_lang=lang))
    assert error.value.code is ErrorCode.INVALID_MESSAGE
    with pytest.raises(PeerError):
        Session("s", msgspec.structs.replace(INIT, src_lang=lang), "t", 1)


def test_language_tags_are_compared_trimmed_and_in_lower_case() -> None:
    assert language_of(" EN-us ", "tgt_lang") == language_of("en-us", "tgt_lang") == "en-us"
    for _ in range(2):
        with pytest.raises(PeerError) as error:
            language_of("e n", "tgt_lang")
        assert error.value.code is ErrorCode.INVALID_MESSAGE and "`tgt_lang`" in error.value.message


def test_client_is_asked_to_slow_down_now_and_then() -> None:
    own = session()
    assert [own.may_slow_down(now) for now in (0, 100, 499, 500, 600)] == [True, False, False, True, False]


# --- streams ----------------------------------------------------------------------------------------


def cut(index: int = 3, **fields: Any) -> Segment:
    base: dict[str, Any] = {
        "index": index, "audio": b"ab", "audio_ms": 700, "reason": FinalizeReason.PAUSE, "first_seq": 10,
        "last_seq": 19,
        "turn_id": "turn_s-1_3", "padding_ms": 220, "first_client_ms": None, "began_ms": 400,
    }  # fmt: skip
    return Segment(**{**base, **fields})


def test_streamed_utterance_is_named_by_its_session_and_its_chunks_alone() -> None:
    one, other = session(), session()
    frames = [
        own.dispatch(own.streamed(cut(), wall_ms, now_ms), "es", None, edge=edge, deadline_ms=9)[0]
        for own, edge, wall_ms, now_ms in ((one, "a", 1_000, 500), (other, "b", 9_000, 7_500))
    ]
    assert {frame.request_id for frame in frames} == {"s-1:3:es:trace:10-19"}, "any edge names it alike"
    recut = one.dispatch(one.streamed(cut(last_seq=20), 0, 500), "es", None, edge="a", deadline_ms=9)[0]
    assert recut.request_id != frames[0].request_id, "other audio is another request"
    assert one.seqs_of(frames[0].request_id, 3, "es") == (10, 19)
    for index, target, request_id in ((4, "es", "s-1:3:es:trace:10-19"), (3, "es", "s-1:3:es:t-1"), (3, "es", "")):
        assert one.seqs_of(request_id, index, target) is None


def test_node_is_told_how_a_streamed_utterance_was_cut_and_what_was_said_before() -> None:
    own = session()
    spoken = own.streamed(cut(reason=FinalizeReason.MAX_DURATION), 1_000, 500)
    frame, work = own.dispatch(spoken, "es", GroupPosition("g", 2, "User: hi\n"), edge="a", deadline_ms=9)
    assert frame.audio_ms == 700 and (work.padding_ms, work.turn_id) == (220, "turn_s-1_3")
    assert (work.is_manual_cut, work.is_timeout_triggered, work.is_max_duration_triggered) == (False, False, True)
    assert (work.group_id, work.part_index, work.context_text) == ("g", 2, "User: hi\n")
    assert (work.audio_format, work.sample_rate) == ("opus", 16_000)
    _, work = own.dispatch(
        own.streamed(cut(reason=FinalizeReason.MANUAL), 0, 500),
        "es",
        GroupPosition("g", 0, ""),
        edge="a",
        deadline_ms=9,
    )
    assert work.is_manual_cut and work.context_text is None


@pytest.mark.parametrize(
    ("client_ms", "way"),
    [
        (None, None),
        (1_767_225_600_000, 40),
        (1_767_225_600_000 & 0xFFFF_FFFF, 40),
        (1_767_225_600_041, None),
        (1_767_225_600_000 - 4_000_000, None),
    ],
    ids=["not said", "whole", "lower 32 bits", "a clock that is ahead", "a clock that is far behind"],
)
def test_way_in_is_told_for_each_utterance_as_far_as_clocks_allow(client_ms: int | None, way: int | None) -> None:
    spoken = session().streamed(cut(first_client_ms=client_ms, began_ms=400), 1_767_225_600_140_999, 500)
    assert spoken.uplink_ms == way


def test_defect_07_the_way_in_is_that_of_each_utterances_own_first_chunk() -> None:
    own, wall_ms = session(), 1_767_225_600_000
    ways = []
    for number in range(3):
        began_ms = number * 5_000
        one = cut(index=number, began_ms=began_ms, first_client_ms=wall_ms + began_ms - 30)
        ways.append(own.streamed(one, (wall_ms + began_ms + 2_000) * 1_000, began_ms + 2_000).uplink_ms)
    assert ways == [30, 30, 30], "it does not grow with the session"


@pytest.mark.parametrize(
    ("offered", "rate", "agreed"),
    [
        (None, None, ("opus", 16_000)),
        (["pcm16"], 48_000, ("pcm16", 48_000)),
        (["flac", "PCM16 ", "opus"], None, ("pcm16", 16_000)),
    ],
)
def test_codec_is_the_first_offered_that_is_known(offered: Any, rate: Any, agreed: tuple[str, int]) -> None:
    init = msgspec.structs.replace(INIT, audio_formats=offered, sample_rate=rate)
    own = Session("s-1", init, "trace", 4)
    assert (own.audio_format, own.sample_rate) == agreed


def test_codec_that_nobody_knows_is_refused() -> None:
    with pytest.raises(PeerError) as error:
        Session("s-1", msgspec.structs.replace(INIT, audio_formats=["mp3"]), "trace", 4)
    assert error.value.code is ErrorCode.UNSUPPORTED_FEATURE and "pcm16" in error.value.message


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
    assert audio_of(base64.b64encode(audio).decode()) == audio


@pytest.mark.parametrize("text", ["a", "ab", "!!!!", "YWJj\n YWJj", "ü", "=", "YQ==YQ=="])
def test_what_is_not_base64_is_a_fault(text: str) -> None:
    with pytest.raises(PeerError) as error:
        audio_of(text)
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
    messages = client_messages.for_result(request(), PUSH, result(**fields), 1_500, 50_000)
    return [json.loads(encode(message)) for message in messages]


def failure(error: dict[str, Any] | None) -> list[dict[str, Any]]:
    messages = client_messages.for_node_failure(request(), PUSH, result(success=False, error=error), 1_500)
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


def test_failures_of_the_node_and_of_the_mesh() -> None:
    event, error = failure({"code": "NMT_TIMEOUT", "message": "slow", "details": [1]})
    assert (event["event"], event["error_code"], event["status"]) == ("ERROR", "NMT_TIMEOUT", "error")
    assert (error["type"], error["code"], error["message"]) == ("error", "NMT_TIMEOUT", "slow")
    assert error["details"]["details"] == [1]
    event, error = failure({"code": "OWN_CODE", "message": "m"})
    assert "error_code" not in event and event["hint"] and error["code"] == "OWN_CODE"
    event, error = failure(None)
    assert error["code"] == "PROCESSING_ERROR"
    messages = client_messages.for_failure(request(), ErrorCode.JOB_TIMEOUT, "late", {"reason": "x"}, 1_500)
    event, error = [json.loads(encode(message)) for message in messages]
    assert event["error_code"] == error["code"] == "JOB_TIMEOUT"
    assert error["details"]["utterance_index"] == 4 and error["details"]["reason"] == "x"


def test_partial_text_carries_the_job_id() -> None:
    node_says = {
        "type": "asr_partial", "job_id": "job-00-1", "node_id": "n", "session_id": "forged", "utterance_index": 77,
        "text": "ho", "is_final": False, "trace_id": "forged",
    }  # fmt: skip
    partial: Any = decode_from_node(json.dumps(node_says))
    message, event = [json.loads(encode(message)) for message in client_messages.for_partial(request(), partial, 1_200)]
    assert message["job_id"] == "job-00-1" and message["session_id"] == "s-1" and message["utterance_index"] == 4
    assert event["event"] == "ASR_PARTIAL" and event["elapsed_ms"] == 200


# --- questions ------------------------------------------------------------------------------------


class Asked:
    """One question, its answers, and whether its asker is still there."""

    def __init__(self) -> None:
        self.core = rpc.PendingCalls(rpc.CallLimits(400, 1_500, 5_000))
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
    assert asked.answers == [SessionClaimed("1", "s", 5)] and asked.core.timers.next_due_ms() is None
    asked.core.on_answer(SessionClaimed("1", "s", 5))
    assert len(asked.answers) == 1


def test_unanswered_question_is_repeated_then_given_up() -> None:
    asked = Asked()
    assert [asked.tick(now) for now in (400, 1_200, 2_700, 4_200)] == [1, 1, 1, 1]
    assert asked.tick(5_000) == 0
    assert asked.answers == [None] and asked.core.timers.next_due_ms() is None


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
    assert asked.core.timers.next_due_ms() == 60 and asked.tick(60) == 1
    asked.wanted = False
    assert asked.tick(5_000 - 1) == 0
    asked.core.on_answer(SessionClaimed("1", "s", 5))
    assert len(asked.answers) == 1


@pytest.mark.parametrize("details", [{"service_id": "x", "utterance_index": 99}, ["odd"], None])
def test_failure_of_a_node_names_its_utterance_whatever_the_node_says(details: Any) -> None:
    event, error = failure({"code": "NMT_TIMEOUT", "message": "slow", "details": details})
    assert (event["event"], event["utterance_index"], error["code"]) == ("ERROR", 4, "NMT_TIMEOUT")
    said = {"service_id": "x"} if isinstance(details, dict) else {"details": ["odd"]} if details else {}
    about = {"session_id": "s-1", "utterance_index": 4, "trace_id": "t-1", "request_id": "s-1:4:en:t-1"}
    assert error["details"] == {**said, **about}
