"""Exceptions of the SDKs."""

from __future__ import annotations

from linguamesh.errors import RETRYABLE_CODES, JobFailed, LinguaError, MeshRefused, RoomError, SessionError
from mesh.errors import ErrorCode


def test_coded_error_has_the_hint_of_a_known_code_only() -> None:
    known = SessionError(ErrorCode.SLOW_DOWN.name, "later", {"seq": 1})
    assert (str(known), known.hint, known.details) == ("SLOW_DOWN: later", ErrorCode.SLOW_DOWN.hint, {"seq": 1})
    unknown = JobFailed("FROM_THE_FUTURE", "")
    assert (str(unknown), unknown.hint, unknown.details) == ("FROM_THE_FUTURE", "", {})


def test_room_error_is_a_session_error_of_no_utterance() -> None:
    error = RoomError("ROOM_FULL", "8 members")
    assert isinstance(error, SessionError) and isinstance(error, LinguaError) and error.utterance_index is None


def test_refusal_without_a_text_shows_its_status() -> None:
    assert (str(MeshRefused(503, "")), MeshRefused(404, "x").status) == ("status 503", 404)


def test_retryable_codes_are_codes_of_the_protocol() -> None:
    assert set(ErrorCode.__members__) >= RETRYABLE_CODES
    assert ErrorCode.INVALID_MESSAGE.name not in RETRYABLE_CODES
