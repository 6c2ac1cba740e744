"""Complaints: what the free-form `details` of a node's errors mean. Whatever is not as agreed counts as not said."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from mesh.errors import ErrorCode, PeerError

#: The code by which a node says that it lacks what a service needs.
MODEL_MISSING: Final = ErrorCode.MODEL_NOT_AVAILABLE.name
#: Longest words that are passed on; what is longer is cut.
_WORD_MAX: Final = 128


class NodeErrorScope(NamedTuple):
    """Which job a node_error is about; without a job, everything that the node has."""

    job_id: str | None
    attempt: int | None


class MissingModel(NamedTuple):
    """What a node says that it lacks."""

    service_id: str
    version: str
    reason: str


def trouble_of(details: Any) -> NodeErrorScope:
    """The job that `details` names; PeerError if that can be no job."""
    said = details if isinstance(details, dict) else {}
    job_id, attempt = said.get("job_id"), said.get("attempt_id")
    if job_id is None:
        return NodeErrorScope(None, None)
    if not isinstance(job_id, str):
        raise PeerError(ErrorCode.INVALID_ID, "`details.job_id` is not an id")
    return NodeErrorScope(job_id, attempt if type(attempt) is int else None)


def missing_model(code: str, message: str, details: Any) -> MissingModel | None:
    """The model that an error is about; None if it is about something else, or names no service."""
    said = details if isinstance(details, dict) else {}
    service_id = _word(said.get("service_id"))
    if code.strip().upper() != MODEL_MISSING or not service_id:
        return None
    return MissingModel(service_id, _word(said.get("service_version")), _word(said.get("reason")) or _word(message))


def _word(value: Any) -> str:
    return value.strip()[:_WORD_MAX] if isinstance(value, str) else ""
