"""Running: the jobs that the nodes of this edge have, by node, and what the mesh has not been told of their progress.

The table outlives a node's socket, so that a result sent after a reconnect still finds its job.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from edge.jobs.core.job import Job, key_of, key_of_assign
from edge.jobs.core.progress import JobProgress
from mesh.frames import Assign

_NONE: Final[Mapping[str, Job]] = MappingProxyType({})


class RunningJobs:
    """Unfinished jobs by node, oldest first."""

    def __init__(self, per_node_max: int, job_event_delay_ms: int) -> None:
        self.progress = JobProgress(job_event_delay_ms)
        self._per_node_max = per_node_max
        self._nodes: dict[str, OrderedDict[str, Job]] = {}

    def of(self, node_id: str) -> Mapping[str, Job]:
        """The node's jobs by key."""
        return self._nodes.get(node_id, _NONE)

    def add(self, assign: Assign, now_ms: int) -> tuple[Job, int]:
        """Remember a job that is about to be written; also, how many had to be forgotten for it."""
        jobs = self._nodes.setdefault(assign.node_id, OrderedDict())
        assignment = jobs[key_of_assign(assign)] = Job(assign, now_ms)
        forgotten = 0
        while len(jobs) > self._per_node_max:
            self.progress.drop(jobs.popitem(last=False)[0])
            forgotten += 1
        return assignment, forgotten

    def find(self, node_id: str, job_id: str, attempt: int | None) -> Job | None:
        """The job; without an attempt its latest one."""
        jobs = self.of(node_id)
        if attempt is not None:
            return jobs.get(key_of(node_id, job_id, attempt))
        latest = [assignment for assignment in jobs.values() if assignment.frame.job_id == job_id]
        return max(latest, key=lambda assignment: assignment.frame.attempt, default=None)

    def pop(self, node_id: str, key: str) -> Job | None:
        """Forget a job; None if it is not here."""
        jobs = self._nodes.get(node_id)
        assignment = jobs.pop(key, None) if jobs else None
        if assignment is not None:
            self.progress.drop(key)
            if not jobs:
                del self._nodes[node_id]
        return assignment

    def pop_node(self, node_id: str) -> list[Job]:
        """Forget all jobs of a node."""
        jobs = self._nodes.pop(node_id, OrderedDict())
        for key in jobs:
            self.progress.drop(key)
        return list(jobs.values())

    def keys(self) -> set[str]:
        """All of them, for checks."""
        return {key for jobs in self._nodes.values() for key in jobs}

    def check(self) -> None:
        """All bounds hold; what is untold is waiting to be told."""
        for node_id, jobs in self._nodes.items():
            assert 0 < len(jobs) <= self._per_node_max, node_id
        untold = {key for jobs in self._nodes.values() for key, assignment in jobs.items() if assignment.untold}
        assert len(untold) == len(self.progress) and all(key in self.progress for key in untold)
