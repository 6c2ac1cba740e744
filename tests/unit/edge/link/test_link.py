"""Edge link: frames that a broker returned, replies with their payload, and gathered acknowledgements."""

from __future__ import annotations

import asyncio

import pytest

from edge.core.timers import Schedule
from edge.link.core.rpc import CallFrame, MailPage
from edge.link.link import RECEIVED, EdgeLink
from mesh.clock import now_ms
from mesh.config import Config
from mesh.frames import (
    Assign,
    Beat,
    Bounce,
    BrokerBeat,
    Dispatch,
    Finished,
    FinishedAck,
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
    ResultAcks,
    RoomRequest,
    RoomSignal,
    encode,
)
from mesh.link.link import Received
from tests.support.conditions import DEADLINE_S

ACKS = ResultAcks([ResultAck("n", "job-00-1", 1, "fenced")])
HEAD = Head(0, "edge:x:1", 0, "broker", 0)


def return_frame(link: EdgeLink, *payload: bytes) -> None:
    link.on_messages([Received(HEAD, Bounce("unroutable"), list(payload), "b")])


@pytest.mark.parametrize(
    "payload",
    [
        (),
        (b"head",),
        (b"head", b""),
        (b"head", b"\xc1"),
        (b"head", b"\x92\xaaResultAcks\xa1\xff"),  # text that is no UTF-8
        (b"head", encode(ACKS)[:-1]),
    ],
)
def test_unreadable_returned_frame_reaches_no_handler(payload: tuple[bytes, ...]) -> None:
    link = EdgeLink(Config(), "edge:x:1", Schedule())
    seen: list[Frame] = []
    for kind in (Dispatch, ResultAcks):
        link.on_return(kind, lambda frame, retry_ms, now: seen.append(frame))
    return_frame(link, *payload)
    assert seen == []
    return_frame(link, b"head", encode(ACKS))
    assert seen == [ACKS]


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


async def test_result_of_a_node_at_this_edge_keeps_its_view_of_the_audio() -> None:
    """The same edge has session and node: the parts of a binary message arrive as they are."""
    link = EdgeLink(Config(), "edge:x:1", Schedule())
    seen: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
    link.on(Push, lambda frame, payload, now: seen.set_result(payload))
    push = Push("job-00-1", 1, "n", "edge:x:1", "r", "s-1", 0)
    audio = memoryview(b"speech")
    link.to_peer("edge:x:1", push, b"{}", audio)  # type: ignore[arg-type]
    async with asyncio.timeout(DEADLINE_S):
        head, part = await seen
    assert head == b"{}" and part is audio


def test_edge_receives_exactly_the_frames_addressed_to_edges() -> None:
    assert {Assign, Push, Bounce, Post, ResultAcks, FinishedAck} <= RECEIVED
    assert not RECEIVED & {Dispatch, JobDone, Finished, Beat, BrokerBeat}


def test_acknowledgements_for_a_node_of_this_edge_are_gathered_into_one_frame() -> None:
    """The same edge has session and node: the frame needs no broker, and arrives as any other."""
    config, schedule = Config(), Schedule()
    batch_max, delay_ms = config.link.ack_batch_max, config.link.ack_delay_ms
    acks = [ResultAck("n", f"job-00-{number}", 1, "delivered") for number in range(batch_max + 2)]
    seen: list[ResultAcks] = []

    async def acknowledge() -> None:
        link = EdgeLink(config, "edge:x:1", schedule)
        link.on(ResultAcks, lambda frame, payload, now: seen.append(frame))
        before_ms = now_ms()
        for one in acks:
            link.acknowledge("edge:x:1", one)
        await asyncio.sleep(0)
        assert [len(frame.acks) for frame in seen] == [batch_max], "a full batch does not wait"
        due_ms = schedule.next_due_ms()
        assert due_ms is not None and before_ms + delay_ms <= due_ms
        (tick,) = schedule.pop_due(due_ms + delay_ms)
        tick(due_ms)
        await asyncio.sleep(0)
        link.send_acks(due_ms)
        await asyncio.sleep(0)

    asyncio.run(acknowledge())
    assert [len(frame.acks) for frame in seen] == [batch_max, 2] and [one for f in seen for one in f.acks] == acks
