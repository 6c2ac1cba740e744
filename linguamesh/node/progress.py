"""Which jobs of a node are reported as accepted and started, and when. Pure: time is an argument.

Most jobs of a fast pipeline end before anybody could look at their progress, and their result says the same. So a job
is reported when it is a moment old, or sends a text before.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from linguamesh.node.messages import job_event
from mesh.messages import node as wire

#: Age at which a job is reported; one that ends before is not.
REPORT_DELAY_MS: Final = 20

Report: TypeAlias = wire.JobAck | wire.JobStarted


class _Unreported:
    """A job that was not reported yet."""

    __slots__ = ("assign", "due_ms", "is_started")

    def __init__(self, assign: wire.JobAssign, due_ms: int) -> None:
        self.assign = assign
        self.due_ms = due_ms
        self.is_started = False


class JobProgress:
    """The progress of all running jobs. The node's id is an argument, because a registration may change it."""

    def __init__(self) -> None:
        self._unreported: dict[tuple[str, int], _Unreported] = {}  # the oldest first

    @property
    def due_ms(self) -> int | None:
        """When the next report is due; None if there is none."""
        return next((one.due_ms for one in self._unreported.values()), None)

    def on_assigned(self, assign: wire.JobAssign, now_ms: int) -> None:
        """The node accepted the job."""
        self._unreported[_key(assign)] = _Unreported(assign, now_ms + REPORT_DELAY_MS)

    def on_started(self, assign: wire.JobAssign, node_id: str) -> list[Report]:
        """The job got a slot; the report to send now, if it was reported as accepted before."""
        unreported = self._unreported.get(_key(assign))
        if unreported is None:
            return [job_event(wire.JobStarted, assign, node_id)]
        unreported.is_started = True
        return []

    def on_ended(self, assign: wire.JobAssign) -> None:
        """The job has ended."""
        self._unreported.pop(_key(assign), None)

    def report(self, assign: wire.JobAssign, node_id: str) -> list[Report]:
        """Report a job now, unless it was reported."""
        unreported = self._unreported.pop(_key(assign), None)
        if unreported is None:
            return []
        reports: list[Report] = [job_event(wire.JobAck, assign, node_id)]
        if unreported.is_started:
            reports.append(job_event(wire.JobStarted, assign, node_id))
        return reports

    def take_due(self, node_id: str, now_ms: int) -> list[Report]:
        """The reports that are due."""
        due = [one.assign for one in self._unreported.values() if one.due_ms <= now_ms]
        return [report for assign in due for report in self.report(assign, node_id)]


def _key(assign: wire.JobAssign) -> tuple[str, int]:
    return assign.job_id, assign.attempt_id
