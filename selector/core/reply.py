"""`Reply`: a frame and the peer it goes to, as every core of the selector returns it. Knows no socket."""

from __future__ import annotations

from typing import NamedTuple

from mesh.errors import ErrorCode
from mesh.frames import Failed, Frame


class Reply(NamedTuple):
    """A frame for a peer."""

    to: str
    frame: Frame


def store_down(ref: str, edge: str) -> Reply:
    """Redis is unavailable: the edge gets the error now instead of waiting for its timeout."""
    code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
    return Reply(edge, Failed(ref, code.name, code.hint))
