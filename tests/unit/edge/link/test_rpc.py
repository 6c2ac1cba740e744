"""Calls with one reply: retried until it arrives; commands are not retried; a call to one selector fails with it."""

from __future__ import annotations

from typing import Any

import pytest

from edge.link.core.rpc import CallFrame, CallLimits, MailPage, PendingCalls, QueryReply, Reply
from mesh.frames import (
    Failed,
    Mail,
    MailAsk,
    Paired,
    PairingAsk,
    PairingCode,
    PairingUse,
    Post,
    Posted,
    Query,
    RoomRequest,
    RoomSignal,
    RoomState,
    SessionRelease,
    SessionReleased,
)


def pending(**options: Any) -> tuple[PendingCalls, list[Any]]:
    core = PendingCalls(CallLimits(400, 1_500, 5_000))
    replies: list[Any] = []
    core.ask(Query("1", "a", "weights", {}), 3, replies.append, 0, timeout_ms=2_000, **options)
    return core, replies


def ticks(core: PendingCalls, *times: int) -> list[int]:
    counts = []
    for now in times:
        counts.append(len(core.tick(now)))
        core.check()
    return counts


def test_call_is_retried_has_one_reply_and_a_timeout_of_its_own() -> None:
    core, replies = pending()
    assert ticks(core, 400, 1_200) == [1, 1]
    core.on_answer(QueryReply("1", 200, b"{}"))
    core.on_answer(QueryReply("1", 200, b"the reply to the retry"))
    assert replies == [QueryReply("1", 200, b"{}")] and core.timers.next_due_ms() is None
    core, replies = pending()
    ticks(core, 400, 1_200, 2_000)
    assert replies == [None] and core.timers.next_due_ms() is None


def test_command_is_sent_once_unless_a_broker_returned_it() -> None:
    core, replies = pending(once=True)
    assert ticks(core, 400, 1_200) == [0, 0]
    core.on_lost("1", 50, 1_300)
    assert ticks(core, 1_350, 1_800, 2_000) == [1, 0, 0]
    assert replies == [None]


def test_call_to_an_unreachable_selector_fails_once() -> None:
    core, replies = pending(to="selector:gone:1")
    core.on_lost("1", 100, 10)
    assert replies == [None] and core.timers.next_due_ms() is None
    core.on_lost("1", 100, 20)
    core.on_answer(QueryReply("1", 200, b"late"))
    assert replies == [None]
    core.check()


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (MailAsk("1", "s-1", "a", 5), MailPage("1", Mail("1", "s-1", "7-0", False), (b"frame", b"body"))),
        (Post("1", "a", "s-1", "result", "k"), Posted("1", "s-1", "told")),
        (RoomSignal("1", "a", "s-1", "123456", "s-2"), Posted("1", "s-2", "away")),
        (RoomRequest("1", "a", "s-1", "create"), RoomState("1", "123456", "room-1", [])),
        (SessionRelease("s-1", "a", 5, "1"), SessionReleased("1", "s-1")),
        (PairingAsk("1", "a", "n-1"), PairingCode("1", "n-1", "123456", 300_000)),
        (PairingUse("1", "a", "123456", "c", "u"), Paired("1", "n-1")),
        (PairingUse("1", "a", "123456", "c", "u"), Failed("1", "INVALID_PAIRING_CODE", "wrong")),
    ],
)
def test_call_of_any_other_type_is_over_with_its_first_reply(call: CallFrame, reply: Reply) -> None:
    core = PendingCalls(CallLimits(400, 1_500, 5_000))
    replies: list[Any] = []
    core.ask(call, 3, replies.append, 0, payload=(b"body",))
    [retry] = core.tick(400)
    assert retry.frame == call and retry.payload == (b"body",), "retried unchanged"
    core.on_answer(reply)
    core.on_answer(reply)
    assert replies == [reply] and core.timers.next_due_ms() is None
    core.check()
