"""The session SDK: speak, and get translations. `Session` is the way in."""

from linguamesh.errors import RoomError, SessionError, Unreachable
from linguamesh.session.session import Session
from linguamesh.session.translation import Translation

__all__ = ["RoomError", "Session", "SessionError", "Translation", "Unreachable"]
