from __future__ import annotations

from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from mesh.frames import Frame, Head, JobEvent, Lane, MailTrim
from mesh.link.link import Received
from selector.frame_guard import FrameGuard
from selector.frame_handlers import FrameHandlers


def message(frame: Frame) -> Received:
    return Received(Head(Lane.WORK, "", 0, "edge:a:1", 0), frame, [], "broker")


def event(number: int) -> Received:
    return message(JobEvent(f"job-00-{number}", 1, "n", "start"))


@pytest.fixture
def handlers() -> FrameHandlers:
    return FrameHandlers(FrameGuard(cast(Any, None)))


async def test_batch_handler_gets_all_messages_of_its_kind_and_a_single_one_each_frame(handlers: FrameHandlers) -> None:
    batches: list[list[Received]] = []
    trims: list[str] = []

    async def on_events(messages: list[Received]) -> None:
        batches.append(messages)

    async def on_trim(frame: MailTrim, message: Received) -> None:
        assert message.frame is frame
        trims.append(frame.session_id)

    handlers.on_batch(JobEvent, on_events)
    handlers.on(MailTrim, on_trim)
    assert handlers.kinds == {JobEvent, MailTrim}
    first, second = event(1), event(2)
    await handlers.handle([first, message(MailTrim("s-1", "e", 1, "0")), second, message(MailTrim("s-2", "e", 1, "0"))])
    assert (batches, trims) == ([[first, second]], ["s-1", "s-2"])


async def test_failed_batch_is_retried_message_by_message(handlers: FrameHandlers) -> None:
    done: list[str] = []

    async def on_events(messages: list[Received]) -> None:
        for one in messages:
            assert isinstance(one.frame, JobEvent)
            if one.frame.job_id == "job-00-1":
                raise ValueError("bad")
        done.extend(one.frame.job_id for one in messages if isinstance(one.frame, JobEvent))

    handlers.on_batch(JobEvent, on_events)
    for handle in (handlers.handle, handlers.batch_of(JobEvent)):
        done.clear()
        with capture_logs() as lines:
            await handle([event(0), event(1), event(2)])
        assert done == ["job-00-0", "job-00-2"]
        assert [(line["event"], line["job_id"]) for line in lines] == [("bad_frame", "job-00-1")]


async def test_bug_in_a_handler_costs_its_message_only(handlers: FrameHandlers) -> None:
    async def on_trim(frame: MailTrim, message: Received) -> None:
        if frame.session_id == "s-1":
            raise RuntimeError("bug")

    handlers.on(MailTrim, on_trim)
    with capture_logs() as lines:
        await handlers.handle([message(MailTrim("s-1", "e", 1, "0")), message(MailTrim("s-2", "e", 1, "0"))])
    assert [(line["event"], line["session_id"]) for line in lines] == [("handler_failed", "s-1")]
