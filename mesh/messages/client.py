"""What clients and edges say to one another on /ws/session. One struct per message; docs/protocol.md has the tables.

Field names and their order are the original system's. Bounds are on what a peer may send, not on meaning: whether an
id is known, audio decodes or a language exists is for the edge to say.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Raw

from mesh.messages.base import (
    Attempt,
    Codec,
    Id,
    Lang,
    Langs,
    Line,
    Message,
    Part,
    SampleRate,
    Signed,
    Text,
    Whole,
    Word,
    Words,
    always,
    check_audio,
)
from mesh.messages.base import ErrorMessage as ErrorMessage
from mesh.messages.base import ExtraResult as ExtraResult
from mesh.messages.base import FeatureFlags as FeatureFlags
from mesh.messages.base import PipelineConfig as PipelineConfig
from mesh.messages.base import SegmentsMeta as SegmentsMeta
from mesh.messages.base import ServiceTimings as ServiceTimings
from mesh.messages.base import encode as encode
from mesh.messages.base import encode_utf8 as encode_utf8
from mesh.messages.base import error_message as error_message
from mesh.messages.base import error_of as error_of
from mesh.words import BackpressureAction

PROTOCOL_VERSION: Final = "1.0"

Mode = Literal["one_way", "two_way_auto"]
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

# --- parts ----------------------------------------------------------------------------------------


class NetworkTimings(Part, frozen=True, kw_only=True):
    """How long a result spent between the parties."""

    web_to_scheduler_ms: Whole | None = None
    scheduler_to_node_ms: Whole | None = None
    node_to_scheduler_ms: Whole | None = None
    scheduler_to_web_ms: Whole | None = None


class Participant(Part, frozen=True, kw_only=True):
    """A member of a room. A missing voice preference means: receive."""

    participant_id: Id
    session_id: Id
    display_name: Word | None = None
    preferred_lang: Lang | None = None
    raw_voice_preferences: dict[Id, bool] | None = None
    joined_at: Word  # RFC 3339


# --- client -> scheduler --------------------------------------------------------------------------


class SessionInit(Message, frozen=True, kw_only=True):
    """Opens a session. Answer: session_init_ack."""

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
    # Not in the original: where the client is, and what kind of GPU it would like.
    region: Word | None = None
    gpu_tier: Word | None = None
    # Streaming: what the client can send, best first; with what rate; and whether in binary frames.
    audio_formats: Words | None = None  # "opus" | "pcm16"
    sample_rate: SampleRate | None = None
    binary_frames: bool | None = None
    # Resuming: the client keeps its audio until the utterance has ended, acknowledges results and comes back by itself.
    resumable: bool | None = None
    resume_token: Word | None = None
    # The last index that ended here, and the last chunk of its audio; -1 = none.
    last_index: Signed | None = None
    last_seq: Signed | None = None


class Utterance(Message, frozen=True, kw_only=True):
    """One whole utterance. Answer: translation_result, missing_result or error."""

    session_id: Id
    utterance_index: Whole
    manual_cut: bool
    src_lang: Lang
    tgt_lang: Lang
    dialect: Word | None = None
    features: FeatureFlags | None = None
    audio: str  # base64
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
    """A piece of streamed audio; is_final ends the utterance. No answer of its own."""

    session_id: Id
    seq: Whole
    is_final: bool
    payload: str | None = None  # base64
    client_timestamp_ms: Signed | None = None


class ResultAckMessage(Message, frozen=True, kw_only=True, tag="result_ack"):
    """The client has everything of that session (its own, or of a member of its room) up to that index."""

    session_id: Id
    utterance_index: Whole


class ClientHeartbeat(Message, frozen=True, kw_only=True):
    """Answer: server_heartbeat."""

    session_id: Id
    timestamp: Signed


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


class SessionClose(Message, frozen=True, kw_only=True):
    """Ends the session. Answer: session_close_ack, the last message about it."""

    session_id: Id
    reason: Line


class RoomCreate(Message, frozen=True, kw_only=True):
    """Answer: room_create_ack, then room_members."""

    client_ts: Whole
    display_name: Word | None = None
    preferred_lang: Lang | None = None


class RoomJoin(Message, frozen=True, kw_only=True):
    """Answer: room_members to everybody in the room."""

    room_code: Word
    display_name: Word | None = None
    preferred_lang: Lang | None = None


class RoomLeave(Message, frozen=True, kw_only=True):
    """Answer: room_members to those who stay."""

    room_code: Word


class RoomRawVoicePreference(Message, frozen=True, kw_only=True):
    """Whether to receive another member's own voice."""

    room_code: Word
    target_session_id: Id
    receive_raw_voice: bool


class WebrtcOffer(Message, frozen=True, kw_only=True):
    """Both ways: `to` names the receiver on the way in and the sender on the way out."""

    room_code: Word
    to: Id
    sdp: Any


class WebrtcAnswer(Message, frozen=True, kw_only=True):
    """As webrtc_offer."""

    room_code: Word
    to: Id
    sdp: Any


class WebrtcIce(Message, frozen=True, kw_only=True):
    """As webrtc_offer."""

    room_code: Word
    to: Id
    candidate: Any


# --- scheduler -> client --------------------------------------------------------------------------


class SessionInitAck(Message, frozen=True, kw_only=True):
    """The session exists."""

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
    # Not in the original. The token resumes this session on any edge.
    resume_token: Word | None = None
    resumed: bool | None = None
    # Something that was said to this session before cannot be told any more.
    lost: bool | None = None
    # The next utterance gets this index; audio from this chunk on is to be sent (again).
    next_utterance_index: Whole | None = None
    resend_from_seq: Whole | None = None
    room_code: Word | None = None


class TranslationResult(Message, frozen=True, kw_only=True):
    """The result of one utterance. tts_audio is the node's own JSON text, never decoded on the way."""

    session_id: Id
    utterance_index: Whole
    job_id: Id
    text_asr: Text
    text_translated: Text
    tts_audio: Raw
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

    def __post_init__(self) -> None:
        check_audio(self.tts_audio, null=False)


class AsrPartial(Message, frozen=True, kw_only=True):
    """Recognised so far."""

    session_id: Id
    utterance_index: Whole
    job_id: Id
    text: Text
    is_final: bool
    trace_id: Id


class MissingResult(Message, frozen=True, kw_only=True):
    """There will be no result for this index."""

    session_id: Id
    utterance_index: Whole
    reason: Word  # mesh.words.MissingReason
    created_at_ms: Signed
    trace_id: Id | None = None
    last_seq: Whole | None = None  # as in translation_result


class UtteranceEnded(Message, frozen=True, kw_only=True):
    """In a room: everybody who was to get the utterance has it. Only for clients that resume; others get no word."""

    session_id: Id
    utterance_index: Whole
    last_seq: Whole | None = None


class SessionIdle(Message, frozen=True, kw_only=True):
    """Nothing was said for long. The session stays open: audio wakes it up."""

    session_id: Id
    idle_ms: Whole
    message: Line


class ServerHeartbeat(Message, frozen=True, kw_only=True):
    """Answer to client_heartbeat."""

    session_id: Id
    timestamp: Signed


class SessionCloseAck(Message, frozen=True, kw_only=True):
    """The session is closed; nothing follows."""

    session_id: Id


class UiEvent(Message, frozen=True, kw_only=True):
    """Progress worth showing."""

    trace_id: Id
    session_id: Id
    job_id: Id
    utterance_index: Whole
    event: UiEventName
    elapsed_ms: Whole | None = None
    status: UiStatus
    error_code: Word | None = None
    hint: Line | None = None


class RoomCreateAck(Message, frozen=True, kw_only=True):
    """The room exists."""

    room_code: Word
    room_id: Id | None = None


class RoomMembers(Message, frozen=True, kw_only=True):
    """Everybody in the room."""

    room_code: Word
    members: list[Participant]


class RoomErrorMessage(Message, frozen=True, kw_only=True, tag="room_error"):
    """A room request failed."""

    code: Word  # a name of mesh.errors, 6xx, or INTERNAL_ERROR
    message: Line | None = None


class RoomExpired(Message, frozen=True, kw_only=True):
    """Nobody spoke for too long."""

    room_code: Word
    message: Line


class Backpressure(Message, frozen=True, kw_only=True):
    """Send less for a while. The original client understands it though its scheduler never said it."""

    action: BackpressureAction
    resume_after_ms: Whole | None = None
    message: Line | None = None


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


# --- directions -----------------------------------------------------------------------------------

ClientMessage: TypeAlias = (
    SessionInit
    | Utterance
    | AudioChunk
    | ResultAckMessage
    | ClientHeartbeat
    | TtsStarted
    | TtsPlayEnded
    | SessionClose
    | RoomCreate
    | RoomJoin
    | RoomLeave
    | RoomRawVoicePreference
    | WebrtcOffer
    | WebrtcAnswer
    | WebrtcIce
)
ServerMessage: TypeAlias = (
    SessionInitAck
    | TranslationResult
    | AsrPartial
    | MissingResult
    | UtteranceEnded
    | SessionIdle
    | ServerHeartbeat
    | SessionCloseAck
    | UiEvent
    | ErrorMessage
    | RoomCreateAck
    | RoomMembers
    | RoomErrorMessage
    | RoomExpired
    | WebrtcOffer
    | WebrtcAnswer
    | WebrtcIce
    | Backpressure
    | TranslationMessage
    | TtsAudio
    | LanguageDetected
)

FROM_CLIENT: Final[Codec[ClientMessage]] = Codec(ClientMessage, get_args(ClientMessage))
FROM_SERVER: Final[Codec[ServerMessage]] = Codec(ServerMessage, get_args(ServerMessage))


def decode_from_client(text: str | bytes) -> ClientMessage:
    """The client's message in `text`; PeerError(INVALID_MESSAGE) if it is malformed."""
    return FROM_CLIENT.decode(text)


def decode_from_server(text: str | bytes) -> ServerMessage:
    """The scheduler's message in `text`, for clients; PeerError(INVALID_MESSAGE) if it is malformed."""
    return FROM_SERVER.decode(text)
