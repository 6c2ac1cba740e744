"""Request: one accepted utterance on its way, and the effects that custody may ask of its rim. Holds no rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal, NamedTuple

import msgspec

from mesh.errors import ErrorCode
from mesh.frames import Cancel, Dispatch, Push, Refused
from mesh.messages.node import JobResult, NodeAsrPartial
from mesh.words import HedgeOutcome, ResultVerdict


class Stage(Enum):
    """What an attempt waits for."""

    SENDING = auto()
    RESTING = auto()
    PLACED = auto()


class Why(Enum):
    """Why a Dispatch goes out."""

    NEW = auto()
    NEXT = auto()  # another attempt
    HEDGE = auto()
    REPEAT = auto()  # for want of an answer
    AGAIN = auto()  # as told, or to ask after a job that a node has


@dataclass(slots=True, eq=False)
class Attempt:
    """One try to get a result: a number that the whole mesh fences by, and how far it has come."""

    number: int
    began_ms: int
    why: Why = Why.NEW
    stage: Stage = Stage.SENDING
    asked: bool = False
    #: Unanswered sends, and Busy answers in a row: both lengthen the next wait.
    sends: int = 0
    busy: int = 0
    #: Where the last one went; the next goes elsewhere.
    broker: str = ""
    #: It stood in line at a selector, and may still do so.
    in_line: bool = False
    #: When it is sent again.
    wake_ms: int = 0
    job_id: str = ""
    node_id: str = ""
    placed_ms: int = 0
    #: When the node is late with it; 0 = not said, or noticed already.
    late_ms: int = 0


class Failure(NamedTuple):
    """What a node said when it could not do it."""

    push: Push
    result: JobResult


@dataclass(slots=True, eq=False)
class Request:
    """One utterance on its way to one target language, with all that is needed to send it again."""

    dispatch: Dispatch  # as of attempt 1; attempt and exclusions are put in when it is sent
    work: bytes
    audio: bytes
    created_ms: int
    deadline_ms: int
    current: Attempt
    #: A second attempt beside a late one.
    hedge: Attempt | None = None
    #: The number of the last attempt made.
    attempts: int = 1
    #: Those that came to nothing by no fault of their node or the utterance.
    spared: int = 0
    excluded: list[str] = field(default_factory=list)
    #: When a node had it for the first time.
    placed_ms: int = 0
    #: Why there was no node when it was last asked for; "" if that was never so.
    obstacle: str = ""
    refusal: Refused | None = None
    #: A node failed on it and another is tried: what the client hears if no other does better.
    failure: Failure | None = None

    @property
    def request_id(self) -> str:
        """The id that names it in the whole mesh."""
        return self.dispatch.request_id

    @property
    def session_id(self) -> str:
        """The session that waits."""
        return self.dispatch.session_id

    @property
    def job_id(self) -> str:
        """The job of the current attempt, "" if it is not placed."""
        return self.current.job_id

    @property
    def tries(self) -> int:
        """The attempts that count."""
        return self.attempts - self.spared

    def live(self) -> list[Attempt]:
        """The attempts whose result is welcome."""
        return [self.current] if self.hedge is None else [self.current, self.hedge]

    def attempt(self, number: int) -> Attempt | None:
        """The live attempt of that number."""
        return next((attempt for attempt in self.live() if attempt.number == number), None)

    def exclude(self, node_id: str) -> None:
        """Keep the next attempts away from that node."""
        if node_id and node_id not in self.excluded:
            self.excluded.append(node_id)

    def frame(self, attempt: Attempt) -> Dispatch:
        """The Dispatch of an attempt. A hedge keeps away from the node that is late."""
        if attempt.number == 1:
            return self.dispatch
        excluded = list(self.excluded)
        beside = attempt is self.hedge
        if beside and self.current.node_id not in excluded:
            excluded.append(self.current.node_id)
        return msgspec.structs.replace(self.dispatch, attempt=attempt.number, excluded=excluded, beside=beside)

    def cancel(self, attempt: Attempt, reason: str) -> SendCancel:
        """Nobody waits for that attempt any more."""
        return SendCancel(
            Cancel(
                request_id=self.request_id,
                job_id=attempt.job_id,
                attempt=attempt.number,
                node_id=attempt.node_id,
                session_id=self.session_id,
                reason=reason,
            )
        )


# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendDispatch:
    """Send the attempt's frame, work and audio; then call `sent` with the broker that took it."""

    request: Request
    attempt: Attempt
    avoid: str
    why: Why


@dataclass(frozen=True, slots=True)
class TellPlaced:
    """A node has it, for the first time."""

    request: Request


@dataclass(frozen=True, slots=True)
class Deliver:
    """The end: hand this result, or a node's failure, to the session. None: it could not be read.

    From here on it is the session's to acknowledge upstream: when its client has it.
    """

    request: Request
    push: Push
    result: JobResult | None


@dataclass(frozen=True, slots=True)
class Fail:
    """The other end: tell the client why there is none."""

    request: Request
    code: ErrorCode
    message: str
    details: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class AckResult:
    """Acknowledge a result upstream: the edge of its node stops retrying it."""

    push: Push
    verdict: ResultVerdict


@dataclass(frozen=True, slots=True)
class Reject:
    """No request waits for this result. Its session decides whether that is acknowledged; without one it is."""

    push: Push
    verdict: ResultVerdict


@dataclass(frozen=True, slots=True)
class SendCancel:
    """Nobody waits any more: free the slot and stop the node."""

    cancel: Cancel


@dataclass(frozen=True, slots=True)
class CountHedge:
    """What came of a hedge (edge/requests/core/hedge_budget.py)."""

    outcome: HedgeOutcome


@dataclass(frozen=True, slots=True)
class TellBackpressure:
    """The mesh is full; ask the client to slow down."""

    session_id: str
    resume_after_ms: int


Effect = SendDispatch | TellPlaced | Deliver | Fail | AckResult | Reject | SendCancel | CountHedge | TellBackpressure


# --- events: what a session is notified of --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResultArrived:
    """A result, or a node's failure; None: it could not be read. The request is over."""

    request: Request
    push: Push
    result: JobResult | None


@dataclass(frozen=True, slots=True)
class ResultRejected:
    """A result that no request of the session waits for: a duplicate, a fenced one, or one that comes too early."""

    push: Push
    verdict: ResultVerdict


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """There will be no result. The request is over."""

    request: Request
    code: ErrorCode
    message: str
    details: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class RequestProgressed:
    """A request came a step further: it is placed, its node accepted it, or recognised a part of it."""

    request: Request
    stage: Literal["DISPATCHED", "NODE_ACCEPTED", "ASR_PARTIAL"]
    job_id: str = ""
    partial: NodeAsrPartial | None = None


@dataclass(frozen=True, slots=True)
class MeshThrottled:
    """No selector had capacity for a request of the session; it is retried after that time."""

    resume_after_ms: int
