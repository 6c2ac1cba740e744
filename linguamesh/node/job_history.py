"""The jobs that a node has run, so that an assignment is executed once and no result is lost with a connection.

Deduplicates assignments and keeps results until they are acknowledged. Pure: no sockets, no clock (time is an
argument). Every collection is bounded; the oldest entry is evicted first.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import Final, NamedTuple

#: Bound on results that the mesh has not acknowledged.
UNACKED_MAX: Final = 256
#: An older unacknowledged result is evicted: its job's deadline has passed long ago.
UNACKED_MS_MAX: Final = 120_000
#: Bound on ids of finished jobs, which deduplicate late assignments.
FINISHED_MAX: Final = 10_000


class AssignmentState(Enum):
    """The state of an attempt when its assignment arrives."""

    NEW = "new"  # run it
    RUNNING = "running"  # a duplicate: it runs already
    UNACKED = "unacked"  # a duplicate: its result is not acknowledged, send it again
    DONE = "done"  # a duplicate, or an attempt older than the last one: nothing to do


class EncodedResult(NamedTuple):
    """A job_result as it is sent, on this connection or a later one: its JSON, and apart from it the speech."""

    head: bytes
    #: None: a failure has none.
    audio: bytes | None


class UnackedResult(NamedTuple):
    """A finished result that the mesh has not acknowledged."""

    attempt: int
    result: EncodedResult
    since_ms: int


class JobHistory:
    """Running, finished and unacknowledged jobs of one node."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}  # job id -> attempt
        self._unacked: OrderedDict[str, UnackedResult] = OrderedDict()
        self._finished: OrderedDict[str, int] = OrderedDict()  # job id -> highest attempt that ended

    def running(self) -> list[tuple[str, int]]:
        """(job id, attempt) of all jobs that were assigned and have not ended."""
        return list(self._running.items())

    def assign(self, job_id: str, attempt: int) -> AssignmentState:
        """Record an assignment; a new one counts as running from now on."""
        if self._running.get(job_id, 0) >= attempt:
            return AssignmentState.RUNNING
        if self._finished.get(job_id, 0) >= attempt:
            unacked = self._unacked.get(job_id)
            return AssignmentState.UNACKED if unacked and unacked.attempt == attempt else AssignmentState.DONE
        self._running[job_id] = attempt
        return AssignmentState.NEW

    def finish(self, job_id: str, attempt: int, result: EncodedResult | None, now_ms: int) -> bool:
        """The attempt ended; no result: it was cancelled. False, without effect, if the attempt is not running: it has
        ended before, or a later one has replaced it."""
        if self._running.get(job_id) != attempt:
            return False
        del self._running[job_id]
        self._finished[job_id] = attempt
        self._finished.move_to_end(job_id)
        self._unacked.pop(job_id, None)
        if result is not None:
            self._unacked[job_id] = UnackedResult(attempt, result, now_ms)
        self._evict(now_ms)
        return True

    def acknowledge(self, job_id: str, attempt: int) -> None:
        """The mesh has the result of that attempt."""
        unacked = self._unacked.get(job_id)
        if unacked and unacked.attempt <= attempt:
            del self._unacked[job_id]

    def unacked_result(self, job_id: str) -> EncodedResult | None:
        """The unacknowledged result of one job."""
        unacked = self._unacked.get(job_id)
        return unacked.result if unacked else None

    def unacked_results(self, now_ms: int) -> list[EncodedResult]:
        """All results to retry after a reconnect, oldest first."""
        self._evict(now_ms)
        return [unacked.result for unacked in self._unacked.values()]

    def _evict(self, now_ms: int) -> None:
        while self._unacked:
            oldest = next(iter(self._unacked.values()))
            if len(self._unacked) <= UNACKED_MAX and now_ms - oldest.since_ms <= UNACKED_MS_MAX:
                break
            self._unacked.popitem(last=False)
        while len(self._finished) > FINISHED_MAX:
            self._finished.popitem(last=False)
