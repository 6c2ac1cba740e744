"""What selectors answer about rooms, from what Redis said: every verdict has an answer."""

from __future__ import annotations

import json
from typing import Any, get_args, get_type_hints

import pytest

from lua.store.types.rooms import Room
from mesh.frames import Failed, Post, RoomMember, RoomRequest, RoomSignal, RoomState
from mesh.words import RoomAction
from selector.sessions.core import room_replies

MEMBERS = (RoomMember("s-1", "Ann", "en", 5), RoomMember("s-2", "Bob", "es", 6, {"s-1": False, "s-3": True}))
ROOM = Room("ok", "room-1", (*MEMBERS, RoomMember("s-3", "Cid", "", 7)))


def request(action: str, session_id: str = "s-1") -> RoomRequest:
    return RoomRequest("7", "edge:a:1", session_id, action, "123456")


def signal(sender: str, target: str, room: Room = ROOM) -> Any:
    frame = RoomSignal("7", "edge:a:1", sender, "123456", target)
    return room_replies.on_signal(frame, room)


@pytest.mark.parametrize("action", list(RoomAction))
def test_a_request_that_is_granted_shows_the_room(action: str) -> None:
    answer = room_replies.on_room(request(action), "123456", ROOM)
    assert answer.to == "edge:a:1"
    assert answer.frame == RoomState("7", "123456", "room-1", list(ROOM.members))


@pytest.mark.parametrize("verdict", get_args(get_type_hints(Room)["verdict"]))
def test_every_refusal_of_a_request_has_a_code(verdict: Any) -> None:
    if verdict in ("ok", "ended", "same"):
        return
    answer = room_replies.on_room(request("join"), "123456", Room(verdict))
    assert isinstance(answer.frame, Failed) and answer.frame.ref == "7" and answer.frame.message


def test_who_leaves_a_room_that_is_gone_has_left_it() -> None:
    assert room_replies.on_room(request("leave"), "123456", Room("gone")).frame == RoomState("7", "123456", "", [])


def test_only_members_may_look() -> None:
    answer = room_replies.on_room(request("look", "s-9"), "123456", ROOM)
    assert isinstance(answer.frame, Failed) and answer.frame.code == "NOT_IN_ROOM"


@pytest.mark.parametrize(("sender", "target"), [("s-3", "s-2"), ("s-2", "s-1"), ("s-1", "s-3")])
def test_a_signal_goes_to_whoever_did_not_decline_it(sender: str, target: str) -> None:
    post = signal(sender, target).frame
    assert isinstance(post, Post)
    assert (post.ref, post.edge, post.session_id, post.room_code) == ("7", "edge:a:1", target, "123456")
    assert (post.kind, post.park) == ("signal", False)


@pytest.mark.parametrize(
    ("sender", "target", "room", "code"),
    [
        ("s-1", "s-2", ROOM, "RAW_VOICE_DECLINED"),
        ("s-9", "s-2", ROOM, "NOT_IN_ROOM"),
        ("s-1", "s-9", ROOM, "MEMBER_NOT_FOUND"),
        ("s-1", "s-2", Room("gone"), "ROOM_NOT_FOUND"),
    ],
)
def test_a_signal_that_is_refused(sender: str, target: str, room: Room, code: str) -> None:
    answer = signal(sender, target, room)
    assert (answer.to, answer.frame.code) == ("edge:a:1", code)


@pytest.mark.parametrize(
    ("silent_ms", "words"),
    [(1_800_000, "30 minutes"), (60_000, "1 minute,"), (1_500, "1.5 seconds")],
)
def test_members_hear_in_plain_words_why_their_room_is_closed(silent_ms: int, words: str) -> None:
    post, body = room_replies.on_expired("123456", "s-1", silent_ms)
    assert (post.ref, post.edge, post.session_id, post.kind) == ("", "", "s-1", "room_expired")
    assert (post.key, post.park, post.room_code) == ("expired:123456", True, "123456")
    told = json.loads(body)
    assert (told["type"], told["room_code"]) == ("room_expired", "123456") and words in told["message"]
