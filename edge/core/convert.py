"""Conversion between the messages of clients and nodes. Pure; audio is never decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import msgspec

from mesh.frames import Assign, Push, Work
from mesh.messages.audio import NO_AUDIO, NOT_SENT, Audio, has_audio
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

if TYPE_CHECKING:
    from mesh.messages.base import Mode

#: The format of the original's scheduler if the node gives none.
TTS_FORMAT_DEFAULT: Final = "pcm16"
_PIPELINE: Final = PipelineConfig()
_PIPELINE_DEFAULT: Final[dict[str, bool]] = msgspec.structs.asdict(_PIPELINE)
#: The group of an utterance that is in none.
NO_GROUP: Final = (None, None, "")


def work_from(
    utterance: Utterance,
    session: SessionInit,
    trace_id: str,
    *,
    target: str = "",
    group: tuple[str | None, int | None, str] = NO_GROUP,
) -> Work:
    """The Work of `utterance`; fields that it leaves out come from the session.

    `target`: its target language, if not its own; `group`: the id of its group, its part in that, and the context.
    """
    features, pipeline = utterance.features or session.features, utterance.pipeline
    streams, interval_ms = utterance.enable_streaming_asr, utterance.partial_update_interval_ms
    return Work(
        src_lang=utterance.src_lang,
        tgt_lang=target or utterance.tgt_lang,
        audio_format=utterance.audio_format,
        sample_rate=utterance.sample_rate,
        pipeline=dict(_PIPELINE_DEFAULT) if pipeline is None else msgspec.structs.asdict(pipeline),
        trace_id=trace_id,
        dialect=utterance.dialect or session.dialect,
        features=None if features is None else _flags(features),
        mode=utterance.mode or session.mode,
        lang_a=utterance.lang_a or session.lang_a,
        lang_b=utterance.lang_b or session.lang_b,
        auto_langs=utterance.auto_langs or session.auto_langs,
        enable_streaming_asr=session.enable_streaming_asr if streams is None else streams,
        partial_update_interval_ms=session.partial_update_interval_ms if interval_ms is None else interval_ms,
        group_id=group[0],
        part_index=group[1],
        context_text=group[2] or None,
        is_manual_cut=utterance.manual_cut,
    )


def job_assign_from(assign: Assign, work: Work, audio: Audio = NOT_SENT) -> JobAssign:
    """The job_assign for a node: with its audio, or without it if that follows in a binary message."""
    return JobAssign(
        job_id=assign.job_id,
        attempt_id=assign.attempt,
        session_id=assign.session_id,
        utterance_index=assign.utterance_index,
        src_lang=work.src_lang,
        tgt_lang=work.tgt_lang,
        dialect=work.dialect,
        features=None if work.features is None else msgspec.convert(work.features, FeatureFlags),
        pipeline=_PIPELINE if work.pipeline == _PIPELINE_DEFAULT else msgspec.convert(work.pipeline, PipelineConfig),
        audio=audio,
        audio_format=work.audio_format,
        sample_rate=work.sample_rate,
        mode=cast("Mode | None", work.mode),
        lang_a=work.lang_a,
        lang_b=work.lang_b,
        auto_langs=work.auto_langs,
        enable_streaming_asr=work.enable_streaming_asr,
        partial_update_interval_ms=work.partial_update_interval_ms,
        trace_id=work.trace_id,
        group_id=work.group_id,
        part_index=work.part_index,
        context_text=work.context_text,
        padding_ms=work.padding_ms,
        is_manual_cut=work.is_manual_cut,
        is_pause_triggered=work.is_pause_triggered,
        is_timeout_triggered=work.is_timeout_triggered,
        is_max_duration_triggered=work.is_max_duration_triggered,
        turn_id=work.turn_id,
    )


def translation_result_from(
    result: JobResult,
    push: Push,
    *,
    trace_id: str,
    utterance_index: int | None = None,
    network_timings: NetworkTimings | None = None,
    scheduler_sent_at_ms: int | None = None,
    group_id: str | None = None,
    part_index: int | None = None,
    stages: dict[str, int] | None = None,
) -> TranslationResult:
    """The translation_result of a node's `result`. Ids come from the push, unless given; tts_audio stays as it is."""
    return TranslationResult(
        session_id=push.session_id,
        utterance_index=push.utterance_index if utterance_index is None else utterance_index,
        job_id=push.job_id,
        text_asr=result.text_asr or "",
        text_translated=result.text_translated or "",
        tts_audio=result.tts_audio if has_audio(result.tts_audio) else NO_AUDIO,
        tts_format=result.tts_format or TTS_FORMAT_DEFAULT,
        extra=result.extra,
        trace_id=trace_id,
        group_id=result.group_id if group_id is None else group_id,
        part_index=result.part_index if part_index is None else part_index,
        service_timings=_timings(result),
        network_timings=network_timings,
        scheduler_sent_at_ms=scheduler_sent_at_ms,
        asr_quality_level=result.asr_quality_level,
        reason_codes=result.reason_codes,
        quality_score=result.quality_score,
        rerun_count=result.rerun_count,
        segments_meta=result.segments_meta,
        stages=stages,
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


def _flags(features: FeatureFlags) -> dict[str, bool]:
    return {name: value for name, value in msgspec.structs.asdict(features).items() if value is not None}
