"""The free-form details of nodes' errors."""

from __future__ import annotations

from typing import Any

import pytest

from edge.jobs.core.node_errors import MissingModel, NodeErrorScope, missing_model, scope_of
from mesh.errors import ErrorCode, PeerError


@pytest.mark.parametrize(
    ("details", "scope"),
    [
        (None, NodeErrorScope(None, None)),
        ("job-1", NodeErrorScope(None, None)),
        ([{"job_id": "job-1"}], NodeErrorScope(None, None)),
        ({"free": 0}, NodeErrorScope(None, None)),
        ({"attempt_id": 2}, NodeErrorScope(None, None)),
        ({"job_id": "job-1"}, NodeErrorScope("job-1", None)),
        ({"job_id": "job-1", "attempt_id": 2}, NodeErrorScope("job-1", 2)),
        ({"job_id": "job-1", "attempt_id": "2"}, NodeErrorScope("job-1", None)),
        ({"job_id": "job-1", "attempt_id": True}, NodeErrorScope("job-1", None)),
    ],
)
def test_scope_is_the_job_that_the_details_name(details: Any, scope: NodeErrorScope) -> None:
    assert scope_of(details) == scope


@pytest.mark.parametrize("job_id", [5, ["job-1"], {}, False])
def test_job_id_of_the_wrong_type_is_refused_and_fails_no_job(job_id: Any) -> None:
    with pytest.raises(PeerError) as error:
        scope_of({"job_id": job_id})
    assert error.value.code is ErrorCode.INVALID_ID


FULL = {"service_id": "whisper", "service_version": "3", "reason": "not_found"}


@pytest.mark.parametrize(
    ("code", "details", "missing"),
    [
        ("MODEL_NOT_AVAILABLE", FULL, MissingModel("whisper", "3", "not_found")),
        ("model_not_available ", {"service_id": " whisper "}, MissingModel("whisper", "", "words")),
        ("MODEL_NOT_AVAILABLE", {"service_id": "w" * 200, "reason": 5}, MissingModel("w" * 128, "", "words")),
        ("PROCESSING_ERROR", FULL, None),
        ("MODEL_NOT_AVAILABLE", {"service_id": ""}, None),
        ("MODEL_NOT_AVAILABLE", {"service_id": 7}, None),
        ("MODEL_NOT_AVAILABLE", None, None),
    ],
)
def test_missing_model_is_read_from_the_details(code: str, details: Any, missing: MissingModel | None) -> None:
    assert missing_model(code, "words", details) == missing
