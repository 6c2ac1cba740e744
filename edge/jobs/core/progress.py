"""Progress: the events of running jobs that the mesh has not been told yet, gathered into one JobEvent per job.

Each JobEvent costs two broker hops and a script, and of most jobs the result comes before anybody could use the news
that it was started. So events wait for `delay_ms`; a job that ends in that time leaves its words unsaid, because
finish and release lie ahead of all of them (mesh/states/job.py).
"""

from __future__ import annotations

from typing import Final

from edge.jobs.core.job import Job, key_of
from mesh.frames import JobEvent
from mesh.states.job import JobAction

_ORDER: Final = {event: place for place, event in enumerate(JobAction)}


class JobProgress:
    """Jobs with untold events, the longest waiting first: all wait equally long, so they fall due in that order."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._waiting: dict[str, Job] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: str) -> bool:
        return key in self._waiting

    def note(self, assignment: Job, event: JobAction, now_ms: int) -> None:
        """Something happened to a job. Only what takes it further is told, and each word once."""
        if assignment.reached is not None and _ORDER[event] <= _ORDER[assignment.reached]:
            return
        assignment.reached = event
        assignment.untold.append(event)
        frame = assignment.frame
        key = key_of(frame.node_id, frame.job_id, frame.attempt)
        if key not in self._waiting:
            assignment.tell_ms = now_ms + self._delay_ms
            self._waiting[key] = assignment

    def drop(self, key: str) -> None:
        """The job ended, or is no longer ours: nobody needs to hear how far it had come."""
        self._waiting.pop(key, None)

    def next_due_ms(self) -> int | None:
        """When the first job's events are to be told; None while all is told."""
        for assignment in self._waiting.values():
            return assignment.tell_ms
        return None

    def pop_due(self, now_ms: int) -> list[JobEvent]:
        """One frame for each job whose events have waited long enough."""
        frames: list[JobEvent] = []
        while (due_ms := self.next_due_ms()) is not None and due_ms <= now_ms:
            assignment = self._waiting.pop(next(iter(self._waiting)))
            frame = assignment.frame
            frames.append(JobEvent(frame.job_id, frame.attempt, frame.node_id, " ".join(assignment.untold)))
            assignment.untold.clear()
        return frames
