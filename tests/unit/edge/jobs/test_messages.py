"""Job messages: jobs named in heartbeats, and results that measure their node."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from edge.core.timers import Schedule
from edge.jobs.messages import JobMessages, _measures_node
from edge.jobs.runner import JobRunner
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from mesh.cells import cell_of, job_id_in
from mesh.config import Config
from mesh.messages.node import JobError, JobRef, JobResult


def messages() -> JobMessages:
    config, metrics, schedule = Config(), EdgeMetrics(CollectorRegistry()), Schedule()
    link = EdgeLink(config, "edge:b:1", schedule)
    return JobMessages(
        config, link, metrics, schedule, JobRunner(config, link, metrics, schedule, lambda node_id: None)
    )


def test_named_jobs_are_those_of_the_cell_of_the_node() -> None:
    own = cell_of("node-1", Config().mesh.cells)
    mine, other = job_id_in(own, "a"), job_id_in((own + 1) % Config().mesh.cells, "a")
    jobs = [JobRef(job_id=job_id, attempt_id=2) for job_id in (mine, other, "no job", "job-zz-1")]
    assert messages().named("node-1", jobs) == [(mine, 2)]
    assert messages().named("node-1", None) == []


@pytest.mark.parametrize(
    ("success", "text", "code", "measures"),
    [
        (True, "hello", None, True),
        (True, "", None, False),
        (False, "", "PROCESSING_ERROR", True),
        (False, "", None, True),
        (False, "", "INVALID_AUDIO", False),
        (False, "", "model_not_available", False),
    ],
    ids=["result", "silence", "own failure", "failure without a code", "bad input", "missing model"],
)
def test_result_measures_its_node_unless_any_node_would_do_alike(
    success: bool, text: str, code: str | None, measures: bool
) -> None:
    error = None if code is None else JobError(code=code, message="")
    result = JobResult(
        job_id="job-00-1",
        attempt_id=1,
        node_id="n",
        session_id="s",
        utterance_index=0,
        success=success,
        text_asr=text,
        error=error,
        trace_id="t",
    )
    assert _measures_node(result) is measures
