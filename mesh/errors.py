"""Numbered errors: faults of a peer, and refusals by the mesh.

The code is the wire name and never changes its meaning; the number is for logs, metrics and searching; the hint is the
next step for a person. Text is never parsed. Our own bugs are assertions, not entries here.
"""

from __future__ import annotations

from enum import Enum
from typing import Any


class ErrorCode(Enum):
    """Every error on the wire: (number, hint)."""

    # 1xx: the message
    INVALID_MESSAGE = (100, "Check the field names and types against docs/protocol.md.")
    INVALID_ID = (101, "Ids are 1 to 64 of A-Z a-z 0-9 _ . : -")
    ID_MISMATCH = (102, "Send only the id that this connection was given.")
    MESSAGE_TOO_LARGE = (103, "Send shorter audio, or stream it in chunks.")
    INVALID_AUDIO = (104, "Send base64 of PCM16 or length-prefixed Opus packets.")
    UNSUPPORTED_FEATURE = (105, "Leave the feature out.")
    # 2xx: the session
    INVALID_SESSION = (200, "Send session_init first.")
    SESSION_CLOSED = (201, "Open a new session.")
    INVALID_PAIRING_CODE = (202, "Ask the node for a new code.")
    TOO_MANY_UTTERANCES = (203, "Wait for results before you send more.")
    SESSION_SUPERSEDED = (204, "This session was taken over by a newer connection; this socket is closed.")
    UTTERANCE_ENDED = (205, "This index has its result or its missing_result; use the next index.")
    # 3xx: the node
    NO_GPU_AVAILABLE = (300, "A worker node needs at least one GPU.")
    NODE_ID_CONFLICT = (301, "Another connection owns this node id; use another id.")
    INVALID_CAPABILITY_SCHEMA = (302, 'Send capability_schema_version "2.0" and capability_by_type.')
    MISSING_LANG_CAPABILITIES = (
        303,
        "Send at least one ASR and one semantic language in language_capabilities.",
    )
    NOT_REGISTERED = (304, "Send node_register first.")
    NODE_SUPERSEDED = (305, "This node connected again elsewhere; this socket is closed.")
    # 4xx: the job
    NO_AVAILABLE_NODE = (
        400,
        "Try again after `retry_after_ms`, unless it is 0; `details` names the obstacles.",
    )
    NODE_UNAVAILABLE = (401, "The node was lost; the utterance is tried on another node.")
    NODE_OVERLOADED = (402, "Try again shortly.")
    MODEL_NOT_AVAILABLE = (403, "The node lacks a model; another node is tried.")
    MODEL_LOAD_FAILED = (404, "Check the node's log.")
    MODEL_VERIFY_FAILED = (405, "Reinstall the model on the node.")
    MODEL_CORRUPTED = (406, "Reinstall the model on the node.")
    JOB_TIMEOUT = (407, "The result missed its deadline; speak again.")
    NMT_TIMEOUT = (408, "Translation took too long; speak again.")
    TTS_TIMEOUT = (409, "Speech synthesis took too long; the text is still valid.")
    PROCESSING_ERROR = (410, "The node failed on this utterance; speak again.")
    # 5xx: us
    INTERNAL_ERROR = (500, "Try again; if it stays, report the trace id.")
    SCHEDULER_DEPENDENCY_DOWN = (501, "The mesh cannot reach its store; try again shortly.")
    SLOW_DOWN = (502, "The mesh is busy; send less for a moment.")
    WS_DISCONNECTED = (503, "Connect again.")
    # 6xx: rooms; sent as room_error
    ROOM_NOT_FOUND = (600, "Check the code; a room without speech for long is closed.")
    ALREADY_IN_ROOM = (601, "Leave the room you are in first.")
    ROOM_FULL = (602, "The room has its maximum of members; create another.")
    INVALID_ROOM_CODE = (603, "A room code is six digits.")
    NOT_IN_ROOM = (604, "Join the room first.")
    TOO_MANY_ROOMS = (605, "The mesh has its maximum of rooms; try again later.")
    MEMBER_NOT_FOUND = (606, "Check the latest room_members.")
    RAW_VOICE_DECLINED = (607, "That member does not want your own voice.")

    @property
    def number(self) -> int:
        """The stable number."""
        return self.value[0]

    @property
    def hint(self) -> str:
        """The next step for a person."""
        return self.value[1]


class PeerError(Exception):
    """A peer's fault, or a refusal: becomes an `error` message on its socket."""

    def __init__(self, code: ErrorCode, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class ConfigError(Exception):
    """Invalid configuration; the text names the key and its bounds. Exit code 2."""


class StoreError(Exception):
    """Redis is unavailable; whether the call took effect is unknown, so it must be retried with the same id."""
