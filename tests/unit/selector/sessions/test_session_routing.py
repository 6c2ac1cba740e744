from __future__ import annotations

from typing import Any

import pytest

from lua.store.types.sessions import Claimed, MailEntry, MailPage, Noted, Parked, SessionOwner
from mesh.frames import (
    Failed,
    Mail,
    MailAsk,
    Post,
    Posted,
    SessionClaim,
    SessionClaimed,
    SessionNote,
    SessionTaken,
    decode_frame,
)
from selector.sessions.core import session_routing
from selector.sessions.core.session_routing import Reach

A, B = "edge:a:1", "edge:b:1"
CLAIM = SessionClaim("ref", "s-1", A, 0, "t", "en", "es", "digest", True, "trace", "node-1", True)
POST = Post("ref", A, "s-1", "result", "k-1", park=True)


@pytest.mark.parametrize(
    ("session", "lives", "reach"),
    [
        (SessionOwner(""), False, Reach.UNKNOWN),
        (SessionOwner(B, 5), True, Reach.OWNER),
        (SessionOwner(B, 5, resumable=True), True, Reach.OWNER),
        (SessionOwner(B, 5, resumable=True), False, Reach.MAIL),
        (SessionOwner(B, 5, away=True, resumable=True), True, Reach.MAIL),
        (SessionOwner(B, 5, away=True), True, Reach.OFFLINE),
        (SessionOwner(B, 5), False, Reach.OFFLINE),
    ],
)
def test_a_session_is_reached_by_its_edge_or_later(session: SessionOwner, lives: bool, reach: Reach) -> None:
    assert session_routing.reach_of(session, is_owner_live=lives) is reach


def test_a_claim_says_to_the_store_all_that_its_frame_says() -> None:
    asked = session_routing.claim_of(CLAIM)
    assert asked._asdict() == {name: getattr(CLAIM, name) for name in asked._fields}


def test_a_claim_is_confirmed_and_whoever_had_the_session_hears_of_it() -> None:
    claimed = Claimed(True, A, 4, "ok", "", "t", "trace", "node-1", "123456", 7, 2)
    confirmed = SessionClaimed("ref", "s-1", 4, "trace", "node-1", "t", "123456", 7, 2)
    assert session_routing.on_claimed(CLAIM, claimed) == [(A, confirmed)]
    both = session_routing.on_claimed(CLAIM, claimed._replace(before=B))
    assert both == [(A, confirmed), (B, SessionTaken("s-1", 4, A))]


@pytest.mark.parametrize("verdict", ["held", "gone", "wrong_token"])
def test_a_claim_that_cannot_be_is_refused_and_nobody_else_hears_of_it(verdict: Any) -> None:
    [answer] = session_routing.on_claimed(CLAIM, Claimed(False, B, 9, verdict))
    assert answer.to == A and isinstance(answer.frame, Failed)
    assert (answer.frame.ref, answer.frame.code) == ("ref", "INVALID_SESSION")


def test_a_note_is_answered_only_if_the_session_is_not_its_senders() -> None:
    note = SessionNote("s-1", A, 3)
    assert session_routing.on_noted(note, Noted("ok", A, 3)) is None
    assert session_routing.on_noted(note, Noted("taken", B, 4)) == (A, SessionTaken("s-1", 4, B))
    assert session_routing.on_noted(note, Noted("gone", "", 0)) == (A, SessionTaken("s-1", 0, ""))


def test_mail_is_told_to_the_owner_and_to_nobody_else() -> None:
    ask = MailAsk("ref", "s-1", A, 3, "1-0")
    assert session_routing.on_mail(ask, MailPage("2-0", True, [b"f", b"b"])) == (A, Mail("ref", "s-1", "2-0", True))
    refused = session_routing.on_mail(ask, None)
    assert isinstance(refused.frame, Failed) and refused.frame.code == "INVALID_SESSION"


@pytest.mark.parametrize(
    ("session", "lives", "park", "parks", "forwards", "verdict"),
    [
        (SessionOwner(B, 5), True, False, False, True, ""),
        (SessionOwner(B, 5, resumable=True), True, True, False, True, ""),
        (SessionOwner(B, 5, away=True, resumable=True), True, True, True, False, ""),
        (SessionOwner(B, 5, away=True, resumable=True), True, False, False, False, "away"),
        (SessionOwner(B, 5, away=True), True, True, False, False, "away"),
        (SessionOwner(B, 5, resumable=True), False, True, True, True, ""),  # it may only seem to be gone
        (SessionOwner(B, 5, resumable=True), False, False, False, False, "away"),
        (SessionOwner(B, 5), False, True, False, False, "away"),
        (SessionOwner(""), False, True, False, False, "no_session"),
    ],
)
def test_a_post_is_passed_on_or_waits_or_is_not_told(
    session: SessionOwner, lives: bool, park: bool, parks: bool, forwards: bool, verdict: str
) -> None:
    frame = Post("ref", A, "s-1", "result", "k-1", park=park)
    posting = session_routing.on_post(frame, b"body", session, is_owner_live=lives)
    assert (posting.park is not None, posting.verdict or "") == (parks, verdict)
    assert posting.forward == ((B, frame) if forwards else None)


def test_a_post_that_waits_is_the_very_post_under_its_own_key() -> None:
    letter = session_routing.on_post(
        POST, b"body", SessionOwner(B, 5, away=True, resumable=True), is_owner_live=True
    ).park
    assert letter is not None
    assert letter == MailEntry("s-1", "k-1", letter.frame, b"body")
    assert decode_frame(letter.frame) == POST


def test_the_sender_of_a_post_hears_what_became_of_it_if_it_wants_to() -> None:
    assert session_routing.posted(POST, "away") == (A, Posted("ref", "s-1", "away"))
    assert session_routing.posted(POST, "") is None, "its receiver answers"
    assert session_routing.posted(Post("", "", "s-1", "room_expired", "k-1"), "away") is None
    told = [
        session_routing.verdict_of(parked) for parked in (Parked("parked", 1), Parked("same"), Parked("no_session"))
    ]
    assert told == ["parked", "parked", "no_session"]
