"""Handlers of jobs, with a store that must not be called. Their story with a real one: tests/loopback/selector."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from mesh.config import Config
from mesh.frames import Bounce, Frame, Head, Lane, Push, encode
from mesh.link.link import Received
from selector.context import SelectorContext
from selector.core.node_table import NodeTable
from selector.frame_guard import FrameGuard
from selector.frame_handlers import FrameHandlers
from selector.jobs.handler import JobHandler
from selector.placement.placer import Placer


def bounce(*parts: bytes) -> Received:
    head = Head(Lane.CONTROL, "", 0, "broker", 0)
    return Received(head, Bounce("unroutable"), list(parts), "broker")


def handlers() -> FrameHandlers:
    guard = FrameGuard(cast(Any, None))
    unused = SimpleNamespace(wait_queue=SimpleNamespace(slots_freed=None), selection=None)
    context = SimpleNamespace(
        store=None, table=NodeTable(nodes_max=1), metrics=None, guard=guard, send=None, config=Config()
    )
    jobs = JobHandler(cast(SelectorContext, context), cast(Placer, unused), lambda edge: True)
    table = FrameHandlers(guard)
    table.on(Bounce, jobs.on_bounce)
    return table


@pytest.mark.parametrize("parts", [[], [b"head"], [b"head", b"not a frame"]])
async def test_bounce_without_its_parts_is_a_fault_of_the_peer(parts: list[bytes]) -> None:
    with capture_logs() as lines:
        await handlers().handle([bounce(*parts)])
    [line] = lines
    assert (line["event"], line["log_level"], line["frame"]) == ("bad_frame", "warning", "Bounce")


async def test_bounce_of_another_frame_than_assign_is_only_logged() -> None:
    returned: Frame = Push("job-00-x", 1, "n", "edge:b:1", "r-1", "s-1", 0)
    with capture_logs() as lines:
        await handlers().handle([bounce(b"head", encode(returned))])
    assert [(line["event"], line["frame"]) for line in lines] == [("bounced", "Push")]
