"""Messages about jobs on /ws/node: assignment, progress, result, acknowledgement and cancellation."""

from __future__ import annotations

from typing import Any

from mesh.messages.audio import NOT_SENT, Audio
from mesh.messages.base import (
    Attempt,
    ExtraResult,
    FeatureFlags,
    Id,
    Lang,
    Langs,
    Line,
    Message,
    Mode,
    Part,
    PipelineConfig,
    SampleRate,
    SegmentsMeta,
    Signed,
    Text,
    Whole,
    Word,
    Words,
)


class JobRef(Part, frozen=True, kw_only=True):
    """One attempt of one job."""

    job_id: Id
    attempt_id: Attempt


class JobError(Part, frozen=True, kw_only=True):
    """Why a job failed on the node."""

    code: Word
    message: Line
    details: Any = None


class JobAssign(Message, frozen=True, kw_only=True):
    """Run this job. Flags that are false are omitted."""

    audio_field = "audio"

    job_id: Id
    attempt_id: Attempt
    session_id: Id
    utterance_index: Whole
    src_lang: Lang
    tgt_lang: Lang
    dialect: Word | None = None
    features: FeatureFlags | None = None
    pipeline: PipelineConfig
    audio: Audio = NOT_SENT  # base64; required, unless the message is binary
    audio_format: Word
    sample_rate: SampleRate
    mode: Mode | None = None
    lang_a: Lang | None = None
    lang_b: Lang | None = None
    auto_langs: Langs | None = None
    enable_streaming_asr: bool | None = None
    partial_update_interval_ms: Whole | None = None
    trace_id: Id
    group_id: Id | None = None
    part_index: Whole | None = None
    context_text: Text | None = None
    padding_ms: Whole | None = None
    is_manual_cut: bool = False
    is_pause_triggered: bool = False
    is_timeout_triggered: bool = False
    is_max_duration_triggered: bool = False
    turn_id: Id | None = None


class JobCancel(Message, frozen=True, kw_only=True):
    """Stop this job; its result is not wanted (best effort)."""

    job_id: Id
    trace_id: Id | None = None
    reason: Line | None = None  # "job_timeout"


class JobAck(Message, frozen=True, kw_only=True):
    """The node accepted the job. The original node does not send it."""

    job_id: Id
    attempt_id: Attempt
    node_id: Id
    session_id: Id
    trace_id: Id


class JobStarted(Message, frozen=True, kw_only=True):
    """The node started the job. The original node does not send it."""

    job_id: Id
    attempt_id: Attempt
    node_id: Id
    session_id: Id
    trace_id: Id


class NodeAsrPartial(Message, frozen=True, kw_only=True, tag="asr_partial"):
    """Text recognised so far."""

    job_id: Id
    node_id: Id
    session_id: Id
    utterance_index: Whole
    text: Text
    is_final: bool
    trace_id: Id


class JobResult(Message, frozen=True, kw_only=True):
    """The outcome of a job on the node. tts_audio is forwarded as it is."""

    audio_field = "tts_audio"
    audio_required = False

    job_id: Id
    attempt_id: Attempt
    node_id: Id
    session_id: Id
    utterance_index: Whole
    success: bool
    text_asr: Text | None = None
    text_translated: Text | None = None
    tts_audio: Audio = NOT_SENT  # base64
    tts_format: Word | None = None
    extra: ExtraResult | None = None
    processing_time_ms: Whole | None = None
    error: JobError | None = None
    trace_id: Id
    group_id: Id | None = None
    part_index: Whole | None = None
    node_completed_at_ms: Signed | None = None
    asr_quality_level: Word | None = None
    reason_codes: Words | None = None
    quality_score: float | None = None
    rerun_count: Attempt | None = None
    segments_meta: SegmentsMeta | None = None


class JobResultAck(Message, frozen=True, kw_only=True):
    """Acknowledges a job_result: the node may forget it. Only for nodes that registered with result_ack."""

    job_id: Id
    attempt_id: Attempt


class NodeError(Message, frozen=True, kw_only=True):
    """An error of the node.

    `details.job_id` (and `details.attempt_id`) name the job that failed by it; without them every job of the node has.
    """

    node_id: Id
    code: Word
    message: Line
    details: Any = None
