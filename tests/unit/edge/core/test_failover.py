"""Failover: by the code of a node's error."""

from __future__ import annotations

import pytest

from edge.core.failover import FAILOVER_CODES, is_failover
from mesh.messages.node import JobError, JobResult


def result(code: str | None, *, success: bool = False) -> JobResult:
    error = None if code is None else JobError(code=code, message="")
    return JobResult(
        job_id="job-00-1",
        attempt_id=1,
        node_id="n",
        session_id="s",
        utterance_index=0,
        success=success,
        error=error,
        trace_id="t",
    )


@pytest.mark.parametrize("code", [*sorted(FAILOVER_CODES), " model_not_available", None])
def test_failure_of_the_node_is_tried_at_another(code: str | None) -> None:
    assert is_failover(result(code))


@pytest.mark.parametrize("code", ["INVALID_AUDIO", "UNSUPPORTED_LANGUAGE", ""])
def test_failure_of_the_input_is_final(code: str) -> None:
    assert not is_failover(result(code))


def test_success_is_no_failover_whatever_its_error_field_holds() -> None:
    assert not is_failover(result("INTERNAL_ERROR", success=True))
