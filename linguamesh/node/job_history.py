"""What a node remembers of its jobs, so that none runs twice and no result is lost with a connection.

Pure: no sockets, no clock (time is an argument). Every collection is bounded; the oldest entry goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import Final, NamedTuple

#: Results kept for a scheduler that has not acknowledged them.
RESULTS_KEPT_MAX: Final = 256
#: A result older than this helps nobody: its job's deadline has passed long ago.
RESULT_KEPT_MS: Final = 120_000
#: Ids of finished jobs, against late repeats of their assignment.
FINISHED_MAX: Final = 10_000


class Seen(Enum):
    """What the memory says to an assignment."""

    NEW = "new"  # run it
    RUNNING = "running"  # a repeat: it runs already
    KEPT = "kept"  # a repeat: its result waits for an acknowledgement, send it again
    DONE = "done"  # a repeat, or an attempt older than the last one: nothing to do


class UnackedResult(NamedTuple):
    """A finished result that nobody has acknowledged yet."""

    attempt: int
    text: str
    since_ms: int


class JobHistory:
    """Running, finished and acknowledged jobs of one node."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}  # job id -> attempt
        self._kept: OrderedDict[str, UnackedResult] = OrderedDict()
        self._finished: OrderedDict[str, int] = OrderedDict()  # job id -> highest attempt that ended
        #: Results dropped without an acknowledgement.
        self.dropped = 0

    def running(self) -> list[tuple[str, int]]:
        """(job id, attempt) of all that were assigned and have not ended."""
        return list(self._running.items())

    def assigned(self, job_id: str, attempt: int) -> Seen:
        """Take note of an assignment and say what to do with it."""
        if self._running.get(job_id, 0) >= attempt:
            return Seen.RUNNING
        if self._finished.get(job_id, 0) >= attempt:
            kept = self._kept.get(job_id)
            return Seen.KEPT if kept and kept.attempt == attempt else Seen.DONE
        self._running[job_id] = attempt
        return Seen.NEW

    def is_running(self, job_id: str, attempt: int) -> bool:
        """False once the attempt ended, was cancelled, or was replaced by a later one."""
        return self._running.get(job_id) == attempt

    def finished(self, job_id: str, attempt: int, text: str | None, now_ms: int) -> None:
        """The attempt ended; `text` is its result, or None if it was cancelled and there is none."""
        if not self.is_running(job_id, attempt):
            return
        del self._running[job_id]
        self._finished[job_id] = attempt
        self._finished.move_to_end(job_id)
        self._kept.pop(job_id, None)
        if text is not None:
            self._kept[job_id] = UnackedResult(attempt, text, now_ms)
        self._trim(now_ms)

    def acknowledged(self, job_id: str, attempt: int) -> None:
        """The scheduler has the result; forget it."""
        kept = self._kept.get(job_id)
        if kept and kept.attempt <= attempt:
            del self._kept[job_id]

    def kept_result(self, job_id: str) -> str | None:
        """The kept result of one job."""
        kept = self._kept.get(job_id)
        return kept.text if kept else None

    def kept_results(self, now_ms: int) -> list[str]:
        """All results to send again after a reconnect, oldest first."""
        self._trim(now_ms)
        return [kept.text for kept in self._kept.values()]

    def _trim(self, now_ms: int) -> None:
        while self._kept and self._is_surplus(next(iter(self._kept.values())), now_ms):
            self._kept.popitem(last=False)
            self.dropped += 1
        while len(self._finished) > FINISHED_MAX:
            self._finished.popitem(last=False)

    def _is_surplus(self, oldest: UnackedResult, now_ms: int) -> bool:
        return len(self._kept) > RESULTS_KEPT_MAX or now_ms - oldest.since_ms > RESULT_KEPT_MS
