"""Messages about utterances on /ws/session: audio, results, acknowledgements, playback and progress."""

from __future__ import annotations

from typing import Literal

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
    ServiceTimings,
    Signed,
    Text,
    Whole,
    Word,
    Words,
)

UiEventName = Literal[
    "INPUT_STARTED",
    "INPUT_ENDED",
    "ASR_PARTIAL",
    "ASR_FINAL",
    "DISPATCHED",
    "NODE_ACCEPTED",
    "NMT_DONE",
    "TTS_PLAY_STARTED",
    "TTS_PLAY_ENDED",
    "ERROR",
]
UiStatus = Literal["ok", "error"]


class NetworkTimings(Part, frozen=True, kw_only=True):
    """Network times of a result."""

    web_to_scheduler_ms: Whole | None = None
    scheduler_to_node_ms: Whole | None = None
    node_to_scheduler_ms: Whole | None = None
    scheduler_to_web_ms: Whole | None = None


class Utterance(Message, frozen=True, kw_only=True):
    """One whole utterance. Reply: translation_result, missing_result or error."""

    audio_field = "audio"

    session_id: Id
    utterance_index: Whole
    manual_cut: bool
    src_lang: Lang
    tgt_lang: Lang
    dialect: Word | None = None
    features: FeatureFlags | None = None
    audio: Audio = NOT_SENT  # base64; required, unless the message is binary
    audio_format: Word
    sample_rate: SampleRate
    mode: Mode | None = None
    lang_a: Lang | None = None
    lang_b: Lang | None = None
    auto_langs: Langs | None = None
    enable_streaming_asr: bool | None = None
    partial_update_interval_ms: Whole | None = None
    trace_id: Id | None = None
    pipeline: PipelineConfig | None = None


class AudioChunk(Message, frozen=True, kw_only=True):
    """A chunk of streamed audio; is_final finalizes the utterance. No reply of its own."""

    session_id: Id
    seq: Whole
    is_final: bool
    payload: str | None = None  # base64
    client_timestamp_ms: Signed | None = None


class ResultAckMessage(Message, frozen=True, kw_only=True, tag="result_ack"):
    """Acknowledges all results of that session (its own, or of a member of its room) up to that index."""

    session_id: Id
    utterance_index: Whole


class TtsStarted(Message, frozen=True, kw_only=True):
    """The client began to play a result."""

    session_id: Id
    trace_id: Id
    group_id: Id
    ts_start_ms: Whole


class TtsPlayEnded(Message, frozen=True, kw_only=True):
    """The client finished playing a result."""

    session_id: Id
    trace_id: Id
    group_id: Id
    ts_end_ms: Whole


class TranslationResult(Message, frozen=True, kw_only=True):
    """The result of one utterance. tts_audio is forwarded as the node sent it."""

    audio_field = "tts_audio"

    session_id: Id
    utterance_index: Whole
    job_id: Id
    text_asr: Text
    text_translated: Text
    tts_audio: Audio = NOT_SENT  # base64; required, unless the message is binary
    tts_format: Word
    extra: ExtraResult | None = None
    trace_id: Id
    group_id: Id | None = None
    part_index: Whole | None = None
    service_timings: ServiceTimings | None = None
    network_timings: NetworkTimings | None = None
    scheduler_sent_at_ms: Signed | None = None
    asr_quality_level: Word | None = None
    reason_codes: Words | None = None
    quality_score: float | None = None
    rerun_count: Attempt | None = None
    segments_meta: SegmentsMeta | None = None
    # Not in the original: the last chunk of a streamed utterance, for clients that resume.
    last_seq: Whole | None = None
    # Not in the original, only for clients that asked for stage_timings: microseconds by mesh.words.LatencyStage.
    stages: dict[Word, Whole] | None = None


class AsrPartial(Message, frozen=True, kw_only=True):
    """Text recognised so far."""

    session_id: Id
    utterance_index: Whole
    job_id: Id
    text: Text
    is_final: bool
    trace_id: Id


class MissingResult(Message, frozen=True, kw_only=True):
    """This index has ended without a result."""

    session_id: Id
    utterance_index: Whole
    reason: Word  # mesh.words.MissingReason
    created_at_ms: Signed
    trace_id: Id | None = None
    last_seq: Whole | None = None  # as in translation_result


class UtteranceEnded(Message, frozen=True, kw_only=True):
    """In a room: the utterance was delivered to every receiver. Only for clients that resume."""

    session_id: Id
    utterance_index: Whole
    last_seq: Whole | None = None


class UiEvent(Message, frozen=True, kw_only=True):
    """Progress for the user interface."""

    trace_id: Id
    session_id: Id
    job_id: Id
    utterance_index: Whole
    event: UiEventName
    elapsed_ms: Whole | None = None
    status: UiStatus
    error_code: Word | None = None
    hint: Line | None = None


class TranslationMessage(Message, frozen=True, kw_only=True, tag="translation"):
    """Declared by the original client; we never send it."""

    text: Text


class TtsAudio(Message, frozen=True, kw_only=True):
    """Declared by the original client; we never send it."""

    seq: Whole
    payload: str


class LanguageDetected(Message, frozen=True, kw_only=True):
    """Declared by the original client; we never send it."""

    session_id: Id
    lang: Lang
    confidence: float
