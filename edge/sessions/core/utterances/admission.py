"""Admission: when is an utterance refused, and when must it wait? All gates are here, in the order they are met.

A message of the client passes up to three checks:

1. On arrival (`put`). While nothing is before it, a message is handled at once. Otherwise it waits in the inbound
   queue, which is bounded in messages and bytes.
       QUEUE_FULL        refused with SLOW_DOWN and backpressure BUSY; the client resends it
       OVERTAKES         the same for a chunk after one that was refused: accepted now, it would make the resent chunk
                         a duplicate
   Handling stops (`is_blocked`) while a call about its room is open, while a complete utterance waits at a gate of (3),
   and while a resumable client leaves too many results unacknowledged.
2. A whole utterance at its turn (`gate_of`); a streamed one is not subject to these, because its audio is accepted.
       ENDED             its index has its result: UTTERANCE_ENDED
       TOO_FAR_AHEAD     too many earlier indices have not ended: TOO_MANY_UTTERANCES
       DUPLICATE         accepted before: ignored (deduplicated by its job key)
       TOO_MANY_PENDING  too many requests of the session have no result: TOO_MANY_UTTERANCES
       TOO_MUCH_AUDIO    too much audio of pending requests, of this session or of all: SLOW_DOWN
3. Every complete utterance before it becomes requests (`blocking_gate`). It waits here, and with it all that follows.
       TOO_FAR_AHEAD, TOO_MANY_PENDING, TOO_MUCH_AUDIO

Counts of pending requests and their audio are the session's own, so they are exact also while a Submit of the same turn
has not been run. Only the total of the edge comes from the request tracker.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Protocol

from edge.audio.core.reorder import Chunk
from edge.sessions.core.limits import SessionLimits
from edge.sessions.core.results.outcomes import Outcomes
from edge.sessions.core.session import FinalizedUtterance, Session
from edge.sessions.core.utterances.inbound_queue import Advice, InboundQueue
from mesh.errors import ErrorCode, PeerError
from mesh.messages.base import Message
from mesh.messages.client import Utterance

#: A message that is handled in order.
Inbound = Chunk | Message


class Backlog(Protocol):
    """The counts of the table of pending requests."""

    #: Audio of all pending requests of this edge, and of each session that has any.
    audio_bytes: int
    bytes_of: dict[str, int]


class Gate(Enum):
    """Why an utterance, or a part of one, is refused or waits."""

    QUEUE_FULL = auto()
    OVERTAKES = auto()
    ENDED = auto()
    TOO_FAR_AHEAD = auto()
    DUPLICATE = auto()
    TOO_MANY_PENDING = auto()
    TOO_MUCH_AUDIO = auto()


_REFUSED: Final = "too many messages wait; send it again later"


class Admission:
    """The gates of one session, and the messages and utterances that wait at them."""

    __slots__ = (
        "_backlog",
        "_inbound",
        "_limits",
        "_outcomes",
        "_refused_seq",
        "_session",
        "is_calling",
        "unsent",
        "waiting",
    )

    def __init__(self, session: Session, limits: SessionLimits, outcomes: Outcomes, backlog: Backlog) -> None:
        self._session = session
        self._limits = limits
        self._outcomes = outcomes
        self._backlog = backlog
        self._inbound: InboundQueue[Inbound] = InboundQueue(limits.inbound_max, bytes_max=limits.inbound_bytes_max)
        #: Messages in the inbound queue.
        self.waiting = 0
        #: The first chunk that was refused. A resumable client resends it, and then those after it.
        self._refused_seq: int | None = None
        #: A call about the session's room is open: its reply decides what later messages mean.
        self.is_calling = False
        #: Complete utterances that wait for a gate of (3), oldest first.
        self.unsent: list[FinalizedUtterance] = []

    # --- on arrival -------------------------------------------------------------------------------

    @property
    def is_clear(self) -> bool:
        """True if a message that arrives now is handled at once."""
        if self.waiting or self._refused_seq is not None or self.is_calling or self.unsent:
            return False
        return not self._outcomes.delivery.is_resumable or not self.is_blocked

    @property
    def is_blocked(self) -> bool:
        """True while no message of the client may be handled."""
        if self.is_calling or self.unsent:
            return True
        limits, outcomes = self._limits, self._outcomes
        if not outcomes.delivery.is_resumable:
            return False
        unacked = outcomes.delivery.unacked
        client_indices = len(unacked.indices) - unacked.with_listeners
        return client_indices >= limits.unacked_max or unacked.bytes >= limits.unacked_bytes_max

    def put(self, event: Inbound, size: int, now_ms: int) -> tuple[Gate | None, Advice]:
        """Queue a message. The gate that refuses it, if one does, and the backpressure advice for the client."""
        if self._overtakes(event):
            return Gate.OVERTAKES, self._inbound.refuse(now_ms)
        advice = self._inbound.put(event, now_ms, size)
        if advice.accepted:
            self.waiting += 1
            return None, advice
        if self._outcomes.delivery.is_resumable and type(event) is Chunk and self._refused_seq is None:
            self._refused_seq = event.seq
        return Gate.QUEUE_FULL, advice

    def next(self) -> Inbound | None:
        """The oldest message that may be handled now; None if there is none."""
        if not self.waiting or self.is_blocked:
            return None
        self.waiting -= 1
        return self._inbound.pop()

    def reattached(self) -> None:
        """The client has a new connection: it resends every chunk from the expected one on."""
        self._refused_seq = None

    def _overtakes(self, event: Inbound) -> bool:
        if self._refused_seq is None or type(event) is not Chunk:
            return False
        if event.seq == self._refused_seq:
            self._refused_seq = None
            return False
        return event.seq > self._refused_seq

    # --- utterances -------------------------------------------------------------------------------

    def gate_of(self, message: Utterance) -> Gate | None:
        """The gate that refuses a whole utterance; None if none does. The audio has a gate of its own."""
        order, index = self._outcomes.order, message.utterance_index
        if order.has_ended(index):
            return Gate.ENDED
        if not order.reaches(index):
            return Gate.TOO_FAR_AHEAD
        if self._session.key_of(message) in self._session.seen:
            return Gate.DUPLICATE
        return Gate.TOO_MANY_PENDING if len(self._outcomes.requests) >= self._limits.pending_max else None

    def gate_of_audio(self, audio_bytes: int) -> Gate | None:
        """The gate that refuses that much audio; None if none does."""
        limits, own = self._limits, self._outcomes.audio_bytes
        if own and own + audio_bytes > limits.audio_per_session_bytes_max:
            return Gate.TOO_MUCH_AUDIO
        # Requests of this turn are not submitted yet.
        unsubmitted = own - self._backlog.bytes_of.get(self._session.session_id, 0)
        total = self._backlog.audio_bytes + unsubmitted + audio_bytes
        return Gate.TOO_MUCH_AUDIO if total > limits.audio_bytes_max else None

    def blocking_gate(self, utterance: FinalizedUtterance) -> Gate | None:
        """The gate at which a complete utterance waits; None: it may become requests."""
        if not self._outcomes.order.reaches(utterance.message.utterance_index):
            return Gate.TOO_FAR_AHEAD
        if len(self._outcomes.requests) >= self._limits.pending_max:
            return Gate.TOO_MANY_PENDING
        return self.gate_of_audio(len(utterance.audio))

    def error(self, gate: Gate, index: int = 0) -> PeerError | None:
        """The error for the client; None: a duplicate is ignored."""
        outcomes = self._outcomes
        if gate is Gate.ENDED:
            return PeerError(ErrorCode.UTTERANCE_ENDED, f"utterance {index} has ended")
        if gate is Gate.TOO_FAR_AHEAD:
            text = f"utterance {index} is too far ahead: {outcomes.order.next_index} has not ended"
            return PeerError(ErrorCode.TOO_MANY_UTTERANCES, text)
        if gate is Gate.TOO_MANY_PENDING:
            text = f"{len(outcomes.requests)} utterances wait for their results"
            return PeerError(ErrorCode.TOO_MANY_UTTERANCES, text)
        if gate is Gate.TOO_MUCH_AUDIO:
            return PeerError(ErrorCode.SLOW_DOWN, "too much audio waits for results")
        return None if gate is Gate.DUPLICATE else PeerError(ErrorCode.SLOW_DOWN, _REFUSED)

    def check(self) -> None:
        """The bounds hold."""
        limits = self._limits
        assert self.waiting == len(self._inbound) <= limits.inbound_max
        assert self._inbound.bytes <= limits.inbound_bytes_max or self.waiting == 1
        assert self._refused_seq is None or self._outcomes.delivery.is_resumable
