"""Request: one accepted utterance on its way, and the effects that custody may ask of its rim. Holds no rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

import msgspec

from mesh.errors import ErrorCode
from mesh.frames import Dispatch, Push, Refused


class Stage(Enum):
    """What a request waits for."""

    SENDING = auto()
    RESTING = auto()
    PLACED = auto()


@dataclass(slots=True, eq=False)
class Request:
    """One utterance on its way to one target language, with all that is needed to send it again."""

    dispatch: Dispatch  # as of attempt 1; the current attempt and exclusions are put in when it is sent
    work: bytes
    audio: bytes
    created_ms: int
    deadline_ms: int
    attempt: int = 1
    stage: Stage = Stage.SENDING
    excluded: list[str] = field(default_factory=list)
    #: Unanswered sends of this attempt, and Busy answers in a row: both lengthen the next wait.
    sends: int = 0
    busy: int = 0
    #: Where the last one went; the next goes elsewhere.
    broker: str = ""
    job_id: str = ""
    node_id: str = ""
    placed_ms: int = 0
    refusal: Refused | None = None

    @property
    def request_id(self) -> str:
        """The id that names it in the whole mesh."""
        return self.dispatch.request_id

    @property
    def session_id(self) -> str:
        """The session that waits."""
        return self.dispatch.session_id

    def frame(self) -> Dispatch:
        """The Dispatch of the current attempt."""
        if self.attempt == 1:
            return self.dispatch
        return msgspec.structs.replace(self.dispatch, attempt=self.attempt, excluded=list(self.excluded))


# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendDispatch:
    """Send the request's frame, work and audio; then call `sent` with the broker that took it."""

    request: Request
    avoid: str


@dataclass(frozen=True, slots=True)
class TellPlaced:
    """A node has it, for the first time."""

    request: Request


@dataclass(frozen=True, slots=True)
class Deliver:
    """The end: hand this result to the client."""

    request: Request
    push: Push
    text: bytes


@dataclass(frozen=True, slots=True)
class Fail:
    """The other end: tell the client why there is none."""

    request: Request
    code: ErrorCode
    message: str
    details: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class AckResult:
    """Answer the edge that keeps a result."""

    push: Push
    verdict: str


@dataclass(frozen=True, slots=True)
class SendCancel:
    """Nobody waits any more: free the slot and stop the node."""

    request: Request
    reason: str


@dataclass(frozen=True, slots=True)
class TellBackpressure:
    """The mesh is full; ask the client to slow down."""

    session_id: str
    resume_after_ms: int


Effect = SendDispatch | TellPlaced | Deliver | Fail | AckResult | SendCancel | TellBackpressure
