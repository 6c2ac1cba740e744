"""The exceptions of the SDKs.

LinguaError
├── Unreachable    no mesh answers at the address
├── MeshRefused    the mesh refused an operator's query or command
├── SessionError   the mesh could not translate, or closed the session
│   └── RoomError  the mesh refused a request for a room
├── NodeRefused    the mesh refused this node
└── JobFailed      raised by a node's handler, with the reason
"""

from __future__ import annotations

from typing import Any, Final

from mesh.errors import ErrorCode

#: Refusals of a handshake that are retried, with backoff: they are temporary.
RETRYABLE_CODES: Final = frozenset(
    code.name for code in (ErrorCode.INTERNAL_ERROR, ErrorCode.SCHEDULER_DEPENDENCY_DOWN, ErrorCode.SLOW_DOWN)
)


class LinguaError(Exception):
    """Base of all exceptions of the SDKs."""


class Unreachable(LinguaError):
    """No mesh answers at the address; the text has the address and the reason."""


class MeshRefused(LinguaError):
    """The mesh refused an operator's query or command. `status` is as in HTTP: 404, 409, 503, ..."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message or f"status {status}")
        self.status = status


class CodedError(LinguaError):
    """Has an error code of the protocol: branch on `code`, show `hint`, never parse the text."""

    def __init__(self, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.details = details or {}

    @property
    def hint(self) -> str:
        """The next step for the reader; "" for a code that this version does not know."""
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
    """A request for a room was refused: ROOM_NOT_FOUND, ROOM_FULL, NOT_IN_ROOM, ... The session stays open."""


class NodeRefused(CodedError):
    """The mesh refused the registration, or another connection took over this node id."""


class JobFailed(CodedError):
    """Raise it in a handler to fail the job with a code of your choice: JobFailed("MODEL_NOT_AVAILABLE", "no fr")."""
