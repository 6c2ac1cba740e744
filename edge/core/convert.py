"""Conversion between the messages of clients and nodes. Pure; audio is never decoded."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from pybase64 import b64encode_as_string

from mesh.frames import Assign, Push, Work
from mesh.messages.base import NO_AUDIO, has_audio
from mesh.messages.client import AsrPartial as ClientAsrPartial
from mesh.messages.client import (
    ErrorMessage,
    FeatureFlags,
    NetworkTimings,
    PipelineConfig,
    ServiceTimings,
    SessionInit,
    TranslationResult,
    Utterance,
)
from mesh.messages.node import JobAssign, JobError, JobResult, NodeAsrPartial

T = TypeVar("T")

#: The format of the original's scheduler if the node gives none.
TTS_FORMAT_DEFAULT: Final = "pcm16"


def work_from(utterance: Utterance, session: SessionInit, trace_id: str) -> Work:
    """The Work of `utterance`; fields that it leaves out come from the session."""
    features = utterance.features or session.features
    return Work(
        src_lang=utterance.src_lang,
        tgt_lang=utterance.tgt_lang,
        audio_format=utterance.audio_format,
        sample_rate=utterance.sample_rate,
        pipeline=msgspec.structs.asdict(utterance.pipeline or PipelineConfig()),
        trace_id=trace_id,
        dialect=utterance.dialect or session.dialect,
        features=_flags(features),
        mode=utterance.mode or session.mode,
        lang_a=utterance.lang_a or session.lang_a,
        lang_b=utterance.lang_b or session.lang_b,
        auto_langs=utterance.auto_langs or session.auto_langs,
        enable_streaming_asr=_first(utterance.enable_streaming_asr, session.enable_streaming_asr),
        partial_update_interval_ms=_first(utterance.partial_update_interval_ms, session.partial_update_interval_ms),
        is_manual_cut=utterance.manual_cut,
    )


def job_assign_from(assign: Assign, work: Work, audio: bytes) -> JobAssign:
    """The job_assign for a node; `audio` is the raw bytes of the payload."""
    fields = msgspec.structs.asdict(work)
    fields["pipeline"] = msgspec.convert(work.pipeline, PipelineConfig)
    fields["features"] = None if work.features is None else msgspec.convert(work.features, FeatureFlags)
    return JobAssign(
        job_id=assign.job_id,
        attempt_id=assign.attempt,
        session_id=assign.session_id,
        utterance_index=assign.utterance_index,
        audio=b64encode_as_string(audio),
        **fields,
    )


def translation_result_from(
    result: JobResult,
    push: Push,
    *,
    trace_id: str,
    network_timings: NetworkTimings | None = None,
    scheduler_sent_at_ms: int | None = None,
    group_id: str | None = None,
    part_index: int | None = None,
) -> TranslationResult:
    """The translation_result for a node's `result`. Ids are those of the push; tts_audio is not decoded."""
    return TranslationResult(
        session_id=push.session_id,
        utterance_index=push.utterance_index,
        job_id=push.job_id,
        text_asr=result.text_asr or "",
        text_translated=result.text_translated or "",
        tts_audio=result.tts_audio if has_audio(result.tts_audio) else NO_AUDIO,
        tts_format=result.tts_format or TTS_FORMAT_DEFAULT,
        extra=result.extra,
        trace_id=trace_id,
        group_id=_first(group_id, result.group_id),
        part_index=_first(part_index, result.part_index),
        service_timings=_timings(result),
        network_timings=network_timings,
        scheduler_sent_at_ms=scheduler_sent_at_ms,
        asr_quality_level=result.asr_quality_level,
        reason_codes=result.reason_codes,
        quality_score=result.quality_score,
        rerun_count=result.rerun_count,
        segments_meta=result.segments_meta,
    )


def is_silence(result: JobResult) -> bool:
    """True if a successful result has neither text nor speech: the client gets missing_result."""
    return result.success and not (result.text_asr or result.text_translated or has_audio(result.tts_audio))


def asr_partial_from(
    partial: NodeAsrPartial, *, session_id: str, utterance_index: int, trace_id: str
) -> ClientAsrPartial:
    """The asr_partial for a node's partial text."""
    return ClientAsrPartial(
        session_id=session_id,
        utterance_index=utterance_index,
        job_id=partial.job_id,
        text=partial.text,
        is_final=partial.is_final,
        trace_id=trace_id,
    )


def error_from(error: JobError | None) -> ErrorMessage:
    """The `error` for a job that failed on its node: the node's own code, message and details."""
    if error is None:
        return ErrorMessage(code="PROCESSING_ERROR", message="The node failed without a reason")
    return ErrorMessage(code=error.code, message=error.message, details=error.details)


def _timings(result: JobResult) -> ServiceTimings | None:
    if result.extra is not None and result.extra.service_timings is not None:
        return result.extra.service_timings
    if result.processing_time_ms is None:
        return None
    return ServiceTimings(total_ms=result.processing_time_ms)


def _flags(features: FeatureFlags | None) -> dict[str, bool] | None:
    if features is None:
        return None
    return {name: value for name, value in msgspec.structs.asdict(features).items() if value is not None}


def _first(one: T | None, other: T | None) -> T | None:
    return other if one is None else one
