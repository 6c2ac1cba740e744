"""Jobs of a node, with real handlers and no connection."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from linguamesh.errors import JobFailed
from linguamesh.node.job import Job, Result
from linguamesh.node.runner import RESULT_BYTES_MAX, Handler, JobRunner
from mesh.messages import binary
from mesh.messages import node as wire
from tests.support.conditions import DEADLINE_S, until
from tests.support.fakes.recorded_outbound import RecordedOutbound
from tests.unit.linguamesh.node.test_job import assignment


class Running:
    """A runner, and the messages that it sends."""

    def __init__(self, handler: Handler, max_jobs: int = 1) -> None:
        self.outbound = RecordedOutbound()
        self.jobs = JobRunner(handler, max_jobs, self.outbound)
        self.jobs.node_id = "n-1"

    async def has_sent(self, *types: str) -> None:
        """Returns once these messages, and no others, were sent."""
        await until(lambda: len(self.outbound.sent) >= len(types), "the messages were sent")
        assert self.outbound.types() == list(types)


async def hola(job: Job) -> Result:
    return Result(text_translated="hola")


async def test_result_of_a_fast_job_is_all_that_is_sent() -> None:
    running = Running(hola)
    running.jobs.on_assign(assignment(""))
    await running.has_sent("job_result")
    (result,) = running.outbound.texts()
    assert (result["success"], result["text_translated"], result["attempt_id"]) == (True, "hola", 2)
    assert running.jobs.running() == []


async def test_job_that_takes_longer_is_acknowledged_and_started_first() -> None:
    ended = asyncio.Event()

    async def wait(job: Job) -> Result:
        await ended.wait()
        return Result()

    running = Running(wait)
    running.jobs.on_assign(assignment(""))
    await running.has_sent("job_ack", "job_started")
    ended.set()
    await running.has_sent("job_ack", "job_started", "job_result")


async def test_job_without_a_slot_is_started_when_it_gets_one() -> None:
    ended = asyncio.Event()

    async def wait(job: Job) -> Result:
        await ended.wait()
        return Result()

    running = Running(wait, max_jobs=1)
    running.jobs.on_assign(assignment(""))
    running.jobs.on_assign(replace(assignment(""), job_id="job-2"))
    await running.has_sent("job_ack", "job_started", "job_ack")
    ended.set()
    await until(lambda: not running.jobs.running(), "both have ended")
    sent = [(message["type"], message["job_id"]) for message in running.outbound.texts()]
    assert sent[3:] == [("job_result", "job-1"), ("job_started", "job-2"), ("job_result", "job-2")]


async def test_partial_reports_the_job_first() -> None:
    async def partial(job: Job) -> Result:
        await job.partial("hel")
        return Result()

    running = Running(partial)
    running.jobs.on_assign(assignment(""))
    await running.has_sent("job_ack", "job_started", "asr_partial", "job_result")


async def test_unacked_result_is_sent_again_for_a_duplicate_and_kept_until_acknowledged() -> None:
    running = Running(hola)
    running.jobs.on_assign(assignment(""))
    await running.has_sent("job_result")
    running.jobs.on_assign(assignment(""))
    await running.has_sent("job_result", "job_result")
    assert len(running.jobs.unacked_results()) == 1
    running.jobs.on_result_ack(wire.JobResultAck(job_id="job-1", attempt_id=2))
    assert running.jobs.unacked_results() == []


async def test_result_is_binary_if_its_connection_agreed_to_that() -> None:
    async def speak(job: Job) -> Result:
        return Result(tts_audio=b"speech")

    running = Running(speak)
    running.outbound.use_binary_messages = True
    running.jobs.on_assign(assignment(""))
    await running.has_sent("JobResult")
    (data,) = running.outbound.sent
    message = binary.decode(data)  # type: ignore[arg-type]
    assert isinstance(message, wire.JobResult) and bytes(message.tts_audio) == b"speech"  # type: ignore[arg-type]
    running.outbound.use_binary_messages = False
    running.jobs.send_result(running.jobs.unacked_results()[0])
    assert running.outbound.texts()[0]["tts_audio"] == "c3BlZWNo", "a later connection may not know binary messages"


async def test_result_that_is_too_large_in_json_fails_the_job() -> None:
    async def speak(job: Job) -> Result:
        return Result(tts_audio=bytes(RESULT_BYTES_MAX * 3 // 4))

    running = Running(speak)
    running.outbound.use_binary_messages = True
    running.jobs.on_assign(assignment(""))
    await running.has_sent("job_result")
    assert running.outbound.texts()[0]["error"]["code"] == "MESSAGE_TOO_LARGE"


async def test_job_failure_has_the_code_of_the_handler() -> None:
    async def fail(job: Job) -> Result:
        raise JobFailed("MODEL_NOT_AVAILABLE", "no fr")

    running = Running(fail)
    running.jobs.on_assign(assignment(""))
    await running.has_sent("job_result")
    (result,) = running.outbound.texts()
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
