"""Effects of one session: the decisions of its core, which the actor runs in order. No rules."""

from __future__ import annotations

from enum import Enum

import msgspec

from edge.core.record import Record
from edge.requests.core.request import AckResult
from edge.rooms.core.events import RoomCall
from edge.rooms.core.relay_queue import RelayMessage
from mesh.errors import PeerError
from mesh.frames import Dispatch, Post, Push
from mesh.messages.base import Message
from mesh.messages.node import JobResult

# --- the client -----------------------------------------------------------------------------------


class SendToClient(Record, frozen=True):
    """Send messages; those that follow one another in a turn are one effect."""

    messages: list[Message]


class SendEncoded(Record, frozen=True):
    """Send a message that is encoded already. With `audio`: `body` is the translation_result without its own."""

    message_type: str
    body: bytes
    audio: bytes | None = None


class SendError(Record, frozen=True):
    """Send an `error`; the connection stays open."""

    error: PeerError


class CloseSuperseded(Record, frozen=True):
    """Close the client's connection: the session has a newer one."""


# --- requests -------------------------------------------------------------------------------------


class Submit(Record, frozen=True):
    """Submit a request to the tracker, and count the utterance."""

    dispatch: Dispatch
    work: bytes
    audio: bytes
    created_ms: int
    deadline_ms: int


class CancelRequest(Record, frozen=True):
    """Cancel a request: its index has ended without it."""

    request_id: str
    reason: str


class TakeResult(Record, frozen=True):
    """Pass a result from the mail to the tracker, as if the mesh had pushed it."""

    push: Push
    result: JobResult | None


# --- rooms ----------------------------------------------------------------------------------------


class CallRoom(Record, frozen=True):
    """Call the cell of a room; RoomReplied follows."""

    call: RoomCall


class SendSignal(Record, frozen=True):
    """Pass a webrtc_* message to another member; SignalReplied follows."""

    code: str
    target: str
    body: bytes


class ExpectRelay(Record, frozen=True):
    """Reserve a place for the message with that key: later ones to that listener wait for it."""

    listener: str
    key: str


class SendRelay(Record, frozen=True):
    """Send a message to another session; RelayCompleted follows if the message names its sender."""

    queue: str
    message: RelayMessage


class ReplyRelay(Record, frozen=True):
    """The outcome of a message of another session."""

    post: Post
    queue: str
    verdict: str


class ForgetRelays(Record, frozen=True):
    """Cancel the places that were reserved for this session's messages."""


# --- the session's record -------------------------------------------------------------------------


class RenewRecord(Record, frozen=True):
    """Renew the record of the session, with its room; `is_detached`: results go to the mail."""

    is_detached: bool
    room: str


class ClaimRecord(Record, frozen=True):
    """Claim the session anew: the mesh lost its record. RecordClaimed follows."""


class TrimMail(Record, frozen=True):
    """Delete the mail up to that entry: the client has it."""

    last: str


class EndSession(Record, frozen=True):
    """The last effect of a session that is over: cancel its requests, release its ownership, forget it."""

    reason: str
    #: Requests that had no result yet.
    pending: int


class MoveSession(Record, frozen=True):
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


class Count(Record, frozen=True):
    """Increase a counter; label "" = it has none."""

    counter: CounterName
    label: str = ""
    amount: int = 1


class ObserveStages(Record, frozen=True):
    """Count the microseconds of a result's stages, in the order of LatencyStage."""

    stages: list[int]


class Log(Record, frozen=True):
    """Write a log line about this session."""

    event: str
    fields: dict[str, object] = msgspec.field(default_factory=dict)
    is_warning: bool = False


class ReportBug(Record, frozen=True):
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
