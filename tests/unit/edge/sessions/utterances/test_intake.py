"""What a client sends, at its turn: audio that becomes utterances, playing, and our own bugs."""

from __future__ import annotations

from edge.sessions.core import effects
from edge.sessions.core.utterances.intake import QUEUED
from mesh.messages.client import (
    ErrorMessage,
    ResultAckMessage,
    RoomCreate,
    SessionClose,
    TtsPlayEnded,
    TtsStarted,
    UiEvent,
    Utterance,
)
from tests.unit.edge.sessions.harness import ID, PIECE, Case, limits

SPOKEN = {"session_id": ID, "trace_id": "t", "group_id": "g"}


def audio_of(case: Case) -> list[bytes]:
    """Of each utterance that was submitted."""
    return [one.audio for one in case.of(effects.Submit)]


def test_pause_ends_an_utterance() -> None:
    case = Case()
    for seq in range(5):
        case.chunk(seq)
    case.wait(3_149)
    assert not case.submitted
    case.wait(1)
    assert audio_of(case) == [PIECE * 5]
    assert [one.event for one in case.received(UiEvent)] == ["INPUT_STARTED", "INPUT_ENDED"]
    assert [one.label for one in case.of(effects.Count)] == ["timeout"] and len(case.of(effects.Submit)) == 1


def test_defect_08_pause_does_not_count_while_a_result_is_played() -> None:
    case = Case()
    for seq in range(5):
        case.chunk(seq)
    case.say(TtsStarted(**SPOKEN, ts_start_ms=1))
    case.wait(30_000)
    assert not case.submitted
    case.say(TtsPlayEnded(**SPOKEN, ts_end_ms=2))
    case.wait(3_149)
    assert not case.submitted
    case.wait(1)
    assert audio_of(case) == [PIECE * 5]


def test_silence_is_no_pause_while_messages_wait() -> None:
    case = Case()
    case.chunk(0, client_ms=1_000_000)
    case.say(RoomCreate(client_ts=1))
    case.chunk(1, client_ms=1_000_100)
    case.wait(30_000)
    assert not case.submitted
    case.room_reply(None)
    case.chunk(2, final=True, client_ms=1_000_200)
    assert audio_of(case) == [PIECE * 3]


def test_whole_utterance_and_stream_share_one_numbering() -> None:
    case = Case()
    case.utter(0)
    case.chunk(0, final=True)
    case.utter(2)
    case.chunk(1, final=True)
    assert [one.utterance_index for one in case.submitted] == [0, 1, 2, 3]


def test_malformed_chunk_costs_only_itself() -> None:
    case = Case()
    case.chunk(0)
    case.chunk(1, b"\x00")
    (error,) = case.received(ErrorMessage)
    assert (error.code, error.details["seq"]) == ("INVALID_AUDIO", 1)
    case.chunk(2, final=True)
    assert audio_of(case) == [PIECE * 2]


def test_utterance_that_can_never_be_submitted_is_missing_and_holds_up_nothing() -> None:
    case = Case(resumable=True, init={"auto_langs": ["not a language!"]})
    case.chunk(0)
    case.chunk(1, final=True)
    assert case.codes == ["INVALID_MESSAGE"] and case.indices == [0]
    missing = case.sent[-1]
    assert (missing.reason, missing.last_seq) == ("job_failed", 1)  # type: ignore[attr-defined]


def test_bug_costs_one_message_and_is_reported() -> None:
    case = Case()
    case.state.session.key_of = None  # type: ignore[method-assign, assignment]
    case.utter(0)
    (bug,) = case.of(effects.ReportBug)
    assert bug.event == "Utterance" and isinstance(bug.error, TypeError) and case.codes == ["INTERNAL_ERROR"]
    case.chunk(0, final=True)
    assert len(case.submitted) == 1


def test_chunk_that_completes_nothing_has_no_effect() -> None:
    case = Case(bounds=limits())
    case.chunk(0)
    before = len(case.done)
    for seq in range(1, 20):
        case.chunk(seq)
    assert len(case.done) == before


def test_acknowledgement_and_close_are_not_queued_behind_other_messages() -> None:
    assert {Utterance, RoomCreate, TtsStarted} <= QUEUED and not QUEUED & {ResultAckMessage, SessionClose}
