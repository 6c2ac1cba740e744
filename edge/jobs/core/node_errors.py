"""Node errors: reads the free-form `details` of a node's errors. A field of the wrong type counts as missing."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from mesh.errors import ErrorCode, PeerError

#: The code of a node that lacks a model for a service.
MODEL_MISSING: Final = ErrorCode.MODEL_NOT_AVAILABLE.name
#: Longest text that is forwarded; the rest is cut off.
_TEXT_MAX: Final = 128


class NodeErrorScope(NamedTuple):
    """The job that a node_error is about; without a job, all jobs of the node."""

    job_id: str | None
    attempt: int | None


class MissingModel(NamedTuple):
    """The model that a node reports as missing."""

    service_id: str
    version: str
    reason: str


def is_model_missing(code: str) -> bool:
    """True for the code MODEL_NOT_AVAILABLE, in any case."""
    return code.strip().upper() == MODEL_MISSING


def scope_of(details: Any) -> NodeErrorScope:
    """The job that `details` names; PeerError if `job_id` is no text."""
    fields = details if isinstance(details, dict) else {}
    job_id, attempt = fields.get("job_id"), fields.get("attempt_id")
    if job_id is None:
        return NodeErrorScope(None, None)
    if not isinstance(job_id, str):
        raise PeerError(ErrorCode.INVALID_ID, "`details.job_id` is not an id")
    return NodeErrorScope(job_id, attempt if type(attempt) is int else None)


def missing_model(code: str, message: str, details: Any) -> MissingModel | None:
    """The model that an error reports as missing; None for another error, or one that names no service."""
    fields = details if isinstance(details, dict) else {}
    service_id = _text(fields.get("service_id"))
    if not is_model_missing(code) or not service_id:
        return None
    return MissingModel(service_id, _text(fields.get("service_version")), _text(fields.get("reason")) or _text(message))


def _text(value: Any) -> str:
    return value.strip()[:_TEXT_MAX] if isinstance(value, str) else ""
