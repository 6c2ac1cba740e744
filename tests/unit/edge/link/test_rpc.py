"""Questions that have one answer: repeated until it comes, commands not repeated, a selector that is gone noticed."""

from __future__ import annotations

from typing import Any

import pytest

from edge.link.core.rpc import CallLimits, MailPage, PendingCalls, QueryReply, Question, Reply
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


def asked(**options: Any) -> tuple[PendingCalls, list[Any]]:
    core = PendingCalls(CallLimits(400, 1_500, 5_000))
    answers: list[Any] = []
    core.ask(Query("1", "a", "weights", {}), 3, answers.append, 0, timeout_ms=2_000, **options)
    return core, answers


def ticks(core: PendingCalls, *times: int) -> list[int]:
    counts = []
    for now in times:
        counts.append(len(core.tick(now)))
        core.check()
    return counts


def test_question_is_repeated_has_one_answer_and_a_time_of_its_own() -> None:
    core, answers = asked()
    assert ticks(core, 400, 1_200) == [1, 1]
    core.on_answer(QueryReply("1", 200, b"{}"))
    core.on_answer(QueryReply("1", 200, b"the answer to the repeat"))
    assert answers == [QueryReply("1", 200, b"{}")] and core.next_due_ms() is None
    core, answers = asked()
    ticks(core, 400, 1_200, 2_000)
    assert answers == [None] and core.next_due_ms() is None


def test_command_is_sent_once_unless_a_broker_gave_it_back() -> None:
    core, answers = asked(once=True)
    assert ticks(core, 400, 1_200) == [0, 0]
    core.on_lost("1", 50, 1_300)
    assert ticks(core, 1_350, 1_800, 2_000) == [1, 0, 0]
    assert answers == [None]


def test_one_who_cannot_be_reached_does_not_answer() -> None:
    core, answers = asked(to="selector:gone:1")
    core.on_lost("1", 100, 10)
    assert answers == [None] and core.next_due_ms() is None
    core.on_lost("1", 100, 20)
    core.on_answer(QueryReply("1", 200, b"late"))
    assert answers == [None]
    core.check()


@pytest.mark.parametrize(
    ("question", "answer"),
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
def test_question_of_any_other_kind_is_over_with_its_first_answer(question: Question, answer: Reply) -> None:
    core = PendingCalls(CallLimits(400, 1_500, 5_000))
    answers: list[Any] = []
    core.ask(question, 3, answers.append, 0, payload=(b"body",))
    [again] = core.tick(400)
    assert again.frame == question and again.payload == (b"body",), "repeated as it was"
    core.on_answer(answer)
    core.on_answer(answer)
    assert answers == [answer] and core.next_due_ms() is None
    core.check()
