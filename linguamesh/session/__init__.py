"""The session SDK: send or stream speech, receive translations. `Session` is the entry point."""

from linguamesh.errors import RoomError, SessionError, Unreachable
from linguamesh.session.results import Translation
from linguamesh.session.session import Session

__all__ = ["RoomError", "Session", "SessionError", "Translation", "Unreachable"]
