"""The jobs of one node: runs handlers, answers repeats, keeps results. Knows no connection, only how to send a text."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from linguamesh.errors import JobFailed
from linguamesh.node.job import Job, Result
from linguamesh.node.job_history import JobHistory, Seen
from linguamesh.node.messages import asr_partial, job_ack, job_failure, job_result, job_started
from mesh.clock import now_ms
from mesh.errors import ErrorCode
from mesh.messages import node as wire

Handler = Callable[[Job], Awaitable[Result]]

#: Jobs taken beyond `max_jobs`, waiting for a slot; more are refused with NODE_OVERLOADED.
JOBS_WAITING_MAX: Final = 16
#: The mesh's own bound for a message of a node. A larger one would cost the connection, again at each resend.
RESULT_BYTES_MAX: Final = 4 * 1024 * 1024

_log = logging.getLogger("linguamesh.node")


class JobRunner:
    """What a node has to do. `send` is best effort and says whether the text went into a live connection."""

    def __init__(self, handler: Handler, max_jobs: int, send: Callable[[str], Awaitable[bool]]) -> None:
        self.node_id = ""  # set by each registration, before any job can come
        self._handler = handler
        self._max_jobs = max_jobs
        self._send = send
        self._slots = asyncio.Semaphore(max_jobs)
        self._memory = JobHistory()
        self._tasks: dict[str, asyncio.Task[None]] = {}  # job id -> the task of its latest attempt
        self._background: set[asyncio.Task[None]] = set()  # the loop itself holds tasks only weakly

    def running(self) -> list[tuple[str, int]]:
        """(job id, attempt) of all that were assigned and have not ended."""
        return self._memory.running()

    def kept_results(self) -> list[str]:
        """Results that nobody has acknowledged, to be sent again on a new connection."""
        return self._memory.kept_results(now_ms())

    def on_assign(self, assign: wire.JobAssign) -> None:
        """Run it, unless it is a repeat."""
        seen = self._memory.assigned(assign.job_id, assign.attempt_id)
        if seen is Seen.NEW:
            replaced = self._tasks.get(assign.job_id)
            if replaced:
                replaced.cancel()
            self._tasks[assign.job_id] = task = self._start(self._work(assign), assign)
            task.add_done_callback(lambda done: self._forget(assign, done))
        elif seen is not Seen.DONE:
            kept = self._memory.kept_result(assign.job_id) if seen is Seen.KEPT else None
            self._start(self._say(kept or wire.encode(job_ack(assign, self.node_id))), assign)

    def on_cancel(self, cancel: wire.JobCancel) -> None:
        """Stop the handler; there will be no result."""
        task = self._tasks.get(cancel.job_id)
        if task:
            _log.info("job %s cancelled: %s", cancel.job_id, cancel.reason)
            task.cancel()

    def on_result_ack(self, ack: wire.JobResultAck) -> None:
        """The mesh has the result."""
        self._memory.acknowledged(ack.job_id, ack.attempt_id)

    async def drain(self, timeout_s: float) -> None:
        """Give the jobs that run now some time to finish."""
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=timeout_s)

    async def cancel(self) -> None:
        """End all handlers."""
        tasks = set(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- one job ----------------------------------------------------------------------------------

    async def _work(self, assign: wire.JobAssign) -> None:
        """One job from its assignment to its result."""
        started_ms = now_ms()
        try:
            if len(self._tasks) > self._max_jobs + JOBS_WAITING_MAX:
                raise JobFailed(ErrorCode.NODE_OVERLOADED.name, f"{len(self._tasks)} jobs are here already")
            await self._say(wire.encode(job_ack(assign, self.node_id)))
            async with self._slots:
                await self._say(wire.encode(job_started(assign, self.node_id)))
                result = await self._handled(assign)
            text = _checked(wire.encode(job_result(assign, self.node_id, result, now_ms() - started_ms)))
        except JobFailed as failure:
            text = wire.encode(job_failure(assign, self.node_id, failure, now_ms() - started_ms))
        except Exception as error:  # noqa: BLE001 - the handler is the user's code; whatever it raises is the job's end
            _log.exception("the handler failed on job %s", assign.job_id)
            reason = JobFailed(ErrorCode.PROCESSING_ERROR.name, f"{type(error).__name__}: {error}")
            text = wire.encode(job_failure(assign, self.node_id, reason, now_ms() - started_ms))
        if self._memory.is_running(assign.job_id, assign.attempt_id):
            self._memory.finished(assign.job_id, assign.attempt_id, text, now_ms())
            await self._say(text)

    async def _handled(self, assign: wire.JobAssign) -> Result:
        try:
            return await self._handler(Job(assign, self._partial))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            # Nobody cancelled the job: something inside the handler was, and that is a failure like any other.
            raise JobFailed(ErrorCode.PROCESSING_ERROR.name, "the handler was cancelled from within") from None

    async def _partial(self, assign: wire.JobAssign, text: str, is_final: bool) -> None:
        await self._say(wire.encode(asr_partial(assign, self.node_id, text, is_final)))

    async def _say(self, text: str) -> None:
        await self._send(text)

    def _start(self, work: Coroutine[Any, Any, None], assign: wire.JobAssign) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"job {assign.job_id}")
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(_report)
        return task

    def _forget(self, assign: wire.JobAssign, task: asyncio.Task[None]) -> None:
        # No-op for a job that ended with a result; the others (cancelled, perhaps before their first step) leave none.
        self._memory.finished(assign.job_id, assign.attempt_id, None, now_ms())
        if self._tasks.get(assign.job_id) is task:
            del self._tasks[assign.job_id]


def _checked(text: str) -> str:
    """The text itself; JobFailed if the mesh would not take it."""
    # A character takes up to 4 bytes, so a short text need not be measured.
    if len(text) * 4 > RESULT_BYTES_MAX and len(text.encode()) > RESULT_BYTES_MAX:
        message = f"the result is larger than {RESULT_BYTES_MAX} bytes"
        raise JobFailed(ErrorCode.MESSAGE_TOO_LARGE.name, message)
    return text


def _report(task: asyncio.Task[None]) -> None:
    """Observe a task's end; anything but a cancellation is a bug of this module."""
    if not task.cancelled() and task.exception():
        _log.error("a job's task failed", exc_info=task.exception())
