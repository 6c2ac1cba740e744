"""Request: one accepted utterance without a result, its attempts, and the tracker's effects and events. No rules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal, NamedTuple

import msgspec

from edge.core.record import Record
from mesh.errors import ErrorCode
from mesh.frames import Cancel, Dispatch, Push, Refused
from mesh.messages.node import JobResult, NodeAsrPartial
from mesh.words import HedgeOutcome, ResultVerdict


class Stage(Enum):
    """What an attempt waits for (see tracker.py)."""

    SENDING = auto()
    DELAYED = auto()
    PLACED = auto()


class SendReason(Enum):
    """Why a Dispatch is sent."""

    NEW = auto()
    NEXT_ATTEMPT = auto()
    HEDGE = auto()
    RETRY = auto()  # no reply arrived
    POLL = auto()  # after the delay that a selector asked for, or to check on a placed job


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt to get a result: a number that the whole mesh fences by, and its stage."""

    number: int
    began_ms: int
    reason: SendReason = SendReason.NEW
    stage: Stage = Stage.SENDING
    #: Sends in all.
    sent: int = 0
    #: Sends without a reply, and Busy replies in a row: both lengthen the next backoff.
    sends: int = 0
    busy: int = 0
    #: The broker of the last send; a retry avoids it.
    broker: str = ""
    #: It was in the wait queue of a selector, and may still be.
    is_queued: bool = False
    #: When it is sent next, and when it times out.
    wake_ms: int = 0
    limit_ms: int = 0
    job_id: str = ""
    node_id: str = ""
    placed_ms: int = 0
    #: When the node is late with it and a hedge may begin; 0 = no such time, or it has passed.
    late_ms: int = 0


class Failure(NamedTuple):
    """The failure that a node reported."""

    push: Push
    result: JobResult


class Request(msgspec.Struct, eq=False):
    """One utterance for one target language, with everything that a retry needs."""

    dispatch: Dispatch  # of attempt 1; attempt and exclusions are filled in by `frame`
    work: bytes
    audio: bytes
    created_ms: int
    deadline_ms: int
    current: Attempt
    #: Those of the Dispatch; set here.
    request_id: str = ""
    session_id: str = ""
    #: A second attempt beside a late one.
    hedge: Attempt | None = None
    #: The number of the last attempt made.
    attempts: int = 1
    #: Attempts that failed for a reason of BLAMELESS_REASONS: they do not count.
    blameless: int = 0
    excluded: list[str] = msgspec.field(default_factory=list)
    #: When it was first placed, and when it ended; 0 = not yet.
    placed_ms: int = 0
    ended_ms: int = 0
    #: Why it could not be placed last time; "" = that never happened.
    obstacle: str = ""
    refusal: Refused | None = None
    #: The failure that the client gets unless another attempt succeeds.
    failure: Failure | None = None

    def __post_init__(self) -> None:
        self.request_id, self.session_id = self.dispatch.request_id, self.dispatch.session_id

    @property
    def counted_attempts(self) -> int:
        """Attempts without the blameless ones: the number that `attempts_max` bounds."""
        return self.attempts - self.blameless

    def live(self) -> list[Attempt]:
        """The attempts whose result is accepted."""
        return [self.current] if self.hedge is None else [self.current, self.hedge]

    def attempt(self, number: int) -> Attempt | None:
        """The live attempt of that number."""
        if self.current.number == number:
            return self.current
        return self.hedge if self.hedge is not None and self.hedge.number == number else None

    def exclude(self, node_id: str) -> None:
        """Exclude a node from the next attempts."""
        if node_id and node_id not in self.excluded:
            self.excluded.append(node_id)

    def frame(self, attempt: Attempt) -> Dispatch:
        """The Dispatch of an attempt that is being sent. A hedge excludes the node that is late."""
        if attempt.number == 1 and attempt.sent <= 1:
            return self.dispatch
        resend = self.dispatch.resend + attempt.sent - 1
        excluded = list(self.excluded)
        beside = attempt is self.hedge
        if beside and self.current.node_id not in excluded:
            excluded.append(self.current.node_id)
        return msgspec.structs.replace(
            self.dispatch, attempt=attempt.number, excluded=excluded, beside=beside, resend=resend
        )

    def cancel(self, attempt: Attempt, reason: str) -> SendCancel:
        """The effect that cancels an attempt."""
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


class SendDispatch(Record, frozen=True):
    """Send the attempt's frame, work and audio; its `broker` is the one that took it, "" if none is live."""

    request: Request
    attempt: Attempt
    avoid: str
    reason: SendReason


class NotifyPlaced(Record, frozen=True):
    """Notify the session that a node has the job, for the first time."""

    request: Request


class Deliver(Record, frozen=True):
    """The request is over: pass its result, or a node's failure, to the session. None: it cannot be decoded.

    The session acknowledges it upstream, when its client has it.
    """

    request: Request
    push: Push
    result: JobResult | None


class Fail(Record, frozen=True):
    """The request is over without a result: notify the session of the reason."""

    request: Request
    code: ErrorCode
    message: str
    details: dict[str, object] | None = None


class AckResult(Record, frozen=True):
    """Acknowledge a result upstream: the edge of its node stops retrying it."""

    push: Push
    verdict: ResultVerdict


class Reject(Record, frozen=True):
    """The result belongs to no pending request. Its session decides whether to acknowledge it; without one it is."""

    push: Push
    verdict: ResultVerdict


class SendCancel(Record, frozen=True):
    """Cancel an attempt: free its slot and stop the node."""

    cancel: Cancel


class CountHedge(Record, frozen=True):
    """Count the outcome of a hedge (hedge_budget.py)."""

    outcome: HedgeOutcome


class NotifyBackpressure(Record, frozen=True):
    """Notify the session that no selector had capacity."""

    session_id: str
    resume_after_ms: int


Effect = (
    SendDispatch | NotifyPlaced | Deliver | Fail | AckResult | Reject | SendCancel | CountHedge | NotifyBackpressure
)


# --- events for a session -----------------------------------------------------------------------


class ResultArrived(Record, frozen=True):
    """A result, or a node's failure; None: it cannot be decoded. The request is over."""

    request: Request
    push: Push
    result: JobResult | None


class ResultRejected(Record, frozen=True):
    """A result of no pending request: a duplicate, a fenced one, or one that arrived before its request."""

    push: Push
    verdict: ResultVerdict


class RequestFailed(Record, frozen=True):
    """There will be no result. The request is over."""

    request: Request
    code: ErrorCode
    message: str
    details: dict[str, object] | None = None


class RequestProgressed(Record, frozen=True):
    """Progress of a request: it is placed, its node accepted it, or recognised a part of it."""

    request: Request
    stage: Literal["DISPATCHED", "NODE_ACCEPTED", "ASR_PARTIAL"]
    job_id: str = ""
    partial: NodeAsrPartial | None = None


class MeshThrottled(Record, frozen=True):
    """No selector had capacity for a request of the session; it is retried after that time."""

    resume_after_ms: int
