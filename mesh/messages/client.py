"""Messages between clients and edges on /ws/session: the unions of both directions and their codecs.

One struct per message, in session.py, utterances.py and rooms.py; other packages import all of them from here. Field
names and their order are the original system's; docs/protocol.md has the tables. Bounds limit what a peer may send:
whether an id is known, audio decodes or a language exists is the edge's check.
"""

from __future__ import annotations

from typing import Final, TypeAlias, get_args

from mesh.messages.base import (
    Codec,
    ErrorMessage,
    ExtraResult,
    FeatureFlags,
    Mode,
    PipelineConfig,
    SegmentsMeta,
    ServiceTimings,
    encode,
    encode_utf8,
    error_message,
    error_of,
)
from mesh.messages.rooms import (
    Participant,
    RoomCreate,
    RoomCreateAck,
    RoomErrorMessage,
    RoomExpired,
    RoomJoin,
    RoomLeave,
    RoomMembers,
    RoomRawVoicePreference,
    WebrtcAnswer,
    WebrtcIce,
    WebrtcOffer,
)
from mesh.messages.session import (
    Backpressure,
    ClientHeartbeat,
    ServerHeartbeat,
    SessionClose,
    SessionCloseAck,
    SessionIdle,
    SessionInit,
    SessionInitAck,
)
from mesh.messages.utterances import (
    AsrPartial,
    AudioChunk,
    LanguageDetected,
    MissingResult,
    NetworkTimings,
    ResultAckMessage,
    TranslationMessage,
    TranslationResult,
    TtsAudio,
    TtsPlayEnded,
    TtsStarted,
    UiEvent,
    UiEventName,
    UiStatus,
    Utterance,
    UtteranceEnded,
)

__all__ = [
    "FROM_CLIENT",
    "FROM_SERVER",
    "PROTOCOL_VERSION",
    "AsrPartial",
    "AudioChunk",
    "Backpressure",
    "ClientHeartbeat",
    "ClientMessage",
    "ErrorMessage",
    "ExtraResult",
    "FeatureFlags",
    "LanguageDetected",
    "MissingResult",
    "Mode",
    "NetworkTimings",
    "Participant",
    "PipelineConfig",
    "ResultAckMessage",
    "RoomCreate",
    "RoomCreateAck",
    "RoomErrorMessage",
    "RoomExpired",
    "RoomJoin",
    "RoomLeave",
    "RoomMembers",
    "RoomRawVoicePreference",
    "SegmentsMeta",
    "ServerHeartbeat",
    "ServerMessage",
    "ServiceTimings",
    "SessionClose",
    "SessionCloseAck",
    "SessionIdle",
    "SessionInit",
    "SessionInitAck",
    "TranslationMessage",
    "TranslationResult",
    "TtsAudio",
    "TtsPlayEnded",
    "TtsStarted",
    "UiEvent",
    "UiEventName",
    "UiStatus",
    "Utterance",
    "UtteranceEnded",
    "WebrtcAnswer",
    "WebrtcIce",
    "WebrtcOffer",
    "decode_from_client",
    "decode_from_server",
    "encode",
    "encode_utf8",
    "error_message",
    "error_of",
]

PROTOCOL_VERSION: Final = "1.0"

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

#: A client's message, for edges; PeerError(INVALID_MESSAGE) if it is malformed.
decode_from_client: Final = FROM_CLIENT.decode
#: An edge's message, for clients; PeerError(INVALID_MESSAGE) if it is malformed.
decode_from_server: Final = FROM_SERVER.decode
