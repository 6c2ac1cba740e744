"""Turn: the event that is being handled, its time, and the effects decided so far. Shared by a session's parts."""

from __future__ import annotations

from edge.sessions.core.effects import Count, CounterName, Effect, SendEncoded, SendError, SendToClient
from mesh.errors import PeerError
from mesh.messages.base import Message


class Turn:
    """Of one session. SessionState sets the time at each event and takes the effects; parts append in between."""

    __slots__ = ("effects", "is_attached", "now_ms", "wall_ms")

    def __init__(self) -> None:
        self.now_ms = 0
        self.wall_ms = 0
        self.effects: list[Effect] = []
        #: The client is connected: messages to it are sent, and otherwise dropped.
        self.is_attached = False

    def do(self, effect: Effect) -> None:
        """Decide on an effect."""
        self.effects.append(effect)

    def send(self, message: Message) -> None:
        """Send a message to the client, if it is connected."""
        if self.is_attached:
            self.effects.append(SendToClient(message))

    def send_encoded(self, message_type: str, body: bytes) -> None:
        """The same for JSON text."""
        if self.is_attached:
            self.effects.append(SendEncoded(message_type, body))

    def send_error(self, error: PeerError) -> None:
        """Send an `error` to the client, if it is connected."""
        if self.is_attached:
            self.effects.append(SendError(error))

    def count(self, counter: CounterName, label: str = "", amount: int = 1) -> None:
        """Increase a counter."""
        self.effects.append(Count(counter, label, amount))
