"""Edge link: frames that a broker returned, and replies with their payload."""

from __future__ import annotations

import pytest

from edge.core.timers import Schedule
from edge.link.core.rpc import CallFrame, MailPage
from edge.link.link import RECEIVED, EdgeLink
from mesh.config import Config
from mesh.frames import (
    FRAME_VERSION,
    Assign,
    Beat,
    Bounce,
    BrokerBeat,
    Dispatch,
    Frame,
    Head,
    JobDone,
    Mail,
    MailAsk,
    PairingAsk,
    PairingUse,
    Post,
    Push,
    Query,
    ResultAck,
    RoomRequest,
    RoomSignal,
    encode,
)
from mesh.link.link import Received

HEAD = Head(FRAME_VERSION, 0, "edge:x:1", 0, "broker", 0)


def return_frame(link: EdgeLink, *payload: bytes) -> None:
    link.on_messages([Received(HEAD, Bounce("unroutable"), list(payload), "b")])


@pytest.mark.parametrize(
    "payload",
    [
        (),
        (b"head",),
        (b"head", b""),
        (b"head", b"\xc1"),
        (b"head", b"\x92\xa9ResultAck\xa1\xff"),  # text that is no UTF-8
        (b"head", encode(ResultAck("job-00-1", 1, "n", "fenced"))[:-1]),
    ],
)
def test_unreadable_returned_frame_reaches_no_handler(payload: tuple[bytes, ...]) -> None:
    link = EdgeLink(Config(), "edge:x:1", Schedule())
    seen: list[Frame] = []
    for kind in (Dispatch, ResultAck):
        link.on_return(kind, lambda frame, retry_ms, now: seen.append(frame))
    return_frame(link, *payload)
    assert seen == []
    return_frame(link, b"head", encode(ResultAck("job-00-1", 1, "n", "fenced")))
    assert seen == [ResultAck("job-00-1", 1, "n", "fenced")]


def test_returned_call_to_one_selector_fails_at_once() -> None:
    link = EdgeLink(Config(), "edge:x:1", Schedule())
    replies: list[object] = []
    for ref, to in (("1", ""), ("2", "selector:gone:1")):
        link.asks.ask(Query(ref, "edge:x:1", "weights", {}), 0, replies.append, 0, to=to, timeout_ms=10**9)
        return_frame(link, b"head", encode(Query(ref, "edge:x:1", "weights", {})))
    assert replies == [None] and list(link.asks.open) == ["1"], "no other selector can reply"


@pytest.mark.parametrize(
    "call",
    [
        MailAsk("1", "s-1", "edge:x:1", 5),
        Post("1", "edge:x:1", "s-1", "result", "k"),
        RoomRequest("1", "edge:x:1", "s-1", "create"),
        RoomSignal("1", "edge:x:1", "s-1", "123456", "s-2"),
        PairingAsk("1", "edge:x:1", "n-1"),
        PairingUse("1", "edge:x:1", "123456", "c", "u"),
    ],
)
def test_returned_call_of_any_type_is_retried_soon(call: CallFrame) -> None:
    link = EdgeLink(Config(), "edge:x:1", Schedule())
    link.asks.ask(call, 0, lambda reply: None, 0, timeout_ms=10**15)
    link.asks.timers.set("1", 10**15)
    return_frame(link, b"head", encode(call))
    due_ms = link.asks.timers.next_due_ms()
    assert due_ms is not None and due_ms < 10**15


def test_mail_reply_carries_all_its_parts() -> None:
    link = EdgeLink(Config(), "edge:x:1", Schedule())
    replies: list[object] = []
    link.asks.ask(MailAsk("1", "s-1", "edge:x:1", 5), 0, replies.append, 0, timeout_ms=10**9)
    mail = Mail("1", "s-1", "7-0", True)
    link.on_messages([Received(HEAD, mail, [b"frame", b"body"], "b")])
    assert replies == [MailPage("1", mail, (b"frame", b"body"))]


def test_edge_receives_exactly_the_frames_addressed_to_edges() -> None:
    assert {Assign, Push, Bounce, Post} <= RECEIVED
    assert not RECEIVED & {Dispatch, JobDone, Beat, BrokerBeat}
