"""Messages to a client about its requests."""

from __future__ import annotations

from typing import Any

import pytest

from edge.requests.core.request import Attempt, Request
from edge.sessions.core.results import client_messages
from edge.sessions.core.utterances.groups import GroupPosition
from mesh.errors import ErrorCode
from mesh.messages.client import AsrPartial, ErrorMessage, TranslationResult, UiEvent
from mesh.messages.node import JobError, NodeAsrPartial
from mesh.words import LatencyStage
from tests.unit.edge.requests.test_tracker import dispatch, push
from tests.unit.edge.sessions.harness import result

PUSH = push()


def request(**fields: Any) -> Request:
    made = Request(dispatch(utterance_index=7), b"", b"", 1_000, 60_000, Attempt(1, 1_000, job_id="job-00-1"))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_result_follows_its_progress_and_has_the_index_of_the_request() -> None:
    *events, message = client_messages.for_result(
        request(), PUSH, result(PUSH, utterance_index=3), 1_500, 99, GroupPosition("g", 2, ""), 40
    )
    assert [one.event for one in events if isinstance(one, UiEvent)] == ["ASR_FINAL", "NMT_DONE"]
    assert isinstance(message, TranslationResult) and message.utterance_index == 7
    assert (message.group_id, message.part_index) == ("g", 2)
    assert message.network_timings is not None and message.network_timings.web_to_scheduler_ms == 40


def test_result_without_texts_has_no_progress() -> None:
    messages = client_messages.for_result(request(), PUSH, result(PUSH, text_asr="", text_translated=""), 1, 1)
    assert [type(one) for one in messages] == [TranslationResult]


@pytest.mark.parametrize(("completed_ms", "reported_ms"), [(None, None), (60, 40), (500, 0)])
def test_time_from_the_node_is_never_negative(completed_ms: int | None, reported_ms: int | None) -> None:
    made = client_messages.for_result(request(), PUSH, result(PUSH, node_completed_at_ms=completed_ms), 1, 100)[-1]
    assert isinstance(made, TranslationResult) and made.network_timings is not None
    assert made.network_timings.node_to_scheduler_ms == reported_ms


@pytest.mark.parametrize(
    ("stages", "placed_ms", "reported_ms"),
    [
        ([1_000, 0, 2_000, 0, 0, 1_999, 70_000], 0, 4),
        ([1_000, 0, 2_000, 0, 0, 1_999, 70_000], 1_300, 4),
        ([], 1_300, 300),
        ([], 0, None),
        ([1_000, 2_000], 0, None),
    ],
    ids=["by its stages", "before Placed", "by Placed", "unknown", "not of all stages"],
)
def test_time_to_the_node_is_that_of_the_stages_before_it(
    stages: list[int], placed_ms: int, reported_ms: int | None
) -> None:
    sent = push(stages=stages)
    made = client_messages.for_result(request(placed_ms=placed_ms), sent, result(sent), 2_000, 100)[-1]
    assert isinstance(made, TranslationResult) and made.network_timings is not None
    assert made.network_timings.scheduler_to_node_ms == reported_ms


def test_stages_are_named_in_their_order() -> None:
    for stages in (None, list(range(9))):
        made = client_messages.for_result(request(), PUSH, result(PUSH), 1, 1, stages=stages)[-1]
        assert isinstance(made, TranslationResult)
        assert made.stages == (None if stages is None else dict(zip(LatencyStage, stages, strict=True)))


def test_elapsed_time_counts_from_the_request() -> None:
    event = client_messages.ui_event(request(), "DISPATCHED", 1_250)
    assert (event.elapsed_ms, event.job_id, event.status) == (250, "job-00-1", "ok")
    assert client_messages.ui_event(request(), "DISPATCHED", 900, "other").elapsed_ms == 0


def test_failure_of_the_mesh_names_its_utterance() -> None:
    event, error = client_messages.for_failure(request(), ErrorCode.JOB_TIMEOUT, "late", {"attempts": 2}, 1_100)
    assert isinstance(event, UiEvent) and (event.event, event.error_code) == ("ERROR", "JOB_TIMEOUT")
    assert isinstance(error, ErrorMessage) and error.code == "JOB_TIMEOUT"
    named = {"attempts": 2, "session_id": "s", "utterance_index": 7, "trace_id": "t", "request_id": "r"}
    assert isinstance(error.details, dict) and named.items() <= error.details.items()


@pytest.mark.parametrize(("code", "error_code"), [("PROCESSING_ERROR", "PROCESSING_ERROR"), ("OWN_CODE", None)])
def test_failure_of_a_node_keeps_its_code(code: str, error_code: str | None) -> None:
    reported = result(PUSH, success=False, error=JobError(code=code, message="broke", details={"utterance_index": 1}))
    event, error = client_messages.for_node_failure(request(), PUSH, reported, 1_100)
    assert isinstance(event, UiEvent) and event.error_code == error_code
    assert isinstance(error, ErrorMessage) and error.code == code and isinstance(error.details, dict)
    assert error.details["utterance_index"] == 7, "a node cannot blame another utterance"


def test_partial_is_followed_by_its_progress() -> None:
    fields = {"session_id": "s", "utterance_index": 1, "trace_id": "t"}
    partial = NodeAsrPartial(node_id="n", job_id="job-00-1", text="ni", is_final=False, **fields)
    message, event = client_messages.for_partial(request(), partial, 1_100)
    assert isinstance(message, AsrPartial) and (message.text, message.utterance_index) == ("ni", 7)
    assert isinstance(event, UiEvent) and event.event == "ASR_PARTIAL"
