from __future__ import annotations

import pytest

from mesh.config.network import LinkConfig
from mesh.frames import BROKER, Dispatch, Frame, Goodbye, Head, Lane
from mesh.link.link import Link, Received
from mesh.words import ProcessKind
from tests.support.builders.golden_frames import plain


def link(*endpoints: str, window: int = 0) -> Link:
    return Link(
        identity="edge:a:1",
        kind=ProcessKind.EDGE,
        endpoints=list(endpoints),
        config=LinkConfig(),
        window=window,
        on_messages=lambda messages: None,
    )


@pytest.mark.parametrize(
    ("to", "frame", "costs"),
    [
        ("", plain(Dispatch), True),
        ("", Goodbye(), False),
        ("selector:a:1", plain(Dispatch), False),
        (BROKER, Goodbye(), False),
    ],
)
def test_only_work_for_any_selector_costs_credit(to: str, frame: Frame, costs: bool) -> None:
    head = Head(1, frame.lane, to, 0, "edge:a:1", 0)
    assert Received(head, frame, [], "ipc://b").costs_credit is costs
    assert (head.lane == Lane.WORK) is (frame.lane is Lane.WORK)


def test_send_without_a_live_broker_is_counted_as_unsent() -> None:
    closed = link("ipc://b1", "ipc://b2")
    assert closed.send("", 0, Goodbye()) == ""
    assert (closed.counts.unsent, closed.counts.sent) == (1, 0)
    assert (closed.brokers_live(), closed.selectors_live(), closed.held()) == (0, 0, 0)


def test_consumed_of_an_unknown_broker_is_ignored() -> None:
    closed = link("ipc://b1", window=8)
    closed.consumed({"ipc://gone": 3})
    assert closed.held() == 0
