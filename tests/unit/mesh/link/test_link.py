from __future__ import annotations

from mesh.config.network import LinkConfig
from mesh.frames import Goodbye
from mesh.link.link import Link
from mesh.words import ProcessKind


def link(*endpoints: str, window: int = 0) -> Link:
    return Link(
        identity="edge:a:1",
        kind=ProcessKind.EDGE,
        endpoints=list(endpoints),
        config=LinkConfig(),
        window=window,
        on_messages=lambda messages: None,
    )


def test_send_without_a_live_broker_is_counted_as_unsent() -> None:
    closed = link("ipc://b1", "ipc://b2")
    assert closed.send("", 0, Goodbye()) == ""
    assert (closed.counts.unsent, closed.counts.sent) == (1, 0)
    assert (closed.brokers_live(), closed.selectors_live(), closed.held()) == (0, 0, 0)


def test_consumed_of_an_unknown_broker_is_ignored() -> None:
    closed = link("ipc://b1", window=8)
    closed.consumed({"ipc://gone": 3})
    assert closed.held() == 0
