"""Handshakes of a session: new, resumed, replaced and refused; without a socket."""

from __future__ import annotations

from typing import Any

import pytest

from linguamesh.errors import SessionError
from linguamesh.session.lifecycle import SessionLifecycle, SessionTimeouts
from linguamesh.session.messages import session_init
from linguamesh.session.send_buffer import Piece
from mesh.messages import client as wire

TIMEOUTS = SessionTimeouts(1.0, 1.0, 30.0, 1.0, lambda failures: 0.0)


def lifecycle(*, resume: bool = True, events: list[wire.ServerMessage] | None = None) -> SessionLifecycle:
    init = session_init("en", "es", 16_000, ("pcm16",), True, resume, {"pairing_code": "123456"})
    return SessionLifecycle(["ws://127.0.0.1:1"], init, TIMEOUTS, 1_000_000, None if events is None else events.append)


def ack(session_id: str, **fields: Any) -> wire.SessionInitAck:
    return wire.SessionInitAck(session_id=session_id, trace_id="t-1", resume_token=f"{session_id}.secret", **fields)


async def test_resume_carries_the_token_and_the_acknowledged_position() -> None:
    session = lifecycle()
    assert session.session_init().resume_token is None
    session.on_session_init_ack(ack("s-1"))
    session.buffer.add(Piece(b"\1\0", 100, True, 1))
    session.buffer.take_due(0)
    session.buffer.acknowledge(0, 0)
    session.on_disconnected()
    init = session.session_init()
    assert (init.resume_token, init.last_index, init.last_seq) == ("s-1.secret", 0, 0)
    assert init.pairing_code is None, "it is valid once"


async def test_resumed_session_is_not_lost_and_emits_the_ack() -> None:
    events: list[wire.ServerMessage] = []
    session = lifecycle(events=events)
    session.on_session_init_ack(ack("s-1"))
    session.on_disconnected()
    again = ack("s-1", resumed=True, lost=False)
    session.on_session_init_ack(again)
    assert (session.lost, events) == (False, [again])


async def test_replaced_session_is_lost_and_retries_its_audio() -> None:
    session = lifecycle()
    session.on_session_init_ack(ack("s-1"))
    session.buffer.add(Piece(b"\1\0", 100, True, 1))
    session.buffer.take_due(0)
    session.on_disconnected()
    session.on_session_init_ack(ack("s-2"))
    assert (session.session_id, session.lost) == ("s-2", True)
    assert session.buffer.take_due(0) is not None


async def test_session_without_resume_does_not_reconnect() -> None:
    session = lifecycle(resume=False)
    session.on_session_init_ack(ack("s-1"))
    assert not session.may_resume and session.session_init().resume_token is None


async def test_first_error_ends_the_session_and_wins() -> None:
    session = lifecycle()
    session.on_session_init_ack(ack("s-1"))
    session.end(SessionError("SESSION_SUPERSEDED", "taken over"))
    session.end(SessionError("WS_DISCONNECTED", "the connection is lost"))
    assert session.error is not None and session.error.code == "SESSION_SUPERSEDED"
    with pytest.raises(SessionError, match="SESSION_SUPERSEDED"):
        session.sender.check_open()
    assert not session.may_resume


async def test_session_that_was_never_opened_refuses_messages() -> None:
    with pytest.raises(SessionError, match="INVALID_SESSION"):
        lifecycle().check_open()
