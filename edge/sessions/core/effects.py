"""Effects of one session: the decisions of its core, which the actor runs in order. No rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from edge.requests.core.request import AckResult
from edge.rooms.core.events import RoomCall
from edge.rooms.core.relay_queue import RelayMessage
from mesh.errors import PeerError
from mesh.frames import Dispatch, Post, Push
from mesh.messages.base import Message
from mesh.messages.node import JobResult

# --- the client -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendToClient:
    """Send a message."""

    message: Message


@dataclass(frozen=True, slots=True)
class SendEncoded:
    """Send a message that is encoded already. With `audio`: `body` is the translation_result without its own."""

    message_type: str
    body: bytes
    audio: bytes | None = None


@dataclass(frozen=True, slots=True)
class SendError:
    """Send an `error`; the connection stays open."""

    error: PeerError


@dataclass(frozen=True, slots=True)
class CloseSuperseded:
    """Close the client's connection: the session has a newer one."""


# --- requests -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit a request to the tracker."""

    dispatch: Dispatch
    work: bytes
    audio: bytes
    created_ms: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Cancel a request: its index has ended without it."""

    request_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class TakeResult:
    """Pass a result from the mail to the tracker, as if the mesh had pushed it."""

    push: Push
    result: JobResult | None


# --- rooms ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallRoom:
    """Call the cell of a room; RoomReplied follows."""

    call: RoomCall


@dataclass(frozen=True, slots=True)
class SendSignal:
    """Pass a webrtc_* message to another member; SignalReplied follows."""

    code: str
    target: str
    body: bytes


@dataclass(frozen=True, slots=True)
class ExpectRelay:
    """Reserve a place for the message with that key: later ones to that listener wait for it."""

    listener: str
    key: str


@dataclass(frozen=True, slots=True)
class SendRelay:
    """Send a message to another session; RelayCompleted follows if the message names its sender."""

    queue: str
    message: RelayMessage


@dataclass(frozen=True, slots=True)
class ReplyRelay:
    """The outcome of a message of another session."""

    post: Post
    queue: str
    verdict: str


@dataclass(frozen=True, slots=True)
class ForgetRelays:
    """Cancel the places that were reserved for this session's messages."""


# --- the session's record -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RenewRecord:
    """Renew the record of the session, with its room; `is_detached`: results go to the mail."""

    is_detached: bool
    room: str


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """Claim the session anew: the mesh lost its record. RecordClaimed follows."""


@dataclass(frozen=True, slots=True)
class TrimMail:
    """Delete the mail up to that entry: the client has it."""

    last: str


@dataclass(frozen=True, slots=True)
class EndSession:
    """The last effect of a session that is over: cancel its requests, release its ownership, forget it."""

    reason: str
    #: Requests that had no result yet.
    pending: int


@dataclass(frozen=True, slots=True)
class MoveSession:
    """The last effect of a session that moves: forget it here. `owner` "" = no edge owns it yet."""

    owner: str


# --- observation ----------------------------------------------------------------------------------


class CounterName(Enum):
    """Counters that a session increments; the values are names of EdgeMetrics."""

    SEGMENTS = "cuts_total"
    BACKPRESSURE = "backpressure_total"
    MISSING = "missing_total"
    UTTERANCES = "utterances_total"
    CHUNK_ANOMALIES = "chunk_anomalies_total"


@dataclass(frozen=True, slots=True)
class Count:
    """Increase a counter; label "" = it has none."""

    counter: CounterName
    label: str = ""
    amount: int = 1


@dataclass(frozen=True, slots=True)
class ObserveStages:
    """Count the microseconds of a result's stages, in the order of LatencyStage."""

    stages: list[int]


@dataclass(frozen=True, slots=True)
class Log:
    """Write a log line about this session."""

    event: str
    fields: dict[str, object] = field(default_factory=dict)
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class ReportBug:
    """Log an exception of our own code, which cost the client this one message."""

    event: str
    error: Exception


Effect = (
    SendToClient
    | SendEncoded
    | SendError
    | CloseSuperseded
    | Submit
    | CancelRequest
    | TakeResult
    | AckResult
    | CallRoom
    | SendSignal
    | ExpectRelay
    | SendRelay
    | ReplyRelay
    | ForgetRelays
    | RenewRecord
    | ClaimRecord
    | TrimMail
    | EndSession
    | MoveSession
    | Count
    | ObserveStages
    | Log
    | ReportBug
)
