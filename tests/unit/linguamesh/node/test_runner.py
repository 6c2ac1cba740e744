"""Jobs of a node, with real handlers and no connection."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from linguamesh.errors import JobFailed
from linguamesh.node.job import Job, Result
from linguamesh.node.runner import Handler, JobRunner
from mesh.messages import node as wire
from tests.support.conditions import DEADLINE_S
from tests.unit.linguamesh.node.test_job import assignment


class Running:
    """A runner, and the messages that it sends."""

    def __init__(self, handler: Handler, max_jobs: int = 1) -> None:
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.jobs = JobRunner(handler, max_jobs, self._send)
        self.jobs.node_id = "n-1"

    async def _send(self, text: str) -> bool:
        await self.sent.put(json.loads(text))
        return True

    async def next(self, kind: str) -> dict[str, Any]:
        """The next message, which is of that type."""
        async with asyncio.timeout(DEADLINE_S):
            message = await self.sent.get()
        assert message["type"] == kind
        return message


async def hola(job: Job) -> Result:
    return Result(text_translated="hola")


async def test_job_is_acknowledged_started_and_completed() -> None:
    running = Running(hola)
    running.jobs.on_assign(assignment(""))
    assert [(await running.next(kind))["job_id"] for kind in ("job_ack", "job_started")] == ["job-1", "job-1"]
    result = await running.next("job_result")
    assert (result["success"], result["text_translated"], result["attempt_id"]) == (True, "hola", 2)
    assert running.jobs.running() == []


async def test_unacked_result_is_sent_again_for_a_duplicate_and_kept_until_acknowledged() -> None:
    running = Running(hola)
    running.jobs.on_assign(assignment(""))
    for kind in ("job_ack", "job_started", "job_result"):
        await running.next(kind)
    running.jobs.on_assign(assignment(""))
    await running.next("job_result")
    assert len(running.jobs.unacked_results()) == 1
    running.jobs.on_result_ack(wire.JobResultAck(job_id="job-1", attempt_id=2))
    assert running.jobs.unacked_results() == []


async def test_job_failure_has_the_code_of_the_handler() -> None:
    async def fail(job: Job) -> Result:
        raise JobFailed("MODEL_NOT_AVAILABLE", "no fr")

    running = Running(fail)
    running.jobs.on_assign(assignment(""))
    for kind in ("job_ack", "job_started"):
        await running.next(kind)
    result = await running.next("job_result")
    assert (result["success"], result["error"]["code"]) == (False, "MODEL_NOT_AVAILABLE")


async def test_cancelled_job_leaves_no_result() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(job: Job) -> Result:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return Result()

    running = Running(wait)
    running.jobs.on_assign(assignment(""))
    async with asyncio.timeout(DEADLINE_S):
        await started.wait()
        running.jobs.on_cancel(wire.JobCancel(job_id="job-1", trace_id="t-1", reason="timeout"))
        await cancelled.wait()
        await running.jobs.cancel()
    assert running.jobs.running() == [] and running.jobs.unacked_results() == []
