"""Results: what a client is told of its utterances. Pure: a request and what became of it in, messages out."""

from __future__ import annotations

from typing import Any

import msgspec

from edge.core.convert import asr_partial_from, error_from, translation_result_from
from edge.requests.core.request import Request
from edge.sessions.core.utterances.groups import GroupPosition
from mesh.errors import ErrorCode
from mesh.frames import Push
from mesh.messages.base import Message
from mesh.messages.client import NetworkTimings, UiEvent, UiEventName, error_message
from mesh.messages.node import JobResult, NodeAsrPartial


def ui_event(request: Request, event: UiEventName, now_ms: int, job_id: str = "") -> UiEvent:
    """Good news about a request."""
    return UiEvent(
        trace_id=request.dispatch.trace_id,
        session_id=request.session_id,
        job_id=job_id or request.job_id,
        utterance_index=request.dispatch.utterance_index,
        event=event,
        elapsed_ms=max(0, now_ms - request.created_ms),
        status="ok",
    )


def failure(request: Request, code: str, job_id: str, now_ms: int) -> UiEvent:
    """Bad news about a request; codes that are not ours are named in the `error` that follows, not here."""
    known = ErrorCode.__members__.get(code)
    return UiEvent(
        trace_id=request.dispatch.trace_id,
        session_id=request.session_id,
        job_id=job_id,
        utterance_index=request.dispatch.utterance_index,
        event="ERROR",
        elapsed_ms=max(0, now_ms - request.created_ms),
        status="error",
        error_code=known.name if known else None,
        hint=(known or ErrorCode.PROCESSING_ERROR).hint,
    )


def for_failure(
    request: Request, code: ErrorCode, message: str, details: dict[str, Any] | None, now_ms: int
) -> list[Message]:
    """The mesh could not get a result."""
    told = {**(details or {}), **_about(request)}
    return [failure(request, code.name, request.job_id, now_ms), error_message(code, message, told)]


def for_partial(request: Request, partial: NodeAsrPartial, now_ms: int) -> list[Message]:
    """Recognised so far."""
    message = asr_partial_from(
        partial,
        session_id=request.session_id,
        utterance_index=request.dispatch.utterance_index,
        trace_id=request.dispatch.trace_id,
    )
    message = msgspec.structs.replace(message, job_id=partial.job_id)
    return [message, ui_event(request, "ASR_PARTIAL", now_ms, partial.job_id)]


def for_result(
    request: Request,
    push: Push,
    result: JobResult,
    now_ms: int,
    wall_ms: int,
    place: GroupPosition | None = None,
    way_in_ms: int | None = None,
) -> list[Message]:
    """The node's result as the client shall see it: progress, and last the result itself."""
    messages: list[Message] = []
    if result.text_asr:
        messages.append(ui_event(request, "ASR_FINAL", now_ms, push.job_id))
    if result.text_translated:
        messages.append(ui_event(request, "NMT_DONE", now_ms, push.job_id))
    told = translation_result_from(
        result,
        push,
        trace_id=request.dispatch.trace_id,
        network_timings=_network_timings(request, result, wall_ms, way_in_ms),
        scheduler_sent_at_ms=wall_ms,
        group_id=None if place is None else place.group_id,
        part_index=None if place is None else place.part_index,
    )
    messages.append(msgspec.structs.replace(told, utterance_index=request.dispatch.utterance_index))
    return messages


def _network_timings(request: Request, result: JobResult, wall_ms: int, way_in_ms: int | None) -> NetworkTimings:
    completed_ms = result.node_completed_at_ms
    return NetworkTimings(
        web_to_scheduler_ms=way_in_ms,
        scheduler_to_node_ms=max(0, request.placed_ms - request.created_ms) if request.placed_ms else None,
        # The node's clock is its own: never tell of a negative time.
        node_to_scheduler_ms=max(0, wall_ms - completed_ms) if completed_ms else None,
    )


def for_node_failure(request: Request, push: Push, result: JobResult, now_ms: int) -> list[Message]:
    """What a node said when it could not do it."""
    error = error_from(result.error)
    # Which utterance it is about is for us to say: a client may have many under way, and a node may be mistaken.
    said = error.details if isinstance(error.details, dict | None) else {"details": error.details}
    told = msgspec.structs.replace(error, details={**(said or {}), **_about(request)})
    return [failure(request, error.code, push.job_id, now_ms), told]


def _about(request: Request) -> dict[str, Any]:
    """What every error about an utterance says in its details."""
    return {
        "session_id": request.session_id,
        "utterance_index": request.dispatch.utterance_index,
        "trace_id": request.dispatch.trace_id,
        "request_id": request.request_id,
    }
