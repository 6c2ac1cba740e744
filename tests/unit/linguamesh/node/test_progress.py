"""When the jobs of a node are reported as accepted and started."""

from __future__ import annotations

from msgspec.structs import replace

from linguamesh.node.progress import REPORT_DELAY_MS, JobProgress, Report
from mesh.messages import node as wire
from tests.unit.linguamesh.node.test_job import assignment

ASSIGN = assignment("")
OTHER = replace(ASSIGN, job_id="job-2")


def names(reports: list[Report]) -> list[tuple[str, str]]:
    return [(type(report).__name__, report.job_id) for report in reports]


def test_job_that_ends_before_its_report_is_due_is_not_reported() -> None:
    progress = JobProgress()
    progress.on_assigned(ASSIGN, 0)
    assert progress.on_started(ASSIGN, "n-1") == []
    progress.on_ended(ASSIGN)
    assert progress.due_ms is None and progress.take_due("n-1", 10**9) == []


def test_report_is_due_after_the_delay_with_all_that_is_known() -> None:
    progress = JobProgress()
    progress.on_assigned(ASSIGN, 0)
    progress.on_assigned(OTHER, 5)
    progress.on_started(ASSIGN, "n-1")
    assert progress.due_ms == REPORT_DELAY_MS
    assert progress.take_due("n-1", REPORT_DELAY_MS - 1) == []
    assert names(progress.take_due("n-1", REPORT_DELAY_MS)) == [("JobAck", "job-1"), ("JobStarted", "job-1")]
    assert progress.due_ms == REPORT_DELAY_MS + 5
    assert names(progress.take_due("n-1", REPORT_DELAY_MS + 5)) == [("JobAck", "job-2")]
    assert names(progress.on_started(OTHER, "n-1")) == [("JobStarted", "job-2")]


def test_report_before_it_is_due_is_made_once() -> None:
    progress = JobProgress()
    progress.on_assigned(ASSIGN, 0)
    progress.on_started(ASSIGN, "n-1")
    reports = progress.report(ASSIGN, "n-1")
    assert names(reports) == [("JobAck", "job-1"), ("JobStarted", "job-1")]
    assert isinstance(reports[0], wire.JobAck) and reports[0].node_id == "n-1"
    assert progress.report(ASSIGN, "n-1") == [] and progress.take_due("n-1", 10**9) == []


def test_later_attempt_is_reported_by_itself() -> None:
    progress = JobProgress()
    progress.on_assigned(ASSIGN, 0)
    again = replace(ASSIGN, attempt_id=3)
    progress.on_assigned(again, 1)
    progress.on_ended(ASSIGN)
    assert [report.attempt_id for report in progress.take_due("n-1", 10**9)] == [3]
