"""Turn: the event that is being handled, its time, and the effects decided so far. Shared by a session's parts."""

from __future__ import annotations

from collections.abc import Callable

from edge.sessions.core.effects import Effect, SendEncoded, SendError, SendToClient
from mesh.errors import PeerError
from mesh.messages.base import Message


class Turn:
    """Of one session. SessionState sets the time at each event and takes the effects; parts append in between."""

    __slots__ = ("do", "effects", "is_attached", "now_ms", "wall_ms", "wall_us")

    def __init__(self) -> None:
        self.now_ms = 0
        self.wall_ms = 0
        self.wall_us = 0
        self.effects: list[Effect] = []
        #: Decides on an effect.
        self.do: Callable[[Effect], None] = self.effects.append
        #: The client is connected: messages to it are sent, and otherwise dropped.
        self.is_attached = False

    def send(self, message: Message) -> None:
        """Send a message to the client, if it is connected."""
        if not self.is_attached:
            return
        last = self.effects[-1] if self.effects else None
        if type(last) is SendToClient:
            last.messages.append(message)
        else:
            self.do(SendToClient([message]))

    def send_encoded(self, message_type: str, body: bytes, audio: bytes | None = None) -> None:
        """The same for JSON text; with `audio` for a translation_result whose raw audio is apart."""
        if self.is_attached:
            self.do(SendEncoded(message_type, body, audio))

    def send_error(self, error: PeerError) -> None:
        """Send an `error` to the client, if it is connected."""
        if self.is_attached:
            self.do(SendError(error))
