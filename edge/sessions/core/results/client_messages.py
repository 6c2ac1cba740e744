"""Client messages: the messages to a client about its requests. Pure: a request and its outcome in, messages out."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from edge.core.convert import asr_partial_from, error_from, translation_result_from
from edge.requests.core.request import Request
from edge.sessions.core.utterances.groups import GroupPosition
from mesh.errors import ErrorCode
from mesh.frames import Push
from mesh.messages.base import Message
from mesh.messages.client import NetworkTimings, UiEvent, UiEventName, error_message
from mesh.messages.node import JobResult, NodeAsrPartial
from mesh.words import LatencyStage

_STAGES: Final = tuple(stage.value for stage in LatencyStage)
#: Stages before the node's own; a Push carries them and the node's.
_TO_NODE: Final = _STAGES.index(LatencyStage.NODE)


def ui_event(request: Request, event: UiEventName, now_ms: int, job_id: str = "") -> UiEvent:
    """Progress of a request."""
    return UiEvent(
        trace_id=request.dispatch.trace_id,
        session_id=request.session_id,
        job_id=job_id or request.current.job_id,
        utterance_index=request.dispatch.utterance_index,
        event=event,
        elapsed_ms=max(0, now_ms - request.created_ms),
        status="ok",
    )


def failure(request: Request, code: str, job_id: str, now_ms: int) -> UiEvent:
    """The failure of a request; a code that is not ours is only in the `error` that follows."""
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
    complete = {**(details or {}), **_details_of(request)}
    return [failure(request, code.name, request.current.job_id, now_ms), error_message(code, message, complete)]


def for_partial(request: Request, partial: NodeAsrPartial, now_ms: int) -> list[Message]:
    """Text recognised so far."""
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
    position: GroupPosition | None = None,
    uplink_ms: int | None = None,
    stages: list[int] | None = None,
) -> list[Message]:
    """The node's result for the client: progress events, and last the result itself.

    `stages`: microseconds of every LatencyStage, for a client that asked for them.
    """
    messages: list[Message] = []
    if result.text_asr:
        messages.append(ui_event(request, "ASR_FINAL", now_ms, push.job_id))
    if result.text_translated:
        messages.append(ui_event(request, "NMT_DONE", now_ms, push.job_id))
    completed_ms = result.node_completed_at_ms
    timings = NetworkTimings(
        web_to_scheduler_ms=uplink_ms,
        scheduler_to_node_ms=_to_node_ms(request, push),
        # The node's clock may differ from ours: never report a negative time.
        node_to_scheduler_ms=max(0, wall_ms - completed_ms) if completed_ms else None,
    )
    message = translation_result_from(
        result,
        push,
        utterance_index=request.dispatch.utterance_index,
        trace_id=request.dispatch.trace_id,
        network_timings=timings,
        scheduler_sent_at_ms=wall_ms,
        group_id=None if position is None else position.group_id,
        part_index=None if position is None else position.part_index,
        stages=None if stages is None else dict(zip(_STAGES, stages, strict=False)),
    )
    messages.append(message)
    return messages


def _to_node_ms(request: Request, push: Push) -> int | None:
    """From the utterance's arrival until the node had it: by the stages of its result, or by Placed."""
    if len(push.stages) == _TO_NODE + 1:
        return sum(push.stages[:_TO_NODE]) // 1_000
    return max(0, request.placed_ms - request.created_ms) if request.placed_ms else None


def for_node_failure(request: Request, push: Push, result: JobResult, now_ms: int) -> list[Message]:
    """The failure that a node reported."""
    error = error_from(result.error)
    # The utterance is named by us: a client may have many pending, and a node may be mistaken.
    reported = error.details if isinstance(error.details, dict | None) else {"details": error.details}
    complete = msgspec.structs.replace(error, details={**(reported or {}), **_details_of(request)})
    return [failure(request, error.code, push.job_id, now_ms), complete]


def _details_of(request: Request) -> dict[str, Any]:
    """The details that every error about an utterance has."""
    return {
        "session_id": request.session_id,
        "utterance_index": request.dispatch.utterance_index,
        "trace_id": request.dispatch.trace_id,
        "request_id": request.request_id,
    }
