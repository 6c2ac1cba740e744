"""Events of one session: everything that its core handles. Past tense, frozen, without rules.

A chunk of audio is its own event: at ten per second and client, a wrapper around each would be the largest cost here.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from edge.audio.core.reorder import Chunk
from edge.core.record import Record
from edge.requests.core.request import MeshThrottled, RequestFailed, RequestProgressed, ResultArrived, ResultRejected
from edge.rooms.core.events import RelayCompleted, RelayReceived, RoomReplied, SignalReplied
from mesh.frames import Post, Push
from mesh.messages.base import Message
from mesh.messages.node import JobResult

# --- the client -----------------------------------------------------------------------------------

ChunkReceived: TypeAlias = Chunk


class MessageReceived(Record, frozen=True):
    """A message of the client that is handled in order, of `size` bytes. An Utterance has a valid trace id."""

    message: Message
    size: int


class ClientAcked(Record, frozen=True):
    """The client has every result of that session, its own or another member's, up to that index."""

    session_id: str
    index: int


class CloseRequested(Record, frozen=True):
    """The client wants to close the session."""


# --- its connection -------------------------------------------------------------------------------


class MailedResult(NamedTuple):
    """A result from the mail; None: it cannot be decoded."""

    push: Push
    result: JobResult | None


class FoundMail(NamedTuple):
    """The mail of a session, oldest first, and the id of its last entry; "" = it was empty."""

    last: str = ""
    results: tuple[MailedResult, ...] = ()
    posts: tuple[tuple[Post, bytes], ...] = ()


NO_MAIL: Final = FoundMail()


class Attached(Record, frozen=True):
    """The client is at a connection: of a new session, or of one that it resumes with `token` and its mail."""

    token: str
    #: None: it did not try to resume. False: it did, and the session was over.
    resumed: bool | None = None
    lost: bool | None = None
    #: The last index that the client has; -1 = none.
    last_index: int = -1
    mail: FoundMail = NO_MAIL
    #: This connection agreed to binary messages.
    binary_messages: bool = False


class Detached(Record, frozen=True):
    """The client's connection is lost, without a session_close."""


class ResumeStarted(Record, frozen=True):
    """A new connection of the client has claimed the session; its mail is being read."""


class ResumeFailed(Record, frozen=True):
    """The mail could not be read. The client will retry."""


# --- ownership ------------------------------------------------------------------------------------


class OwnerReported(Record, frozen=True):
    """The mesh reported the owner of the session and its epoch. "": it has no record of the session."""

    edge: str
    epoch: int


class RecordClaimed(Record, frozen=True):
    """The mesh has a record of the session again, with that epoch."""

    epoch: int


class Evicted(Record, frozen=True):
    """Too many sessions of this edge are detached, and this one for the longest time."""


class Replaced(Record, frozen=True):
    """The client opened or resumed another session on the same connection."""

    reason: str


# --- time -----------------------------------------------------------------------------------------


class Ticked(Record, frozen=True):
    """A due time has come."""


Event = (
    ChunkReceived
    | MessageReceived
    | ClientAcked
    | CloseRequested
    | Attached
    | Detached
    | ResumeStarted
    | ResumeFailed
    | OwnerReported
    | RecordClaimed
    | Evicted
    | Replaced
    | ResultArrived
    | ResultRejected
    | RequestFailed
    | RequestProgressed
    | MeshThrottled
    | RoomReplied
    | SignalReplied
    | RelayReceived
    | RelayCompleted
    | Ticked
)
