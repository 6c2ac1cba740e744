"""When an utterance is refused and when it waits: each gate alone, and what the client is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.sessions.core import effects
from edge.sessions.core.utterances.admission import Gate
from mesh.messages.client import Backpressure, ErrorMessage, RoomCreate
from tests.unit.edge.sessions.harness import ID, PIECE, Case, limits, member, room_state


def calling(case: Case) -> None:
    """The session waits for a reply about its room."""
    case.say(RoomCreate(client_ts=1))
    assert case.state.admission.is_blocked


def seqs(case: Case) -> list[int]:
    """Chunks that were refused."""
    return [one.details["seq"] for one in case.received(ErrorMessage) if "seq" in one.details]


def test_every_refusal_has_a_code() -> None:
    case = Case()
    codes = {gate: error.code.name if error else None for gate in Gate for error in [case.state.admission.error(gate)]}
    assert codes == {
        Gate.QUEUE_FULL: "SLOW_DOWN",
        Gate.OVERTAKES: "SLOW_DOWN",
        Gate.ENDED: "UTTERANCE_ENDED",
        Gate.TOO_FAR_AHEAD: "TOO_MANY_UTTERANCES",
        Gate.DUPLICATE: None,
        Gate.TOO_MANY_PENDING: "TOO_MANY_UTTERANCES",
        Gate.TOO_MUCH_AUDIO: "SLOW_DOWN",
    }


# --- the inbound queue ----------------------------------------------------------------------------------


def test_messages_wait_for_a_reply_and_are_handled_in_order() -> None:
    case = Case()
    calling(case)
    for index in range(3):
        case.utter(index)
    assert not case.submitted and case.state.admission.waiting == 3
    case.room_reply(None)
    assert [one.utterance_index for one in case.submitted] == [0, 1, 2]


def test_client_is_advised_to_send_less_before_messages_are_refused() -> None:
    case = Case(bounds=limits(inbound_max=8))
    calling(case)
    for seq in range(10):
        case.chunk(seq)
        case.now_ms += 500
    assert [one.action for one in case.received(Backpressure)] == [
        *["SLOW_DOWN"] * 2,
        *["PAUSE"] * 3,
        *["BUSY"] * 2,
    ]
    assert seqs(case) == [8, 9] and set(case.codes) == {"SLOW_DOWN"}


def test_messages_that_wait_are_bounded_in_bytes_too() -> None:
    case = Case(bounds=limits(inbound_bytes_max=10_000))
    calling(case)
    for seq in range(5):
        case.chunk(seq)
    assert case.state.admission.waiting == 3 and seqs(case) == [3, 4]


def test_chunk_after_a_refused_one_is_refused_until_that_one_comes_again() -> None:
    case = Case(resumable=True, bounds=limits(inbound_max=8, pending_max=1))
    for seq in range(2):
        case.chunk(seq, final=True)
    for seq in range(2, 11):
        case.chunk(seq, bytes([seq, 0]) * 1_600)
    assert seqs(case) == [10], "two utterances are complete, of which one waits; eight chunks wait behind it"
    case.answer(0)
    assert case.state.admission.waiting == 0, "there is capacity again"
    case.chunk(11)
    assert seqs(case) == [10, 11], "it must not come before chunk 10"
    case.wait(400)  # longer than a late chunk is waited for
    case.chunk(10, bytes([10, 0]) * 1_600)
    case.chunk(11, bytes([11, 0]) * 1_600, final=True)
    case.answer(1)
    audio = case.of(effects.Submit)[-1].audio
    assert audio == b"".join(bytes([seq, 0]) * 1_600 for seq in range(2, 12))


def test_new_connection_may_begin_with_any_chunk() -> None:
    case = Case(resumable=True, bounds=limits(inbound_max=8))
    calling(case)
    for seq in range(9):
        case.chunk(seq)
    case.detach()
    case.attach()
    case.room_reply(None)
    assert case.state.admission.is_clear


# --- what blocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "value"), [("unacked_max", 2), ("unacked_bytes_max", 500)])
def test_client_that_acknowledges_nothing_is_not_listened_to(field: str, value: int) -> None:
    case = Case(resumable=True, bounds=limits(**{field: value}))
    for index in range(2):
        case.utter(index)
        case.answer(index)
    case.utter(2)
    assert len(case.submitted) == 2 and case.state.admission.waiting == 1
    case.ack(1)
    assert len(case.submitted) == 3


def test_client_that_lets_twice_the_bytes_gather_loses_its_session() -> None:
    case = Case(resumable=True, bounds=limits(unacked_bytes_max=2_000))
    for index in range(16):
        case.utter(index, bytes(2))
    for index in range(16):
        if not case.state.is_ended:
            case.answer(index)
    assert case.codes == ["SESSION_CLOSED"] and case.state.is_ended
    assert len(case.acks) == len(case.indices), "its results need not be kept any more"


# --- utterances that come whole ---------------------------------------------------------------------------


def test_index_that_has_ended_is_refused() -> None:
    case = Case()
    case.utter(0)
    case.answer(0)
    case.utter(0, tgt_lang="es")
    (error,) = case.received(ErrorMessage)
    assert error.code == "UTTERANCE_ENDED" and error.details["utterance_index"] == 0


def test_index_too_far_ahead_is_refused() -> None:
    case = Case(bounds=limits(session={"pending_max": 4}))
    case.utter(0)
    case.utter(4)
    case.utter(3)
    assert case.codes == ["TOO_MANY_UTTERANCES"] and len(case.submitted) == 2


def test_duplicate_is_ignored_also_when_nothing_else_would_be_accepted() -> None:
    case = Case(bounds=limits(pending_max=1))
    for _ in range(2):
        case.utter(0)
    assert len(case.submitted) == 1 and not case.codes
    case.utter(1)
    assert case.codes == ["TOO_MANY_UTTERANCES"]


def test_refused_utterance_is_accepted_when_it_is_tried_again() -> None:
    case = Case(bounds=limits(pending_max=1))
    case.utter(0)
    case.utter(1)
    case.answer(0)
    case.utter(1)
    assert [one.utterance_index for one in case.submitted] == [0, 1]


@pytest.mark.parametrize(
    ("own", "edge", "others", "accepted"),
    [
        (10_000, 1 << 20, 0, 3),
        (1 << 20, 10_000, 0, 3),
        (1 << 20, 10_000, 5_000, 1),
        (1_000, 1 << 20, 0, 1),
        (1 << 20, 1_000, 0, 0),
    ],
    ids=["own audio", "audio of all", "audio of others", "one larger than the session's part", "larger than all"],
)
def test_too_much_audio_is_refused(own: int, edge: int, others: int, accepted: int) -> None:
    case = Case(bounds=limits(audio_per_session_bytes_max=own, audio_bytes_max=edge))
    case.tracker.table.audio_bytes += others
    for index in range(5):
        case.utter(index)
    assert len(case.submitted) == accepted and case.codes == ["SLOW_DOWN"] * (5 - accepted)
    case.tracker.table.audio_bytes -= others


def test_empty_or_malformed_audio_is_refused() -> None:
    case = Case()
    case.utter(0, b"")
    case.utter(0, audio="not base64!")
    assert case.codes == ["INVALID_AUDIO", "INVALID_AUDIO"] and not case.submitted


# --- streamed utterances wait -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed", [{"pending_max": 2}, {"audio_per_session_bytes_max": 7_000}, {"session": {"pending_max": 2}}]
)
def test_streamed_utterance_waits_at_a_gate_and_holds_up_what_follows(changed: dict[str, object]) -> None:
    case = Case(bounds=limits(**changed))
    for seq in range(4):
        case.chunk(seq, final=True)
    assert [one.utterance_index for one in case.submitted] == [0, 1]
    assert case.state.admission.blocking_gate(case.state.admission.unsent[0]) is not None
    assert case.state.due_ms(case.now_ms) <= case.now_ms + 100, "it is tried again soon"
    case.answer(0)
    assert [one.utterance_index for one in case.submitted] == [0, 1, 2] and not case.codes
    case.answer(1)
    case.answer(2)
    assert [one.utterance_index for one in case.submitted] == [0, 1, 2, 3]


def test_edge_wide_bound_counts_requests_of_the_same_turn() -> None:
    """Three utterances become complete by one event; the tracker knows of none of them yet."""
    case = Case(bounds=limits(audio_bytes_max=2 * len(PIECE)))
    calling(case)
    for seq in range(3):
        case.chunk(seq, final=True)
    case.room_reply(None)
    assert len(case.submitted) == 2 and case.tracker.table.audio_bytes == 2 * len(PIECE)


def test_utterance_in_a_room_waits_for_the_list_of_its_listeners() -> None:
    case = Case()
    case.enter(member("s-2"))
    case.utter(0)
    case.utter(1)
    assert [one.action for one in case.calls] == ["speak"] and not case.submitted
    case.room_reply(None)
    assert not case.calls, "the mesh cannot tell now"
    case.wait(100)
    assert [one.action for one in case.calls] == ["speak"], "and is asked again in a moment"
    case.room_reply(room_state(member(ID), member("s-2")))
    assert [one.utterance_index for one in case.submitted] == [0] and [one.action for one in case.calls] == ["speak"]


@given(st.lists(st.sampled_from(["chunk", "final", "utter", "answer", "reply", "call", "wait"]), max_size=40))
def test_bounds_hold_whatever_is_sent(steps: list[str]) -> None:
    case = Case(bounds=limits(inbound_max=8, inbound_bytes_max=20_000, pending_max=2, audio_bytes_max=20_000))
    seq = 0
    for step in steps:
        if step in ("chunk", "final"):
            case.chunk(seq, final=step == "final")
            seq += 1
        elif step == "utter":
            case.utter(case.state.intake.next_index)
        elif step == "answer" and case.tracker.requests:
            request = next(iter(case.tracker.requests.values()))
            case.push(case.push_for(request.dispatch))
        elif step == "reply" and case.calls:
            case.room_reply(None)
        elif step == "call":
            case.say(RoomCreate(client_ts=1))
        elif step == "wait":
            case.wait(150)
        assert len(case.state.outcomes.requests) == case.tracker.pending(ID) <= 2
        assert case.state.outcomes.audio_bytes == case.tracker.table.audio_bytes <= 20_000
