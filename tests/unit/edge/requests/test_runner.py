"""Request runner: a Push for a session that this edge has, had, or no longer owns. A real link that reaches itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from edge.core.timers import Schedule
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.requests.core.request import ResultArrived, ResultRejected
from edge.requests.runner import RequestRunner, SessionEvent
from mesh.config import Config
from mesh.frames import Push, ResultAck, ResultAcks
from tests.unit.edge.requests.test_tracker import RESULT, dispatch, push

#: Session and node are at the same edge: its frames to itself need no broker.
EDGE = "edge:x:1"
TEXT = msgspec.json.encode(RESULT)


class Requester:
    """A session that records its events."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.events: list[SessionEvent] = []

    def handle(self, event: SessionEvent, now: int) -> None:
        self.events.append(event)


class Case:
    """A runner with one pending request; `pushed` and `acks` are the frames that left."""

    def __init__(self, epoch: int | None) -> None:
        schedule = Schedule()
        self.link = EdgeLink(Config(), EDGE, schedule)
        self.session = None if epoch is None else Requester(epoch)
        metrics = EdgeMetrics(CollectorRegistry())
        self.runner = RequestRunner(Config(), self.link, metrics, schedule, lambda session_id: self.session)
        self.pushed: list[tuple[Push, list[bytes]]] = []
        self.acks: list[ResultAck] = []
        self.link.on(Push, lambda frame, payload, now: self.pushed.append((frame, payload)))
        self.link.on(ResultAcks, lambda frame, payload, now: self.acks.extend(frame.acks))
        if self.session is not None:
            self.runner.tracker.open_session("s")
            self.runner.tracker.submit(dispatch(), b"", b"", 10**15, 0)

    @property
    def events(self) -> list[SessionEvent]:
        return [] if self.session is None else self.session.events


def run(case: Case, *steps: Callable[[], None]) -> None:
    """Take the steps, and receive all frames that this edge sent to itself."""

    async def all_steps() -> None:
        for step in steps:
            step()
        case.link.send_acks(0)
        await asyncio.sleep(0)

    asyncio.run(all_steps())


def sent(**fields: Any) -> Push:
    return push(node_edge=EDGE, **fields)


def ack(verdict: str) -> ResultAck:
    return ResultAck("n", "job-00-1", 1, verdict)


@pytest.mark.parametrize("epoch", [0, 3, 4], ids=["unknown", "earlier", "the same"])
def test_result_for_this_owner_or_an_earlier_one_is_delivered(epoch: int) -> None:
    case = Case(epoch=4)
    run(case, lambda: case.runner.on_push(sent(session_epoch=epoch), [TEXT], 5))
    (event,) = case.events
    assert isinstance(event, ResultArrived) and not case.acks, "the session acknowledges it"


def test_result_for_a_later_owner_is_not_delivered() -> None:
    case = Case(epoch=4)
    run(case, lambda: case.runner.on_push(sent(session_epoch=5), [TEXT], 5))
    assert not case.events and case.acks == [ack("no_session")] and not case.pushed
    assert "r" in case.runner.tracker.requests, "it is pending still"


def test_result_for_a_session_that_moved_is_forwarded_unchanged_to_its_owner() -> None:
    case = Case(epoch=None)
    frame = sent(session_epoch=5, sent_us=7, stages=[1, 2])
    run(
        case,
        lambda: case.runner.leave("s", EDGE),
        lambda: case.runner.on_push(frame, [TEXT, b"audio"], 5),
    )
    assert case.pushed == [(frame, [TEXT, b"audio"])] and not case.acks, "its owner acknowledges it"


def test_result_for_a_session_that_is_not_here_is_not_acknowledged_as_delivered() -> None:
    case = Case(epoch=None)
    run(case, lambda: case.runner.on_push(sent(), [TEXT], 5))
    assert case.acks == [ack("no_session")] and not case.pushed


def test_result_for_a_session_that_returned_and_ended_is_not_forwarded() -> None:
    case = Case(epoch=None)
    run(
        case,
        lambda: case.runner.leave("s", EDGE),
        lambda: case.runner.returned("s"),
        lambda: case.runner.on_push(sent(session_epoch=6), [TEXT], 5),
    )
    assert case.acks == [ack("no_session")] and not case.pushed


def test_duplicate_is_rejected_by_the_session_and_delivered_once() -> None:
    case = Case(epoch=4)
    run(case, *[lambda: case.runner.on_push(sent(session_epoch=4), [TEXT], 5)] * 2)
    assert [type(event) for event in case.events] == [ResultArrived, ResultRejected]


def test_acknowledgements_of_many_results_leave_in_one_frame() -> None:
    case = Case(epoch=None)
    frames: list[ResultAcks] = []
    case.link.on(ResultAcks, lambda frame, payload, now: frames.append(frame))
    run(case, *[lambda: case.runner.on_push(sent(), [TEXT], 5)] * 3)
    assert [one.acks for one in frames] == [[ack("no_session")] * 3]
