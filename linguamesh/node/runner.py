"""Runs the jobs of a node: handlers, replies to duplicate assignments, retries of unacknowledged results.

Knows no connection, only a function that sends a text.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from linguamesh.errors import JobFailed
from linguamesh.node.job import Job, Result
from linguamesh.node.job_history import AssignmentState, JobHistory
from linguamesh.node.messages import asr_partial, job_event, job_failure, job_result
from mesh.clock import now_ms
from mesh.errors import ErrorCode
from mesh.messages import node as wire

Handler = Callable[[Job], Awaitable[Result]]

#: Jobs accepted beyond `max_jobs`, waiting for a slot; more are refused with NODE_OVERLOADED.
JOBS_WAITING_MAX: Final = 16
#: The mesh's own bound on a message of a node. A larger one would close the connection, at each retry.
RESULT_BYTES_MAX: Final = 4 * 1024 * 1024

_log = logging.getLogger("linguamesh.node")


class JobRunner:
    """The jobs of one node. `send` is best effort; it returns whether the text went into a live connection."""

    def __init__(self, handler: Handler, max_jobs: int, send: Callable[[str], Coroutine[Any, Any, bool]]) -> None:
        self.node_id = ""  # set by each registration, before any assignment
        self._handler = handler
        self._max_jobs = max_jobs
        self._send = send
        self._slots = asyncio.Semaphore(max_jobs)
        self._history = JobHistory()
        self._tasks: dict[str, asyncio.Task[None]] = {}  # job id -> the task of its latest attempt
        self._background: set[asyncio.Task[Any]] = set()  # the loop itself holds tasks only weakly

    def running(self) -> list[tuple[str, int]]:
        """(job id, attempt) of all jobs that were assigned and have not ended."""
        return self._history.running()

    def unacked_results(self) -> list[str]:
        """Results that the mesh has not acknowledged, to be retried on a new connection."""
        return self._history.unacked_results(now_ms())

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
            text = unacked or wire.encode(job_event(wire.JobAck, assign, self.node_id))
            resend = asyncio.create_task(self._send(text), name=f"resend {assign.job_id}")
            self._background.add(resend)
            resend.add_done_callback(self._on_task_done)

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
            await self._send(wire.encode(job_event(wire.JobAck, assign, self.node_id)))
            async with self._slots:
                await self._send(wire.encode(job_event(wire.JobStarted, assign, self.node_id)))
                result = await self._call_handler(assign)
            ended_ms = now_ms()
            text = wire.encode(job_result(assign, self.node_id, result, ended_ms - started_ms))
            # A character takes up to 4 bytes, so a short text need not be measured.
            if len(text) * 4 > RESULT_BYTES_MAX and len(text.encode()) > RESULT_BYTES_MAX:
                message = f"the result is larger than {RESULT_BYTES_MAX} bytes"
                raise JobFailed(ErrorCode.MESSAGE_TOO_LARGE.name, message)
        except JobFailed as failure:
            ended_ms = now_ms()
            text = wire.encode(job_failure(assign, self.node_id, failure, ended_ms - started_ms))
        except Exception as error:  # noqa: BLE001 - the handler is the user's code; any exception fails the job
            _log.exception("the handler failed on job %s", assign.job_id)
            reason = JobFailed(ErrorCode.PROCESSING_ERROR.name, f"{type(error).__name__}: {error}")
            ended_ms = now_ms()
            text = wire.encode(job_failure(assign, self.node_id, reason, ended_ms - started_ms))
        if self._history.finish(assign.job_id, assign.attempt_id, text, ended_ms):
            await self._send(text)

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
        await self._send(wire.encode(asr_partial(assign, self.node_id, text, is_final)))

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
            self._history.finish(assign.job_id, assign.attempt_id, None, now_ms())
            self._on_task_done(task)
