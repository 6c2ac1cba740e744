"""Messages about a session on /ws/session: opening, resuming, heartbeats, backpressure and closing."""

from __future__ import annotations

from mesh.messages.base import (
    FeatureFlags,
    Id,
    Lang,
    Langs,
    Line,
    Message,
    Mode,
    SampleRate,
    Signed,
    Whole,
    Word,
    Words,
    always,
)
from mesh.words import BackpressureAction


class SessionInit(Message, frozen=True, kw_only=True):
    """Opens or resumes a session. Reply: session_init_ack."""

    client_version: Word
    platform: Word  # "android" | "ios" | "web" | "api-gateway"
    src_lang: Lang
    tgt_lang: Lang
    dialect: Word | None = None
    features: FeatureFlags | None = None
    pairing_code: Word | None = None
    tenant_id: Id | None = None
    mode: Mode | None = None
    lang_a: Lang | None = None
    lang_b: Lang | None = None
    auto_langs: Langs | None = None
    enable_streaming_asr: bool | None = None
    partial_update_interval_ms: Whole | None = None
    trace_id: Id | None = None
    # Not in the original: the client's region and preferred GPU tier.
    region: Word | None = None
    gpu_tier: Word | None = None
    # Streaming: formats that the client can send, best first; their sample rate; binary frames or JSON.
    audio_formats: Words | None = None  # "opus" | "pcm16"
    sample_rate: SampleRate | None = None
    binary_frames: bool | None = None
    # Utterances and results may be binary messages.
    binary_messages: bool | None = None
    # Resuming: the client buffers audio until its utterance has ended, acknowledges results and reconnects by itself.
    resumable: bool | None = None
    resume_token: Word | None = None
    # The last index that ended at the client, and the last chunk of its audio; -1 = none.
    last_index: Signed | None = None
    last_seq: Signed | None = None
    # Results name the time of each stage.
    stage_timings: bool | None = None


class SessionClose(Message, frozen=True, kw_only=True):
    """Closes the session. Reply: session_close_ack, the last message of the session."""

    session_id: Id
    reason: Line


class ClientHeartbeat(Message, frozen=True, kw_only=True):
    """Liveness of the client. Reply: server_heartbeat."""

    session_id: Id
    timestamp: Signed


class SessionInitAck(Message, frozen=True, kw_only=True):
    """The session is open."""

    session_id: Id
    assigned_node_id: Id | None = None
    message: Line = always("session created")
    trace_id: Id
    protocol_version: Word | None = None
    use_binary_frame: bool | None = None
    negotiated_codec: Word | None = None
    negotiated_audio_format: Word | None = None
    negotiated_sample_rate: Whole | None = None
    negotiated_channel_count: Whole | None = None
    # Not in the original: binary messages were agreed.
    binary_messages: bool | None = None
    # Not in the original. The token resumes this session on any edge.
    resume_token: Word | None = None
    resumed: bool | None = None
    # Messages to this session were lost while it was detached.
    lost: bool | None = None
    # Index of the next utterance; the first chunk that the client must (re)send.
    next_utterance_index: Whole | None = None
    resend_from_seq: Whole | None = None
    room_code: Word | None = None


class SessionCloseAck(Message, frozen=True, kw_only=True):
    """The session is closed; nothing follows."""

    session_id: Id


class ServerHeartbeat(Message, frozen=True, kw_only=True):
    """Reply to client_heartbeat."""

    session_id: Id
    timestamp: Signed


class SessionIdle(Message, frozen=True, kw_only=True):
    """No speech for `idle_ms`. The session stays open."""

    session_id: Id
    idle_ms: Whole
    message: Line


class Backpressure(Message, frozen=True, kw_only=True):
    """Flow control: send less for `resume_after_ms`. The original client knows it; its scheduler never sent it."""

    action: BackpressureAction
    resume_after_ms: Whole | None = None
    message: Line | None = None
