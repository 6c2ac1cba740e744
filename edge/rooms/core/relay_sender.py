"""RelaySender: reliable, ordered delivery of messages to other sessions. Stop-and-wait per queue and listener. Pure.

A queue is a speaker's, or a room's for its lists of members. Of each queue at most one message per listener is in
flight; the next one leaves when that has its outcome. A listener whose client is connected to this edge gets it
directly, any other by a call to its cell (Post), which is retried by the link.

    queued -> DeliverHere -> on_reply(verdict)              -> Complete
                          -> on_reply(MOVED) -> CallListener -> on_reply(verdict or PostFailure.NO_ANSWER) -> Complete
                          -> nothing within ack_timeout_ms   -> Complete(PostFailure.NO_ANSWER)
           -> CallListener -> ...
           -> no capacity in the queue                       -> Complete(PostFailure.DROPPED)
"""

from __future__ import annotations

from collections.abc import Callable

from edge.core.record import Record
from edge.core.timers import Timers, Wake, no_wake
from edge.rooms.core import relay_queue
from edge.rooms.core.events import MOVED
from edge.rooms.core.relay_queue import RelayMessage, RelayQueue
from mesh.config.sessions import SessionConfig
from mesh.words import PostFailure

#: Queue and listener.
Pair = tuple[str, str]


class DeliverHere(Record, frozen=True):
    """Hand the message to the listener's session, which is at this edge; its reply goes to `on_reply`."""

    queue: str
    message: RelayMessage


class CallListener(Record, frozen=True):
    """Send the message to the listener's cell; the reply goes to `on_reply`."""

    queue: str
    message: RelayMessage


class Complete(Record, frozen=True):
    """The message has its outcome: count it, and notify its sender."""

    message: RelayMessage
    verdict: str


Effect = DeliverHere | CallListener | Complete


class RelaySender:
    """All messages of this edge to other sessions. `is_attached`: is that session's client connected to this edge?"""

    def __init__(self, config: SessionConfig, is_attached: Callable[[str], bool], wake: Wake = no_wake) -> None:
        self._queues = RelayQueue(relay_queue.RelayLimits(config.mail_max, config.mail_bytes_max))
        #: How long a listener at this edge may take to acknowledge.
        self._ack_timeout_ms = config.resume_ms
        self._is_attached = is_attached
        self._in_flight: dict[Pair, RelayMessage] = {}
        self.timers: Timers[Pair] = Timers(wake)

    def __len__(self) -> int:
        return len(self._queues)

    def expect(self, queue: str, listener: str, key: str) -> None:
        """Reserve a place: later messages to that listener wait for the one with that key."""
        self._queues.reserve(queue, listener, key)

    def send(self, queue: str, message: RelayMessage) -> list[Effect]:
        """Queue a message behind those of the same queue to the same listener."""
        if self._queues.put(queue, message):
            return self._next((queue, message.listener))
        return [*self._next((queue, message.listener)), Complete(message, PostFailure.DROPPED)]

    def forget(self, queue: str) -> list[Effect]:
        """The sender left: cancel the places that it reserved and did not fill."""
        effects: list[Effect] = []
        for listener in self._queues.forget(queue):
            effects += self._next((queue, listener))
        return effects

    def delivering(self, queue: str, message: RelayMessage, now_ms: int) -> None:
        """The listener's session gets the message now: its acknowledgement has a timeout from here on."""
        if self._in_flight.get((queue, message.listener)) is message:
            self.timers.set((queue, message.listener), now_ms + self._ack_timeout_ms)

    def on_reply(self, queue: str, listener: str, key: str, verdict: str) -> list[Effect]:
        """The outcome of the message in flight. MOVED: the listener is no longer here, so its cell is called."""
        pair = (queue, listener)
        message = self._in_flight.get(pair)
        if message is None or message.key != key:
            return []  # too late: it timed out
        self.timers.drop(pair)
        return [CallListener(queue, message)] if verdict == MOVED else self._complete(pair, verdict)

    def tick(self, now_ms: int) -> list[Effect]:
        """Abandon messages that listeners of this edge did not acknowledge in time."""
        return [
            effect for pair in self.timers.pop_due(now_ms) for effect in self._complete(pair, PostFailure.NO_ANSWER)
        ]

    def _next(self, pair: Pair) -> list[Effect]:
        message = self._queues.first(*pair)
        if message is None or pair in self._in_flight:
            return []
        self._in_flight[pair] = message
        here = self._is_attached(message.listener)
        return [DeliverHere(pair[0], message) if here else CallListener(pair[0], message)]

    def _complete(self, pair: Pair, verdict: str) -> list[Effect]:
        message = self._in_flight.pop(pair)
        self.timers.drop(pair)
        self._queues.pop(*pair)
        return [*self._next(pair), Complete(message, verdict)]

    def check(self) -> None:
        """Every message in flight is the first of its queue, and only such messages have a timeout."""
        self._queues.check()
        self.timers.check()
        assert all(self._queues.first(*pair) is message for pair, message in self._in_flight.items())
        assert all(pair in self._in_flight for pair in self.timers)
