"""Running jobs: unfinished jobs of this edge's nodes, by node, and their progress that is not reported yet.

The table outlives a node's socket, so that a result sent after a reconnect finds its job.

Progress is coalesced into one JobEvent per job. Each JobEvent costs two broker hops and a script, and most results
arrive before a reader could use the event that the job was started. So events wait for `job_event_delay_ms`; a job that
ends in that time reports none, because finish and release lie ahead of all of them (mesh/states/job.py). Placed waits
for the same time: a result makes it superfluous.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from edge.core.timers import Timers
from edge.jobs.core.job import Job, TimerKind
from mesh.frames import Assign, JobEvent
from mesh.states.job import JobAction

_NO_JOBS: Final[Mapping[str, Job]] = MappingProxyType({})
# A member of an enum costs as much as a call; these are read for every message.
_DISPATCH: Final = JobAction.DISPATCH
_EVENTS: Final = TimerKind.EVENTS
_ORDER: Final = {event: place for place, event in enumerate(JobAction)}


class RunningJobs:
    """Unfinished jobs by node, oldest first."""

    def __init__(self, per_node_max: int, job_event_delay_ms: int, timers: Timers[tuple[TimerKind, str]]) -> None:
        self._timers = timers
        self._per_node_max = per_node_max
        self._delay_ms = job_event_delay_ms
        #: All jobs by key, and the same by node.
        self.jobs: dict[str, Job] = {}
        self._nodes: dict[str, OrderedDict[str, Job]] = {}
        #: Jobs with unreported events.
        self._unreported: dict[str, Job] = {}

    def of(self, node_id: str) -> Mapping[str, Job]:
        """The node's jobs by key."""
        return self._nodes.get(node_id, _NO_JOBS)

    def add(self, assign: Assign, key: str, now_ms: int) -> tuple[Job, int]:
        """Add a job that is about to be written. Returns it, and how many older ones were evicted for it."""
        jobs = self._nodes.get(assign.node_id)
        if jobs is None:
            jobs = self._nodes[assign.node_id] = OrderedDict()
        self.jobs[key] = jobs[key] = job = Job(assign, key, now_ms, 0, _DISPATCH, [_DISPATCH])
        evicted = 0
        while len(jobs) > self._per_node_max:
            self.pop(assign.node_id, next(iter(jobs)))
            evicted += 1
        self._unreported[key] = job
        self._timers.set((_EVENTS, key), now_ms + self._delay_ms)
        return job, evicted

    def latest(self, node_id: str, job_id: str) -> Job | None:
        """The node's latest attempt at the job."""
        attempts = [job for job in self.of(node_id).values() if job.assign.job_id == job_id]
        return max(attempts, key=lambda job: job.assign.attempt, default=None)

    def pop(self, node_id: str, key: str) -> Job | None:
        """Remove a job; None if it is not here. Its unreported events are dropped."""
        job = self.jobs.pop(key, None)
        if job is not None:
            jobs = self._nodes[node_id]
            del jobs[key]
            if not jobs:
                del self._nodes[node_id]
            if self._unreported.pop(key, None) is not None:
                self._timers.drop((_EVENTS, key))
        return job

    def pop_node(self, node_id: str) -> list[Job]:
        """Remove all jobs of a node."""
        jobs = list(self.of(node_id).values())
        for job in jobs:
            self.pop(node_id, job.key)
        return jobs

    # --- progress -----------------------------------------------------------------------------

    def note(self, job: Job, event: JobAction, now_ms: int) -> None:
        """Record an event of a job. Only an event that takes the job further is reported, and each once."""
        if _ORDER[event] <= _ORDER[job.reached]:
            return
        job.reached = event
        job.unreported.append(event)
        if job.key not in self._unreported:
            self._unreported[job.key] = job
            self._timers.set((_EVENTS, job.key), now_ms + self._delay_ms)

    def on_due(self, keys: Iterable[str]) -> list[tuple[Job, JobEvent]]:
        """The events of these jobs have waited long enough: one frame for each job that is still running."""
        due: list[tuple[Job, JobEvent]] = []
        for key in keys:
            job = self._unreported.pop(key, None)
            if job is not None:
                assign = job.assign
                frame = JobEvent(assign.job_id, assign.attempt, assign.node_id, " ".join(job.unreported))
                job.unreported.clear()
                due.append((job, frame))
        return due

    def check(self) -> None:
        """All bounds hold; every job with unreported events has a due time."""
        for node_id, jobs in self._nodes.items():
            assert 0 < len(jobs) <= self._per_node_max, node_id
        assert self.jobs == {key: job for jobs in self._nodes.values() for key, job in jobs.items()}
        unreported = {key for jobs in self._nodes.values() for key, job in jobs.items() if job.unreported}
        assert unreported == self._unreported.keys()
        assert unreported == {key for kind, key in self._timers if kind is _EVENTS}
