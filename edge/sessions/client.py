"""Client: one connection on /ws/session and the session that it carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.transport.websocket import Socket
from mesh.errors import ErrorCode, PeerError

if TYPE_CHECKING:
    from edge.sessions.actor import Actor


class ClientSocket(Socket):
    """One connection on /ws/session."""

    #: Its session; also one that was closed, whose late messages are answered with SESSION_CLOSED.
    actor: Actor | None = None

    def own(self) -> Actor:
        """The session of this connection; PeerError if there is none."""
        if self.actor is None:
            raise PeerError(ErrorCode.INVALID_SESSION, "there is no session on this connection yet")
        return self.actor
