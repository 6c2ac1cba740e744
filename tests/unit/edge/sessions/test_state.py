"""The table of a session: every phase and event, and what the passing of time does."""

from __future__ import annotations

from typing import Any

import pytest

from edge.audio.core.reorder import Chunk
from edge.requests.core.request import MeshThrottled, ResultRejected
from edge.rooms.core.events import MOVED, RoomCall, RoomReplied, SignalReplied
from edge.sessions.core import effects, events
from edge.sessions.core.state import TABLE, Phase
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Push
from mesh.messages.client import Backpressure, SessionCloseAck, SessionIdle, SessionInitAck
from tests.unit.edge.sessions.harness import EDGE, ID, Case, limits, member, room_state

P = Phase
PUSH = Push("job-00-9", 1, "n", "edge:b", "r-9", ID, 9)

#: Event -> the phases in which it can happen. Kept by hand, so that a row that is lost is noticed.
POSSIBLE: dict[str, set[Phase]] = {
    "Chunk": {P.ATTACHED},
    "MessageReceived": {P.ATTACHED},
    "ClientAcked": {P.ATTACHED, P.CLOSING, P.ENDED},
    "CloseRequested": {P.ATTACHED},
    "Attached": {P.OPENING, P.ATTACHED, P.DETACHED, P.CLOSING},
    "Detached": {P.ATTACHED, P.CLOSING},
    "ResumeStarted": {P.ATTACHED, P.DETACHED, P.CLOSING},
    "ResumeFailed": {P.ATTACHED, P.DETACHED, P.CLOSING, P.ENDED},
    "OwnerReported": {P.ATTACHED, P.DETACHED, P.CLOSING},
    "RecordClaimed": {P.ATTACHED, P.DETACHED, P.CLOSING, P.ENDED},
    "Evicted": {P.DETACHED},
    "Replaced": {P.ATTACHED, P.DETACHED, P.CLOSING},
    "ResultArrived": {P.ATTACHED, P.DETACHED, P.CLOSING},
    "ResultRejected": {P.ATTACHED, P.DETACHED, P.CLOSING},
    "RequestFailed": {P.ATTACHED, P.DETACHED, P.CLOSING},
    "RequestProgressed": {P.ATTACHED, P.DETACHED, P.CLOSING},
    "MeshThrottled": {P.ATTACHED, P.DETACHED, P.CLOSING},
    "RoomReplied": {P.ATTACHED, P.DETACHED, P.CLOSING, P.ENDED},
    "SignalReplied": {P.ATTACHED, P.DETACHED, P.CLOSING, P.ENDED},
    "RelayReceived": {P.ATTACHED, P.DETACHED, P.CLOSING},
    "RelayCompleted": {P.ATTACHED, P.DETACHED, P.CLOSING},
    "Ticked": {P.ATTACHED, P.DETACHED, P.CLOSING},
}


def in_phase(phase: Phase, *, pending: bool = True) -> Case:
    """A resumable session in that phase; one that is closing has a request pending."""
    case = Case(resumable=True, attached=phase is not P.OPENING)
    if phase in (P.ATTACHED, P.DETACHED, P.CLOSING) and pending:
        case.chunk(0, final=True)
    if phase is P.DETACHED:
        case.detach()
    elif phase is P.CLOSING:
        case.handle(events.CloseRequested())
    elif phase is P.ENDED:
        case.handle(events.Replaced("another session"))
    assert case.phase is phase
    return case


def test_table_lists_what_can_happen() -> None:
    assert {kind.__name__: set(row) for kind, row in TABLE.items()} == POSSIBLE


@pytest.mark.parametrize(
    ("phase", "event", "after"),
    [
        (P.OPENING, events.Attached("token"), P.ATTACHED),
        (P.ATTACHED, events.Detached(), P.DETACHED),
        (P.ATTACHED, events.CloseRequested(), P.CLOSING),
        (P.ATTACHED, events.Replaced("another"), P.ENDED),
        (P.ATTACHED, events.OwnerReported("edge:b", 5), P.ENDED),
        (P.ATTACHED, events.OwnerReported("edge:b", 0), P.ATTACHED),
        (P.ATTACHED, events.OwnerReported(EDGE, 5), P.ATTACHED),
        (P.ATTACHED, events.OwnerReported("", 0), P.ATTACHED),
        (P.ATTACHED, events.Attached("token", True, False), P.ATTACHED),
        (P.DETACHED, events.Attached("token", True, False), P.ATTACHED),
        (P.DETACHED, events.Evicted(), P.ENDED),
        (P.DETACHED, events.ResumeStarted(), P.DETACHED),
        (P.DETACHED, events.ResumeFailed(), P.DETACHED),
        (P.DETACHED, events.OwnerReported("edge:b", 5), P.ENDED),
        (P.CLOSING, events.Detached(), P.CLOSING),
        (P.CLOSING, events.Attached("token", True, False), P.CLOSING),
        (P.CLOSING, events.Replaced("another"), P.ENDED),
        (P.ENDED, events.ClientAcked(ID, 0), P.ENDED),
        (P.ENDED, events.RecordClaimed(7), P.ENDED),
        (P.ENDED, SignalReplied(None), P.ENDED),
    ],
)
def test_phase_after_an_event(phase: Phase, event: Any, after: Phase) -> None:
    case = in_phase(phase)
    case.handle(event)
    assert case.phase is after


@pytest.mark.parametrize("phase", P)
@pytest.mark.parametrize(
    "event", [Chunk(0, b"", False, None), events.CloseRequested(), events.Evicted(), events.Ticked()]
)
def test_event_that_is_not_listed_is_an_error(phase: Phase, event: Any) -> None:
    case = in_phase(phase)
    if phase in TABLE[type(event)]:
        case.handle(event)
    else:
        with pytest.raises(AssertionError, match=phase.name):
            case.handle(event)


# --- connections --------------------------------------------------------------------------------------


def test_new_session_is_acknowledged_with_its_token() -> None:
    case = Case()
    (ack,) = case.received(SessionInitAck)
    assert (ack.session_id, ack.resume_token, ack.resumed, ack.next_utterance_index) == (ID, "token", None, None)


def test_lost_connection_ends_a_session_that_cannot_resume() -> None:
    case = Case()
    case.chunk(0, final=True)
    case.detach()
    assert case.phase is P.ENDED and case.of(effects.EndSession) == [effects.EndSession("connection lost", 1)]
    assert not case.tracker.requests, "its request is cancelled"


def test_member_that_cannot_resume_closes_after_its_last_words() -> None:
    case = Case()
    case.enter(member("s-2"))
    case.chunk(0)
    case.detach()
    assert case.phase is P.CLOSING and case.calls[-1].action == "speak", "what it said is cut, and sent"
    case.room_reply(room_state(member(ID), member("s-2")))
    case.answer(0)
    assert case.phase is P.CLOSING
    case.relayed()
    assert case.phase is P.ENDED


def test_client_that_does_not_come_back_in_time_loses_its_session() -> None:
    case = in_phase(P.DETACHED)
    assert case.of(effects.RenewRecord)[-1].is_detached, "its results go to the mail"
    case.wait(59_999)
    assert case.phase is P.DETACHED
    case.wait(1)
    assert case.phase is P.ENDED and case.of(effects.EndSession)[-1].reason == "the client did not come back"


def test_client_that_comes_back_at_the_last_moment_finds_its_session() -> None:
    case = in_phase(P.DETACHED)
    case.wait(59_999)
    case.handle(events.ResumeStarted())
    case.wait(60_000)  # its mail is being read
    assert case.phase is P.DETACHED
    case.attach()
    assert case.phase is P.ATTACHED


def test_time_runs_again_when_the_mail_could_not_be_read() -> None:
    case = in_phase(P.DETACHED)
    case.wait(50_000)
    case.handle(events.ResumeStarted())
    case.handle(events.ResumeFailed())
    case.wait(59_999)
    assert case.phase is P.DETACHED
    case.wait(1)
    assert case.phase is P.ENDED


@pytest.mark.parametrize("phase", [P.ATTACHED, P.DETACHED])
def test_session_is_resumed_only_with_its_token_and_before_it_closes(phase: Phase) -> None:
    case = in_phase(phase)
    assert case.state.may_resume("digest") and not case.state.may_resume("another")
    assert not in_phase(P.CLOSING).state.may_resume("digest")


def test_evicted_session_acknowledges_nothing_and_cancels_nothing() -> None:
    case = Case(resumable=True)
    for seq in range(2):
        case.chunk(seq, final=True)
    case.answer(0)
    case.detach()
    done = case.handle(events.Evicted())
    assert done[-1] == effects.MoveSession("") and not case.acks, "its next owner gets the result"
    assert case.state.is_moved and not case.of(effects.EndSession)


def test_superseded_session_closes_its_connection_and_leaves() -> None:
    case = in_phase(P.ATTACHED)
    done = case.handle(events.OwnerReported("edge:b", 3))
    assert isinstance(done[0], effects.CloseSuperseded) and done[-1] == effects.MoveSession("edge:b")


def test_lost_record_is_claimed_anew_and_renewed() -> None:
    case = in_phase(P.ATTACHED)
    assert case.handle(events.OwnerReported("", 0)) == [effects.ClaimRecord()]
    case.handle(events.RecordClaimed(9))
    assert case.state.session.epoch == 9 and case.of(effects.RenewRecord) == [effects.RenewRecord(False, "")]


def test_messages_to_a_session_that_closes_or_is_over_are_refused() -> None:
    for phase in (P.CLOSING, P.ENDED):
        with pytest.raises(PeerError) as error:
            in_phase(phase).state.check_open(ID)
        assert error.value.code is ErrorCode.SESSION_CLOSED
    with pytest.raises(PeerError) as error:
        in_phase(P.ATTACHED).state.check_open("s-2")
    assert error.value.code is ErrorCode.ID_MISMATCH
    in_phase(P.ATTACHED).state.check_open(None)


def test_time_does_not_go_back_for_an_event_of_an_earlier_batch() -> None:
    case = in_phase(P.ATTACHED)
    case.now_ms += 50
    case.chunk(0)
    case.now_ms -= 50
    case.chunk(1)
    assert case.state.lifetime.heard_ms == case.now_ms + 50


def test_heartbeats_are_accepted_until_the_session_is_over() -> None:
    for phase in (P.ATTACHED, P.CLOSING):
        in_phase(phase).state.check_open(ID, may_close=True)
    for phase, session_id, code in ((P.CLOSING, "s-2", "ID_MISMATCH"), (P.ENDED, ID, "SESSION_CLOSED")):
        with pytest.raises(PeerError) as error:
            in_phase(phase).state.check_open(session_id, may_close=True)
        assert error.value.code.name == code


# --- closing ------------------------------------------------------------------------------------------


def test_close_waits_for_what_is_under_way_and_is_acknowledged_last() -> None:
    case = Case()
    case.chunk(0)
    case.handle(events.CloseRequested())
    assert [one.utterance_index for one in case.submitted] == [0], "what was said is cut"
    assert not case.received(SessionCloseAck)
    case.answer(0)
    assert case.indices == [0] and isinstance(case.sent[-1], SessionCloseAck)
    assert isinstance(case.done[-1], effects.EndSession) and case.phase is P.ENDED


def test_close_is_acknowledged_in_time_whatever_waits() -> None:
    case = Case(bounds=limits(pending_max=1))
    for seq in range(5):
        case.chunk(seq, final=True)
    case.handle(events.CloseRequested())
    case.wait(9_999)
    assert case.phase is P.CLOSING
    case.wait(1)
    assert isinstance(case.sent[-1], SessionCloseAck) and case.phase is P.ENDED
    assert case.of(effects.EndSession) == [effects.EndSession("closed", 1)]


# --- time ---------------------------------------------------------------------------------------------


def test_idle_client_is_told_once_until_it_speaks() -> None:
    case = Case()
    case.wait(59_999)
    assert not case.received(SessionIdle)
    case.wait(200_000)
    assert len(case.received(SessionIdle)) == 1
    case.chunk(0)
    case.wait(60_000)
    assert len(case.received(SessionIdle)) == 2


def test_record_is_renewed_within_its_ttl() -> None:
    case = Case(bounds=limits(session={"idle_ttl_seconds": 40}))
    case.wait(40_000)
    assert len(case.of(effects.RenewRecord)) == 4


def test_throttled_client_is_advised_at_most_twice_a_second() -> None:
    case = Case()
    for _ in range(5):
        case.handle(MeshThrottled(70))
        case.now_ms += 100
    assert [one.resume_after_ms for one in case.received(Backpressure)] == [70]
    case.handle(MeshThrottled(70))
    assert len(case.received(Backpressure)) == 2


# --- after the end --------------------------------------------------------------------------------------


def test_session_that_ended_before_it_was_in_a_room_leaves_it() -> None:
    case = in_phase(P.ENDED)
    case.handle(RoomReplied(RoomCall("join", "123456"), room_state(member(ID))))
    assert case.calls == [RoomCall("leave", "123456")]
    case.room_reply(room_state(member("s-2"), version=2))
    assert [one.listener for one in case.relays] == ["s-2"], "the others are told"


def test_session_that_moved_stays_in_its_room() -> None:
    case = in_phase(P.DETACHED)
    case.handle(events.Evicted())
    case.handle(RoomReplied(RoomCall("join", "123456"), room_state(member(ID))))
    assert not case.calls


def test_room_that_could_not_be_left_is_logged() -> None:
    case = in_phase(P.ENDED)
    case.handle(RoomReplied(RoomCall("leave", "123456"), None))
    assert case.of(effects.Log)[-1].event == "room_not_left"


def test_result_that_nobody_wants_is_acknowledged_with_the_verdict() -> None:
    case = Case()
    case.handle(ResultRejected(PUSH, "fenced"))
    assert case.acks == [("job-00-9", "fenced")]


def test_verdict_of_a_message_that_cannot_be_delivered_here() -> None:
    case = in_phase(P.DETACHED)
    case.hear("s-2", 0)
    assert not case.of(effects.ReplyRelay), "its sender retries, and finds the owner"
    case.hear("s-2", 0, queue="s-2")
    assert [one.verdict for one in case.of(effects.ReplyRelay)] == [MOVED]
