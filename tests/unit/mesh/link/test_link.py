from __future__ import annotations

import pytest
import zmq

from mesh.config.network import LinkConfig
from mesh.frames import BROKER, Dispatch, Frame, Goodbye, Head, Lane, encode
from mesh.link.credit import LinkCredit
from mesh.link.link import Link, _BrokerSocket
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
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    credit = LinkCredit(kind=ProcessKind.SELECTOR, window=8, dead_ms=1_000)
    with context, context.socket(zmq.DEALER) as socket:
        broker = _BrokerSocket("ipc://b", socket, credit, 1)
        received = link("ipc://b", window=8)._decode(broker, [encode(head), encode(frame)])
    assert received is not None
    assert received.costs_credit is costs
    assert (credit.received, credit.outstanding) == (int(costs), int(costs))
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
