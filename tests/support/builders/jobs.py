"""Samples for the tests of deliveries: tight limits, and the frames of jobs that differ by a number."""

from __future__ import annotations

from typing import Any

from edge.jobs.core import reconnect_grace, unacked_results
from edge.jobs.core.job import Payload, ResultReport
from edge.jobs.core.tracker import JobLimits
from mesh.frames import Assign

DELAY_MS = 25
NAMED_MS = 15_000
KEPT_MS = 90_000
GRACE_MS = 2_000
PAYLOAD = Payload(b"work", b"audio")
LIMITS = JobLimits(
    kept=unacked_results.UnackedLimits(4, 1_000, 5, 60_000, 400, 5_000, 1_500),
    away=reconnect_grace.GraceLimits(
        GRACE_MS, nodes_max=4, jobs_max=4, bytes_max=40, jobs_per_node_max=3, bytes_per_node_max=30
    ),
    no_session_tries_max=3,
    jobs_per_node_max=3,
    job_kept_ms=KEPT_MS,
    job_named_ms=NAMED_MS,
    ended_kept_max=16,
    ended_kept_ms=30_000,
    job_event_delay_ms=DELAY_MS,
)


def assign(number: int = 1, **fields: Any) -> Assign:
    base: dict[str, Any] = {
        "job_id": f"job-00-{number}", "attempt": 1, "node_id": "n", "node_epoch": 7, "request_id": f"r{number}",
        "session_id": "s", "utterance_index": number, "session_edge": "a", "deadline_ms": 0, "trace_id": "t",
    }  # fmt: skip
    return Assign(**{**base, **fields})


def report(number: int = 1, **fields: Any) -> ResultReport:
    base: dict[str, Any] = {
        "job_id": f"job-00-{number}", "attempt": 1, "node_id": "n", "session_id": "forged", "utterance_index": 99,
        "success": True,
    }  # fmt: skip
    return ResultReport(**{**base, **fields})
