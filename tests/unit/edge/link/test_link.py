"""The edge's link on frames that came back: unreadable ones are logged and cost nothing else."""

from __future__ import annotations

import pytest

from edge.link.core.rpc import MailPage, Question
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


def given_back(link: EdgeLink, *payload: bytes) -> None:
    link._on_given_back(Received(HEAD, Bounce("unroutable"), list(payload), "b"))


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
def test_unreadable_frame_is_not_passed_on(payload: tuple[bytes, ...]) -> None:
    link = EdgeLink(Config(), "edge:x:1")
    seen: list[Frame] = []
    link.handle({}, dict.fromkeys((Dispatch, ResultAck), lambda frame, retry_ms: seen.append(frame)))
    given_back(link, *payload)
    assert seen == []
    given_back(link, b"head", encode(ResultAck("job-00-1", 1, "n", "fenced")))
    assert seen == [ResultAck("job-00-1", 1, "n", "fenced")]


def test_question_given_back_is_the_askers_business() -> None:
    link = EdgeLink(Config(), "edge:x:1")
    answers: list[object] = []
    for ref, to in (("1", ""), ("2", "selector:gone:1")):
        link.asks.ask(Query(ref, "edge:x:1", "weights", {}), 0, answers.append, 0, to=to, timeout_ms=10**9)
        given_back(link, b"head", encode(Query(ref, "edge:x:1", "weights", {})))
    assert answers == [None] and list(link.asks.open) == ["1"], "nobody else can tell what that one knows"


@pytest.mark.parametrize(
    "question",
    [
        MailAsk("1", "s-1", "edge:x:1", 5),
        Post("1", "edge:x:1", "s-1", "result", "k"),
        RoomRequest("1", "edge:x:1", "s-1", "create"),
        RoomSignal("1", "edge:x:1", "s-1", "123456", "s-2"),
        PairingAsk("1", "edge:x:1", "n-1"),
        PairingUse("1", "edge:x:1", "123456", "c", "u"),
    ],
)
def test_question_of_any_kind_given_back_is_asked_again_soon(question: Question) -> None:
    link = EdgeLink(Config(), "edge:x:1")
    link.asks.ask(question, 0, lambda answer: None, 0, timeout_ms=10**15)
    link.asks._timers.set("1", 10**15)
    given_back(link, b"head", encode(question))
    due_ms = link.asks.next_due_ms()
    assert due_ms is not None and due_ms < 10**15


def test_mail_is_passed_on_with_all_its_parts() -> None:
    link = EdgeLink(Config(), "edge:x:1")
    answers: list[object] = []
    link.asks.ask(MailAsk("1", "s-1", "edge:x:1", 5), 0, answers.append, 0, timeout_ms=10**9)
    mail = Mail("1", "s-1", "7-0", True)
    link.on_messages([Received(HEAD, mail, [b"frame", b"body"], "b")])
    assert answers == [MailPage("1", mail, (b"frame", b"body"))]


def test_an_edge_receives_exactly_the_frames_addressed_to_edges() -> None:
    assert {Assign, Push, Bounce, Post} <= RECEIVED
    assert not RECEIVED & {Dispatch, JobDone, Beat, BrokerBeat}
