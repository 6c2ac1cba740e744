"""RelayQueue: messages from speakers to listeners that are not delivered yet, in order. Pure.

Between one speaker and one listener messages leave in the order of their places. A place may be reserved for a later
message: a listener that changes its language must not get the later utterance first. The messages to one listener are
bounded, in number and in bytes: a slow listener costs the speaker no more than that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from mesh.words import PostKind


class RelayMessage(NamedTuple):
    """One message for one session. `key` is the same however often it is sent."""

    listener: str
    kind: str
    key: str
    body: bytes
    room_code: str
    #: Park it in the mail while the listener is detached.
    park: bool
    #: The session that is notified of the outcome; "" = none is.
    sender: str = ""
    #: Of a result; the sender finds it by language and key when the outcome arrives.
    language: str = ""


class RelayLimits(NamedTuple):
    """Bounds of the messages between one speaker and one listener."""

    messages_max: int
    bytes_max: int


@dataclass(slots=True, eq=False)
class _Place:
    key: str
    #: None: it is reserved.
    message: RelayMessage | None = None


class _ListenerQueue:
    """The places between one speaker and one listener, and the bytes in them."""

    __slots__ = ("bytes", "places")

    def __init__(self) -> None:
        self.places: deque[_Place] = deque()
        self.bytes = 0


class RelayQueue:
    """All undelivered messages, by speaker and listener."""

    def __init__(self, limits: RelayLimits) -> None:
        self._limits = limits
        self._queues: dict[str, dict[str, _ListenerQueue]] = {}

    def __len__(self) -> int:
        queues = (queue for queues in self._queues.values() for queue in queues.values())
        return sum(place.message is not None for queue in queues for place in queue.places)

    def reserve(self, speaker: str, listener: str, key: str) -> None:
        """Reserve a place for the message with that key: later ones wait for it. No effect if the queue is full."""
        queue = self._queue_of(speaker, listener)
        if len(queue.places) < self._limits.messages_max:
            queue.places.append(_Place(key))
        self._drop_empty(speaker, listener)

    def put(self, speaker: str, message: RelayMessage) -> bool:
        """Queue a message, at its reserved place or else last; False if there is no capacity for it."""
        queue = self._queue_of(speaker, message.listener)
        place = next((one for one in queue.places if one.message is None and one.key == message.key), None)
        latest = queue.places[-1] if len(queue.places) > 1 else None  # the first one may be in flight
        if (
            message.kind == PostKind.ROOM_MEMBERS
            and latest is not None
            and latest.message
            and latest.message.kind == PostKind.ROOM_MEMBERS
        ):
            queue.bytes -= len(latest.message.body)
            place = latest
        fits = not queue.bytes or queue.bytes + len(message.body) <= self._limits.bytes_max
        if not fits or (place is None and len(queue.places) >= self._limits.messages_max):
            if place is not None:
                queue.places.remove(place)
            self._drop_empty(speaker, message.listener)
            return False
        if place is None:
            place = _Place(message.key)
            queue.places.append(place)
        place.message = message
        queue.bytes += len(message.body)
        return True

    def first(self, speaker: str, listener: str) -> RelayMessage | None:
        """The message whose turn it is; None if there is none, or its place is only reserved."""
        queue = self._queues.get(speaker, {}).get(listener)
        return queue.places[0].message if queue is not None else None

    def pop(self, speaker: str, listener: str) -> None:
        """The first message has its outcome."""
        queue = self._queues[speaker][listener]
        message = queue.places.popleft().message
        assert message is not None, "only a sent message has an outcome"
        queue.bytes -= len(message.body)
        self._drop_empty(speaker, listener)

    def forget(self, speaker: str) -> list[str]:
        """Cancel the speaker's reserved places. Returns the listeners that still have messages."""
        for listener, queue in list(self._queues.get(speaker, {}).items()):
            queue.places = deque(place for place in queue.places if place.message is not None)
            self._drop_empty(speaker, listener)
        return list(self._queues.get(speaker, ()))

    def _queue_of(self, speaker: str, listener: str) -> _ListenerQueue:
        return self._queues.setdefault(speaker, {}).setdefault(listener, _ListenerQueue())

    def _drop_empty(self, speaker: str, listener: str) -> None:
        queues = self._queues[speaker]
        if not queues[listener].places:
            del queues[listener]
        if not queues:
            del self._queues[speaker]

    def check(self) -> None:
        """No queue is empty, all counts are exact and all bounds hold."""
        for queues in self._queues.values():
            assert queues
            for queue in queues.values():
                sizes = [len(place.message.body) for place in queue.places if place.message is not None]
                assert 0 < len(queue.places) <= self._limits.messages_max and queue.bytes == sum(sizes)
                assert queue.bytes <= self._limits.bytes_max or sum(map(bool, sizes)) == 1
