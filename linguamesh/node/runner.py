"""Runs the jobs of a node: handlers, replies to duplicate assignments, retries of unacknowledged results.

Knows the sending side of the connection in use, and what it sends is best effort: results are retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

from linguamesh.errors import JobFailed
from linguamesh.node.job import Job, Result
from linguamesh.node.job_history import AssignmentState, EncodedResult, JobHistory
from linguamesh.node.messages import asr_partial, job_event, job_failure, job_result
from linguamesh.node.progress import JobProgress, Report
from linguamesh.websocket import Outbound
from mesh.clock import now_ms
from mesh.errors import ErrorCode
from mesh.messages import node as wire
from mesh.messages.base import encode_utf8

Handler = Callable[[Job], Awaitable[Result]]

#: Jobs accepted beyond `max_jobs`, waiting for a slot; more are refused with NODE_OVERLOADED.
JOBS_WAITING_MAX: Final = 16
#: The mesh's own bound on a message of a node. A larger one would close the connection, at each retry.
RESULT_BYTES_MAX: Final = 4 * 1024 * 1024

_log = logging.getLogger("linguamesh.node")


class JobRunner:
    """The jobs of one node."""

    def __init__(self, handler: Handler, max_jobs: int, outbound: Outbound) -> None:
        self.node_id = ""  # set by each registration, before any assignment
        self._handler = handler
        self._max_jobs = max_jobs
        self._outbound = outbound
        self._slots = asyncio.Semaphore(max_jobs)
        self._history = JobHistory()
        self._progress = JobProgress()
        self._reporter: asyncio.TimerHandle | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}  # job id -> the task of its latest attempt
        self._background: set[asyncio.Task[Any]] = set()  # the loop itself holds tasks only weakly

    def running(self) -> list[tuple[str, int]]:
        """(job id, attempt) of all jobs that were assigned and have not ended."""
        return self._history.running()

    def unacked_results(self) -> list[EncodedResult]:
        """Results that the mesh has not acknowledged, to be retried on a new connection."""
        return self._history.unacked_results(now_ms())

    def send_result(self, result: EncodedResult) -> None:
        """Best effort; it is retried until the mesh acknowledges it."""
        if result.audio is None:
            self._outbound.put(result.head)
        else:
            self._outbound.put_with_audio(wire.JobResult, result.head, result.audio)

    def on_assign(self, assign: wire.JobAssign) -> None:
        """job_assign: run it, or reply to a duplicate."""
        state = self._history.assign(assign.job_id, assign.attempt_id)
        if state is AssignmentState.NEW:
            replaced = self._tasks.get(assign.job_id)
            if replaced:
                replaced.cancel()
            task = self._tasks[assign.job_id] = asyncio.create_task(self._run(assign), name=f"job {assign.job_id}")
            self._background.add(task)
            task.add_done_callback(partial(self._on_job_done, assign))
        elif state is not AssignmentState.DONE:
            unacked = self._history.unacked_result(assign.job_id) if state is AssignmentState.UNACKED else None
            if unacked:
                self.send_result(unacked)
            else:
                self._outbound.put(encode_utf8(job_event(wire.JobAck, assign, self.node_id)))

    def on_cancel(self, cancel: wire.JobCancel) -> None:
        """job_cancel: cancel the handler; there will be no result."""
        task = self._tasks.get(cancel.job_id)
        if task:
            _log.info("job %s cancelled: %s", cancel.job_id, cancel.reason)
            task.cancel()

    def on_result_ack(self, ack: wire.JobResultAck) -> None:
        """job_result_ack: the mesh has the result."""
        self._history.acknowledge(ack.job_id, ack.attempt_id)

    async def drain(self, timeout_s: float) -> None:
        """Wait for the running jobs, up to the timeout."""
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=timeout_s)

    async def cancel(self) -> None:
        """Cancel all handlers."""
        tasks = set(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- one job ----------------------------------------------------------------------------------

    async def _run(self, assign: wire.JobAssign) -> None:
        """One job from its assignment to its result."""
        started_ms = now_ms()
        try:
            if len(self._tasks) > self._max_jobs + JOBS_WAITING_MAX:
                raise JobFailed(ErrorCode.NODE_OVERLOADED.name, f"the node has {len(self._tasks)} jobs already")
            self._progress.on_assigned(assign, started_ms)
            self._report_later()
            async with self._slots:
                self._report(self._progress.on_started(assign, self.node_id))
                result = await self._call_handler(assign)
            ended_ms = now_ms()
            head = encode_utf8(job_result(assign, self.node_id, result, ended_ms - started_ms))
            encoded = EncodedResult(head, bytes(result.tts_audio))
            if _json_bytes(encoded) > RESULT_BYTES_MAX:
                message = f"the result is larger than {RESULT_BYTES_MAX} bytes"
                raise JobFailed(ErrorCode.MESSAGE_TOO_LARGE.name, message)
        except JobFailed as failure:
            ended_ms = now_ms()
            encoded = self._failed(assign, failure, ended_ms - started_ms)
        except Exception as error:  # noqa: BLE001 - the handler is the user's code; any exception fails the job
            _log.exception("the handler failed on job %s", assign.job_id)
            reason = JobFailed(ErrorCode.PROCESSING_ERROR.name, f"{type(error).__name__}: {error}")
            ended_ms = now_ms()
            encoded = self._failed(assign, reason, ended_ms - started_ms)
        self._progress.on_ended(assign)
        if self._history.finish(assign.job_id, assign.attempt_id, encoded, ended_ms):
            self.send_result(encoded)

    def _failed(self, assign: wire.JobAssign, failure: JobFailed, processing_ms: int) -> EncodedResult:
        return EncodedResult(encode_utf8(job_failure(assign, self.node_id, failure, processing_ms)), None)

    async def _call_handler(self, assign: wire.JobAssign) -> Result:
        try:
            return await self._handler(Job(assign, self._partial))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            # The job was not cancelled: a task inside the handler was, which is a failure of the job.
            raise JobFailed(ErrorCode.PROCESSING_ERROR.name, "the handler was cancelled from within") from None

    async def _partial(self, assign: wire.JobAssign, text: str, is_final: bool) -> None:
        self._report(self._progress.report(assign, self.node_id))
        await self._outbound.send(encode_utf8(asr_partial(assign, self.node_id, text, is_final)))

    # --- progress ---------------------------------------------------------------------------------

    def _report(self, reports: Iterable[Report]) -> None:
        for report in reports:
            self._outbound.put(encode_utf8(report))

    def _report_later(self) -> None:
        """One timer for all jobs; it ends by itself."""
        due_ms = self._progress.due_ms
        if self._reporter is None and due_ms is not None:
            wait_s = max(0, due_ms - now_ms()) / 1_000
            self._reporter = asyncio.get_running_loop().call_later(wait_s, self._report_due)

    def _report_due(self) -> None:
        self._reporter = None
        self._report(self._progress.take_due(self.node_id, now_ms()))
        self._report_later()

    # --- the end of a task ------------------------------------------------------------------------

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception():
            _log.error("a job's task failed; this is a defect of the SDK", exc_info=task.exception())

    def _on_job_done(self, assign: wire.JobAssign, task: asyncio.Task[None]) -> None:
        if self._tasks.get(assign.job_id) is task:
            del self._tasks[assign.job_id]
        self._background.discard(task)
        if task.cancelled() or task.exception():
            # It left no result; it may have been cancelled before its first step.
            self._progress.on_ended(assign)
            self._history.finish(assign.job_id, assign.attempt_id, None, now_ms())
            self._on_task_done(task)


def _json_bytes(result: EncodedResult) -> int:
    """Size of a result in JSON, its largest form: a later connection may not know binary messages."""
    return len(result.head) + (len(result.audio or b"") + 2) // 3 * 4
