"""One turn: effects in order, and no message to a client that is not connected."""

from __future__ import annotations

import pytest

from edge.sessions.core.effects import Count, CounterName, Effect, SendEncoded, SendError, SendToClient, TrimMail
from edge.sessions.core.turn import Turn
from mesh.errors import ErrorCode, PeerError
from mesh.messages.client import SessionCloseAck

MESSAGE = SessionCloseAck(session_id="s-1")
ERROR = PeerError(ErrorCode.SLOW_DOWN, "later")


def run(*, attached: bool) -> list[Effect]:
    turn = Turn()
    turn.is_attached = attached
    turn.send(MESSAGE)
    turn.do(TrimMail("1-0"))
    turn.send_encoded("x", b"{}")
    turn.send_error(ERROR)
    turn.do(Count(CounterName.MISSING, "gap_timeout", 2))
    return turn.effects


def test_effects_keep_their_order() -> None:
    count = Count(CounterName.MISSING, "gap_timeout", 2)
    assert run(attached=True) == [
        SendToClient([MESSAGE]),
        TrimMail("1-0"),
        SendEncoded("x", b"{}"),
        SendError(ERROR),
        count,
    ]


def test_messages_that_follow_one_another_are_one_effect() -> None:
    turn = Turn()
    turn.is_attached = True
    for _ in range(3):
        turn.send(MESSAGE)
    turn.do(TrimMail("1-0"))
    turn.send(MESSAGE)
    assert turn.effects == [SendToClient([MESSAGE] * 3), TrimMail("1-0"), SendToClient([MESSAGE])]


def test_detached_client_gets_no_message_and_other_effects_stay() -> None:
    assert run(attached=False) == [TrimMail("1-0"), Count(CounterName.MISSING, "gap_timeout", 2)]


@pytest.mark.parametrize("attribute", ["extra", "session"])
def test_turn_has_no_further_state(attribute: str) -> None:
    with pytest.raises(AttributeError):
        setattr(Turn(), attribute, 1)
