"""One literal sample of every WebSocket message, with every field it can have, in the order of docs/protocol.md.

Written from the original system's field tables, not from our structs: tests compare the structs with these samples.
The fields in `required` must be present; all others may be absent or null.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Sample(NamedTuple):
    """A message with all its fields, and the names of the required ones."""

    message: dict[str, Any]
    required: str

    @property
    def type(self) -> str:
        return str(self.message["type"])

    @property
    def optional(self) -> set[str]:
        return set(self.message) - {"type"} - set(self.required.split())


FEATURES = {
    "emotion_detection": True,
    "voice_style_detection": False,
    "speech_rate_detection": True,
    "speech_rate_control": False,
    "speaker_identification": True,
    "persona_adaptation": False,
}
PIPELINE = {"use_asr": True, "use_nmt": True, "use_tts": False, "use_semantic": True, "use_tone": False}
TIMINGS = {"asr_ms": 80, "nmt_ms": 40, "tts_ms": 120, "total_ms": 240}
EXTRA = {
    "emotion": "calm",
    "speech_rate": 1.25,
    "voice_style": "plain",
    "service_timings": TIMINGS,
    "language_probability": 0.97,
    "language_probabilities": {"en": 0.97, "de": 0.03},
    "reason": "ASR_EMPTY",
}
SEGMENTS = {"count": 2, "max_gap": 0.4, "avg_duration": 1.5}
LANGS = {
    "mode": "two_way_auto",
    "lang_a": "en",
    "lang_b": "es",
    "auto_langs": ["en", "es"],
    "enable_streaming_asr": True,
    "partial_update_interval_ms": 1000,
}
QUALITY = {
    "asr_quality_level": "good",
    "reason_codes": ["LOW_SNR"],
    "quality_score": 0.9,
    "rerun_count": 1,
    "segments_meta": SEGMENTS,
}
JOB = {"job_id": "job-03-ab", "attempt_id": 1, "node_id": "node-1", "session_id": "s-1"}
SDP = {"type": "offer", "sdp": "v=0\r\n", "deep": [None, {"x": 1.5}]}
WEBRTC = [
    Sample({"type": "webrtc_offer", "room_code": "123456", "to": "s-2", "sdp": SDP}, "room_code to sdp"),
    Sample({"type": "webrtc_answer", "room_code": "123456", "to": "s-2", "sdp": SDP}, "room_code to sdp"),
    Sample({"type": "webrtc_ice", "room_code": "123456", "to": "s-2", "candidate": SDP}, "room_code to candidate"),
]
ERROR = Sample(
    {"type": "error", "code": "NO_AVAILABLE_NODE", "message": "no node", "details": {"offline": 3}}, "code message"
)

FROM_CLIENT = [
    Sample(
        {
            "type": "session_init",
            "client_version": "1.4.0",
            "platform": "web",
            "src_lang": "auto",
            "tgt_lang": "es",
            "dialect": "us",
            "features": FEATURES,
            "pairing_code": "123456",
            "tenant_id": "acme",
            **LANGS,
            "trace_id": "trace-1",
            "region": "eu",
            "gpu_tier": "large",
            "audio_formats": ["opus", "pcm16"],
            "sample_rate": 16000,
            "binary_frames": True,
            "binary_messages": True,
            "resumable": True,
            "resume_token": "s-1.secret",
            "last_index": -1,
            "last_seq": -1,
            "stage_timings": True,
        },
        "client_version platform src_lang tgt_lang",
    ),
    Sample(
        {
            "type": "utterance",
            "session_id": "s-1",
            "utterance_index": 7,
            "manual_cut": False,
            "src_lang": "en",
            "tgt_lang": "es",
            "dialect": "us",
            "features": FEATURES,
            "audio": "AAAA",
            "audio_format": "pcm16",
            "sample_rate": 16000,
            **LANGS,
            "trace_id": "trace-1",
            "pipeline": PIPELINE,
        },
        "session_id utterance_index manual_cut src_lang tgt_lang audio audio_format sample_rate",
    ),
    Sample(
        {
            "type": "audio_chunk",
            "session_id": "s-1",
            "seq": 4,
            "is_final": False,
            "payload": "AAAA",
            "client_timestamp_ms": 1767225600000,
        },
        "session_id seq is_final",
    ),
    Sample({"type": "result_ack", "session_id": "s-2", "utterance_index": 7}, "session_id utterance_index"),
    Sample({"type": "client_heartbeat", "session_id": "s-1", "timestamp": 1767225600000}, "session_id timestamp"),
    Sample(
        {"type": "tts_started", "session_id": "s-1", "trace_id": "t", "group_id": "g", "ts_start_ms": 5},
        "session_id trace_id group_id ts_start_ms",
    ),
    Sample(
        {"type": "tts_play_ended", "session_id": "s-1", "trace_id": "t", "group_id": "g", "ts_end_ms": 9},
        "session_id trace_id group_id ts_end_ms",
    ),
    Sample({"type": "session_close", "session_id": "s-1", "reason": "user"}, "session_id reason"),
    Sample({"type": "room_create", "client_ts": 1, "display_name": "Ann", "preferred_lang": "en"}, "client_ts"),
    Sample({"type": "room_join", "room_code": "123456", "display_name": "Ann", "preferred_lang": "en"}, "room_code"),
    Sample({"type": "room_leave", "room_code": "123456"}, "room_code"),
    Sample(
        {
            "type": "room_raw_voice_preference",
            "room_code": "123456",
            "target_session_id": "s-2",
            "receive_raw_voice": False,
        },
        "room_code target_session_id receive_raw_voice",
    ),
    *WEBRTC,
]

FROM_SERVER = [
    Sample(
        {
            "type": "session_init_ack",
            "session_id": "s-1",
            "assigned_node_id": "node-1",
            "message": "session created",
            "trace_id": "t",
            "protocol_version": "1.0",
            "use_binary_frame": False,
            "negotiated_codec": "opus",
            "negotiated_audio_format": "opus",
            "negotiated_sample_rate": 16000,
            "negotiated_channel_count": 1,
            "binary_messages": True,
            "resume_token": "s-1.secret",
            "resumed": True,
            "lost": False,
            "next_utterance_index": 8,
            "resend_from_seq": 90,
            "room_code": "123456",
        },
        "session_id trace_id",
    ),
    Sample(
        {
            "type": "translation_result",
            "session_id": "s-1",
            "utterance_index": 7,
            "job_id": "job-03-ab",
            "text_asr": "hello",
            "text_translated": "hola",
            "tts_audio": "UklGRg==",
            "tts_format": "pcm16",
            "extra": EXTRA,
            "trace_id": "t",
            "group_id": "group_s-1_1",
            "part_index": 0,
            "service_timings": TIMINGS,
            "network_timings": {
                "web_to_scheduler_ms": 1,
                "scheduler_to_node_ms": 2,
                "node_to_scheduler_ms": 3,
                "scheduler_to_web_ms": 4,
            },
            "scheduler_sent_at_ms": 1767225600000,
            **QUALITY,
            "last_seq": 89,
            "stages": {"edge_in": 150, "node": 31000},
        },
        "session_id utterance_index job_id text_asr text_translated tts_audio tts_format trace_id",
    ),
    Sample(
        {
            "type": "asr_partial",
            "session_id": "s-1",
            "utterance_index": 7,
            "job_id": "",
            "text": "hel",
            "is_final": False,
            "trace_id": "t",
        },
        "session_id utterance_index job_id text is_final trace_id",
    ),
    Sample(
        {
            "type": "missing_result",
            "session_id": "s-1",
            "utterance_index": 7,
            "reason": "silence_detected",
            "created_at_ms": 1767225600000,
            "trace_id": "t",
            "last_seq": 89,
        },
        "session_id utterance_index reason created_at_ms",
    ),
    Sample(
        {"type": "utterance_ended", "session_id": "s-1", "utterance_index": 7, "last_seq": 89},
        "session_id utterance_index",
    ),
    Sample(
        {"type": "session_idle", "session_id": "s-1", "idle_ms": 60000, "message": "nothing heard"},
        "session_id idle_ms message",
    ),
    Sample({"type": "server_heartbeat", "session_id": "s-1", "timestamp": 1767225600000}, "session_id timestamp"),
    Sample({"type": "session_close_ack", "session_id": "s-1"}, "session_id"),
    Sample(
        {
            "type": "ui_event",
            "trace_id": "t",
            "session_id": "s-1",
            "job_id": "job-03-ab",
            "utterance_index": 7,
            "event": "NODE_ACCEPTED",
            "elapsed_ms": 12,
            "status": "ok",
            "error_code": "JOB_TIMEOUT",
            "hint": "speak again",
        },
        "trace_id session_id job_id utterance_index event status",
    ),
    ERROR,
    Sample({"type": "room_create_ack", "room_code": "123456", "room_id": "r-1"}, "room_code"),
    Sample(
        {
            "type": "room_members",
            "room_code": "123456",
            "members": [
                {
                    "participant_id": "s-1",
                    "session_id": "s-1",
                    "display_name": "Ann",
                    "preferred_lang": "en",
                    "raw_voice_preferences": {"s-2": False},
                    "joined_at": "2026-01-01T00:00:00Z",
                }
            ],
        },
        "room_code members",
    ),
    Sample({"type": "room_error", "code": "ROOM_NOT_FOUND", "message": "no such room"}, "code"),
    Sample({"type": "room_expired", "room_code": "123456", "message": "nobody spoke"}, "room_code message"),
    *WEBRTC,
    Sample({"type": "backpressure", "action": "SLOW_DOWN", "resume_after_ms": 5000, "message": "busy"}, "action"),
    Sample({"type": "translation", "text": "hola"}, "text"),
    Sample({"type": "tts_audio", "seq": 1, "payload": "AAAA"}, "seq payload"),
    Sample(
        {"type": "language_detected", "session_id": "s-1", "lang": "en", "confidence": 0.9},
        "session_id lang confidence",
    ),
]

MODELS = [
    {
        "model_id": "whisper-large",
        "kind": "asr",
        "src_lang": "en",
        "tgt_lang": "es",
        "dialect": "us",
        "version": "3",
        "enabled": True,
    }
]
SERVICES = [
    {
        "service_id": "faster-whisper",
        "type": "asr",
        "device": "gpu",
        "status": "running",
        "version": "1.0",
        "model_id": "whisper-large",
        "engine": "ct2",
        "mem_mb": 2048,
        "warmup_ms": 900,
        "last_error": "none",
    }
]
CAPABILITIES = [{"type": "asr", "ready": True, "reason": "loaded", "ready_impl_ids": ["faster-whisper"]}]
LANGUAGES = {
    "asr_languages": ["en", "zh"],
    "tts_languages": ["es"],
    "semantic_languages": ["es", "en"],
    "semantic_core_ready": True,
    "nmt_capabilities": [
        {
            "model_id": "m2m100",
            "languages": ["en", "es"],
            "rule": "any_to_any",
            "blocked_pairs": [{"src": "en", "tgt": "en"}],
            "supported_pairs": [{"src": "en", "tgt": "es"}],
        }
    ],
    "supported_language_pairs": [{"src": "en", "tgt": "es", "semantic_on_src": True, "semantic_on_tgt": False}],
}
IDS = "job_id attempt_id node_id session_id"

FROM_NODE = [
    Sample(
        {
            "type": "node_register",
            "node_id": "node-1",
            "version": "2.0.0",
            "capability_schema_version": "2.0",
            "platform": "windows",
            "hardware": {"cpu_cores": 8, "memory_gb": 32, "gpus": [{"name": "RTX 4090", "memory_gb": 24}]},
            "installed_models": MODELS,
            "installed_services": SERVICES,
            "capability_by_type": CAPABILITIES,
            "features_supported": FEATURES,
            "advanced_features": ["clone"],
            "accept_public_jobs": True,
            "language_capabilities": LANGUAGES,
            "max_concurrent_jobs": 8,
            "region": "eu",
            "gpu_tier": "high",
            "result_ack": True,
            "binary_messages": True,
            "tenant_id": "acme",
        },
        "version platform hardware accept_public_jobs",
    ),
    Sample(
        {
            "type": "node_heartbeat",
            "node_id": "node-1",
            "timestamp": 1767225600000,
            "resource_usage": {
                "cpu_percent": 12.5,
                "gpu_percent": 30.0,
                "gpu_mem_percent": 70.5,
                "mem_percent": 40.0,
                "running_jobs": 2,
                "gpu_queue_length": 1,
            },
            "installed_models": MODELS,
            "installed_services": SERVICES,
            "capability_by_type": CAPABILITIES,
            "rerun_metrics": {
                "totalReruns": 5,
                "successfulReruns": 3,
                "failedReruns": 1,
                "timeoutReruns": 1,
                "qualityImprovements": 2,
            },
            "asr_metrics": {"processingEfficiency": 4.5},
            "processing_metrics": {"serviceEfficiencies": {"faster-whisper": 4.5}},
            "language_capabilities": LANGUAGES,
            "jobs": [{"job_id": "job-03-ab", "attempt_id": 1}],
        },
        "node_id timestamp resource_usage",
    ),
    Sample({"type": "job_ack", **JOB, "trace_id": "t"}, f"{IDS} trace_id"),
    Sample({"type": "job_started", **JOB, "trace_id": "t"}, f"{IDS} trace_id"),
    Sample(
        {
            "type": "asr_partial",
            "job_id": "job-03-ab",
            "node_id": "node-1",
            "session_id": "s-1",
            "utterance_index": 7,
            "text": "hel",
            "is_final": False,
            "trace_id": "t",
        },
        "job_id node_id session_id utterance_index text is_final trace_id",
    ),
    Sample(
        {
            "type": "job_result",
            **JOB,
            "utterance_index": 7,
            "success": True,
            "text_asr": "hello",
            "text_translated": "hola",
            "tts_audio": "UklGRg==",
            "tts_format": "opus",
            "extra": EXTRA,
            "processing_time_ms": 240,
            "error": {"code": "PROCESSING_ERROR", "message": "bad", "details": {"service_id": "x"}},
            "trace_id": "t",
            "group_id": "g",
            "part_index": 0,
            "node_completed_at_ms": 1767225600000,
            **QUALITY,
        },
        f"{IDS} utterance_index success trace_id",
    ),
    Sample(
        {"type": "node_error", "node_id": "node-1", "code": "OOM", "message": "no memory", "details": {"free": 0}},
        "node_id code message",
    ),
    Sample({"type": "pairing_code_request", "node_id": "node-1"}, "node_id"),
]

FROM_SCHEDULER = [
    Sample(
        {
            "type": "node_register_ack",
            "node_id": "node-1",
            "message": "registered",
            "status": "registering",
            "binary_messages": True,
        },
        "node_id",
    ),
    ERROR,
    Sample(
        {"type": "node_status", "node_id": "node-1", "status": "ready", "reason": "healthy", "timestamp": 1767225600},
        "node_id status reason timestamp",
    ),
    Sample(
        {
            "type": "job_assign",
            "job_id": "job-03-ab",
            "attempt_id": 1,
            "session_id": "s-1",
            "utterance_index": 7,
            "src_lang": "en",
            "tgt_lang": "es",
            "dialect": "us",
            "features": FEATURES,
            "pipeline": PIPELINE,
            "audio": "AAAA",
            "audio_format": "opus",
            "sample_rate": 16000,
            **LANGS,
            "trace_id": "t",
            "group_id": "g",
            "part_index": 0,
            "context_text": "User: hi",
            "padding_ms": 220,
            "is_manual_cut": True,
            "is_pause_triggered": True,
            "is_timeout_triggered": True,
            "is_max_duration_triggered": True,
            "turn_id": "turn-1",
        },
        "job_id attempt_id session_id utterance_index src_lang tgt_lang "
        "pipeline audio audio_format sample_rate trace_id",
    ),
    Sample({"type": "job_cancel", "job_id": "job-03-ab", "trace_id": "t", "reason": "job_timeout"}, "job_id"),
    Sample({"type": "node_control", "command": "drain", "reason": "upgrade", "deadline_ms": 30000}, "command"),
    Sample({"type": "job_result_ack", "job_id": "job-03-ab", "attempt_id": 1}, "job_id attempt_id"),
    Sample(
        {"type": "pairing_code", "node_id": "node-1", "code": "123456", "expires_in_ms": 300000},
        "node_id code expires_in_ms",
    ),
]
