from __future__ import annotations

import asyncio

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from mesh.errors import StoreError
from mesh.frames import Head, JobEvent, Lane
from mesh.link.link import Received
from selector.frame_guard import FrameGuard
from selector.metrics import SelectorMetrics

EVENT = Received(Head(Lane.WORK, "", 0, "edge:a:1", 0), JobEvent("job-00-1", 3, "n", "start"), [], "broker")


@pytest.fixture
def metrics() -> SelectorMetrics:
    return SelectorMetrics(CollectorRegistry())


def store_errors(metrics: SelectorMetrics) -> float:
    return float(metrics.store_errors_total.labels("JobEvent").value)


@pytest.mark.parametrize(
    ("error", "event", "level", "counted"),
    [
        (StoreError("down"), "store_failed", "warning", 1),
        (msgspec.ValidationError("bad"), "bad_frame", "warning", 0),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "bad_frame", "warning", 0),
        (IndexError("no such part"), "bad_frame", "warning", 0),
        (KeyError("bug"), "handler_failed", "error", 0),
        (AssertionError("bug"), "handler_failed", "error", 0),
    ],
)
async def test_error_is_logged_by_its_cause_with_the_ids_of_the_frame(
    metrics: SelectorMetrics, error: Exception, event: str, level: str, counted: int
) -> None:
    async def fail() -> None:
        raise error

    with capture_logs() as lines:
        await FrameGuard(metrics).run(EVENT, fail())
    [line] = lines
    assert (line["event"], line["log_level"], line["frame"]) == (event, level, "JobEvent")
    assert {name: line[name] for name in ("job_id", "attempt", "node_id")} == {
        "job_id": "job-00-1",
        "attempt": 3,
        "node_id": "n",
    }
    assert "session_id" not in line, "a JobEvent has none"
    assert store_errors(metrics) == counted


async def test_success_is_neither_logged_nor_counted(metrics: SelectorMetrics) -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("done")

    with capture_logs() as lines:
        await FrameGuard(metrics).run(EVENT, work())
    assert (done, lines, store_errors(metrics)) == (["done"], [], 0)


async def test_cancellation_is_not_an_error_of_the_message(metrics: SelectorMetrics) -> None:
    started = asyncio.Event()

    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(FrameGuard(metrics).run(EVENT, work()))
    await started.wait()
    running.cancel()
    with capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        await running
    assert lines == []
