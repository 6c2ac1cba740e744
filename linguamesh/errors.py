"""What can go wrong for a user of the SDKs.

LinguaError
├── Unreachable    nobody answers at the address
├── MeshRefused    the mesh does not answer a question or obey a command of an operator
├── SessionError   the mesh could not translate, or closed the session
│   └── RoomError  the mesh refused a request for a room
├── NodeRefused    the mesh does not take this node
└── JobFailed      raised by a node's handler to say why
"""

from __future__ import annotations

from typing import Any

from mesh.errors import ErrorCode


class LinguaError(Exception):
    """Base of all."""


class Unreachable(LinguaError):
    """Nobody answers at the address; the text says which and why."""


class MeshRefused(LinguaError):
    """The mesh answered an operator, but not with what was asked for. `status` is as in HTTP: 404, 409, 503, ..."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message or f"status {status}")
        self.status = status


class CodedError(LinguaError):
    """Carries a code of the wire: branch on `code`, show `hint`, never parse the text."""

    def __init__(self, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.details = details or {}

    @property
    def hint(self) -> str:
        """What the reader can do next; "" for a code that this version does not know."""
        known = ErrorCode.__members__.get(self.code)
        return known.hint if known else ""


class SessionError(CodedError):
    """An utterance failed, or the session as a whole. `utterance_index` is None for the session."""

    def __init__(
        self,
        code: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        utterance_index: int | None = None,
    ) -> None:
        super().__init__(code, message, details)
        self.utterance_index = utterance_index


class RoomError(SessionError):
    """A request for a room was refused: ROOM_NOT_FOUND, ROOM_FULL, NOT_IN_ROOM, ... The session itself lives on."""


class NodeRefused(CodedError):
    """The mesh refused the registration, or another connection took over this node id."""


class JobFailed(CodedError):
    """Raise it in a handler to fail the job with a code of your choice: JobFailed("MODEL_NOT_AVAILABLE", "no fr")."""
