"""Rooms as one session sees them: calls, replies, lists of members and signals."""

from __future__ import annotations

import pytest

from edge.rooms.core.events import RelayReceived, RoomCall, SignalReplied, numbered_key
from edge.sessions.core import effects, membership
from mesh.errors import ErrorCode
from mesh.frames import Failed, Post, Posted
from mesh.messages.client import (
    RoomCreate,
    RoomCreateAck,
    RoomJoin,
    RoomLeave,
    RoomMembers,
    RoomRawVoicePreference,
    WebrtcIce,
)
from mesh.words import PostKind, RoomAction
from tests.unit.edge.sessions.harness import ID, Case, limits, member, room_state

CODE = "123456"
GONE = Failed("", ErrorCode.ROOM_NOT_FOUND.name, "no such room")


def sizes(case: Case) -> list[int]:
    """Of the lists of members that the client got."""
    return [len(one.members) for one in case.received(RoomMembers)]


def list_from_elsewhere(case: Case, version: int, code: str = CODE, room_id: str = "room-1") -> bool:
    """A list of members from another edge; True if the client got it."""
    before = len(case.of(effects.SendEncoded))
    post = Post("1", "edge:c", ID, PostKind.ROOM_MEMBERS, numbered_key(room_id, version), False, code)
    case.handle(RelayReceived(post, b'{"type": "x"}'))
    assert case.of(effects.ReplyRelay)[-1].verdict == "told", "its sender need not retry"
    return len(case.of(effects.SendEncoded)) > before


def test_room_is_created_and_its_record_renewed() -> None:
    case = Case()
    case.say(RoomCreate(client_ts=1, display_name="ann", preferred_lang="EN"))
    assert case.calls == [RoomCall("create", "", display_name="ann", preferred_lang="en")]
    case.room_reply(room_state(member(ID)))
    assert [one.room_code for one in case.received(RoomCreateAck)] == [CODE] and sizes(case) == [1]
    assert case.of(effects.RenewRecord)[-1] == effects.RenewRecord(False, CODE)


def test_others_get_the_list_of_members() -> None:
    case = Case()
    case.say(RoomJoin(room_code=CODE))
    case.room_reply(room_state(member("s-2"), member(ID)))
    (sent,) = case.relays
    assert (sent.listener, sent.kind, sent.key, sent.park, sent.sender) == (
        "s-2",
        PostKind.ROOM_MEMBERS,
        "room-1/1",
        False,
        "",
    )


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (RoomCreate(client_ts=1), "ALREADY_IN_ROOM"),
        (RoomJoin(room_code="654321"), "ALREADY_IN_ROOM"),
        (RoomLeave(room_code="654321"), "NOT_IN_ROOM"),
    ],
)
def test_member_of_one_room_cannot_act_in_another(message: RoomCreate, code: str) -> None:
    case = Case()
    case.enter()
    case.say(message)
    assert case.codes == [code] and not case.calls


def test_room_that_is_left_is_no_longer_in_the_record() -> None:
    case = Case()
    case.enter(member("s-2"))
    case.say(RoomLeave(room_code=CODE))
    case.room_reply(room_state(member("s-2"), version=2))
    assert case.of(effects.RenewRecord)[-1].room == "" and [one.listener for one in case.relays] == ["s-2"]


def test_failed_call_is_told_and_messages_go_on() -> None:
    case = Case()
    case.say(RoomJoin(room_code=CODE))
    case.say(RoomJoin(room_code="654321"))
    case.room_reply(GONE)
    assert case.codes == ["ROOM_NOT_FOUND"] and [one.code for one in case.calls] == ["654321"]
    case.room_reply(None)
    assert case.codes == ["ROOM_NOT_FOUND", "INTERNAL_ERROR"] and case.state.admission.is_clear


def test_preference_is_passed_on() -> None:
    case = Case()
    case.enter(member("s-2"))
    case.say(RoomRawVoicePreference(room_code=CODE, target_session_id="s-2", receive_raw_voice=False))
    assert case.calls == [RoomCall("prefer", CODE, target="s-2", wanted=False)]


# --- lists of members -------------------------------------------------------------------------------------


def test_older_list_is_not_told_after_a_later_one() -> None:
    case = Case()
    case.enter()
    assert list_from_elsewhere(case, 5) and not list_from_elsewhere(case, 4) and not list_from_elsewhere(case, 5)
    assert list_from_elsewhere(case, 6) and list_from_elsewhere(case, 1, room_id="room-2"), "codes are used again"


def test_list_of_another_room_is_not_told() -> None:
    case = Case()
    case.enter()
    assert not list_from_elsewhere(case, 9, code="654321")


def test_caller_that_has_a_later_list_gets_the_latest() -> None:
    case = Case()
    case.say(RoomJoin(room_code=CODE))
    list_from_elsewhere(case, 7)
    case.room_reply(room_state(member(ID), version=6))
    assert case.calls == [RoomCall("look", CODE)] and sizes(case) == []
    case.room_reply(room_state(member(ID), member("s-2"), version=7))
    assert sizes(case) == [2]


def test_client_that_comes_back_gets_the_list_as_it_is_now() -> None:
    case = Case(resumable=True)
    case.enter(member("s-2"))
    case.detach()
    case.attach()
    case.room_reply(room_state(member(ID), version=2))
    assert sizes(case)[-1] == 1


def test_room_that_ended_while_the_client_was_away() -> None:
    case = Case(resumable=True)
    case.enter()
    case.detach()
    case.attach()
    case.room_reply(GONE)
    assert case.codes == ["ROOM_NOT_FOUND"] and case.of(effects.RenewRecord)[-1].room == ""


def test_expired_room_is_left() -> None:
    case = Case()
    case.enter()
    case.handle(RelayReceived(Post("", "", ID, "room_expired", "x", False, CODE), b'{"type": "x"}'))
    assert case.of(effects.RenewRecord)[-1].room == "" and case.of(effects.SendEncoded)
    case.utter(0)
    assert [one.tgt_lang for one in case.submitted] == ["en"], "it speaks for itself again"


def test_utterance_in_a_room_that_is_gone_is_the_speakers_own() -> None:
    case = Case()
    case.enter(member("s-2", "fr"))
    case.utter(0)
    case.room_reply(GONE)
    assert [one.tgt_lang for one in case.submitted] == ["en"]
    case.answer(0)
    assert case.indices == [0]


# --- signals ----------------------------------------------------------------------------------------------


def ice(to: str = "s-2", candidate: object = 1) -> WebrtcIce:
    return WebrtcIce(room_code=CODE, to=to, candidate=candidate)


def test_signal_names_its_sender_to_the_receiver() -> None:
    case = Case()
    case.say(ice())
    (sent,) = case.of(effects.SendSignal)
    assert (sent.code, sent.target) == (CODE, "s-2") and f'"to":"{ID}"'.encode() in sent.body


def test_signals_are_bounded_in_number_and_bytes() -> None:
    case = Case(bounds=limits(signals_max=2, signal_bytes_max=200))
    for _ in range(3):
        case.say(ice())
    assert case.codes == ["SLOW_DOWN"]
    case.handle(SignalReplied(Posted("", "s-2", "told")))
    case.say(ice())
    case.say(ice(candidate="x" * 300))
    assert case.codes == ["SLOW_DOWN", "MESSAGE_TOO_LARGE"]


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (None, "INTERNAL_ERROR"),
        (GONE, "ROOM_NOT_FOUND"),
        (Posted("", "s-2", "away"), "MEMBER_NOT_FOUND"),
        (Posted("", "s-2", "told"), None),
    ],
)
def test_signal_that_does_not_arrive_is_told(reply: Posted | Failed | None, code: str | None) -> None:
    case = Case()
    case.say(ice())
    case.handle(SignalReplied(reply))
    assert case.codes == ([code] if code else [])


@pytest.mark.parametrize("code", sorted(membership.GONE))
def test_failed_call_before_an_utterance_leaves_a_room_that_is_gone(code: str) -> None:
    case = Case()
    case.enter(member("l-1", "de"))
    assert case.state.membership.members_for(Failed("", code, "gone")) == () and case.state.membership.code == ""


@pytest.mark.parametrize("reply", [None, Failed("", membership.PASSING, "no store")])
def test_passing_failure_before_an_utterance_leaves_its_listeners_unknown(reply: Failed | None) -> None:
    case = Case()
    case.enter(member("l-1", "de"))
    assert case.state.membership.members_for(reply) is None and case.state.membership.code == "123456"


def test_create_and_join_enter_a_room_and_no_other_action_does() -> None:
    assert {RoomAction.CREATE, RoomAction.JOIN} == membership.ENTERS
