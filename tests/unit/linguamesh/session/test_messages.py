"""Messages that a session builds from the user's arguments."""

from __future__ import annotations

import pytest

from linguamesh.session.messages import codec_of, error_from, session_init, tts_started, utterance
from linguamesh.session.results import Translation
from mesh.messages import client as wire
from mesh.messages.audio import NOT_SENT


def init(*formats: str) -> wire.SessionInit:
    return session_init("en", "es", 16_000, formats, True, True, {"tenant_id": "acme"})


def test_session_init_has_the_options_of_the_user() -> None:
    message = init("opus", "pcm16")
    assert (message.src_lang, message.tgt_lang, message.tenant_id) == ("en", "es", "acme")
    assert (message.audio_formats, message.binary_frames, message.resumable) == (["opus", "pcm16"], True, True)


@pytest.mark.parametrize(
    ("fields", "codec"),
    [({}, "opus"), ({"negotiated_codec": "PCM16"}, "pcm16"), ({"negotiated_audio_format": "pcm16"}, "pcm16")],
)
def test_codec_is_the_negotiated_one_or_the_first_offer(fields: dict[str, str], codec: str) -> None:
    ack = wire.SessionInitAck(session_id="s-1", trace_id="t-1", **fields)
    assert codec_of(init("opus", "pcm16"), ack) == codec
    assert codec_of(init("opus", "pcm16"), None) == "opus"


def test_each_utterance_has_a_trace_id_of_its_own_unless_given() -> None:
    first, second = (utterance("pcm16", 16_000, "en", "es", {}) for _ in range(2))
    assert first.trace_id and first.trace_id != second.trace_id
    given = utterance("pcm16", 16_000, "en", "es", {"trace_id": "t-7", "manual_cut": False})
    assert (given.trace_id, given.manual_cut) == ("t-7", False)


def test_utterance_has_its_audio_apart_and_an_option_that_is_no_json_is_refused() -> None:
    assert utterance("pcm16", 16_000, "en", "es", {}).audio is NOT_SENT
    with pytest.raises(TypeError):
        utterance("pcm16", 16_000, "en", "es", {"dialect": object()})


def test_error_without_an_object_as_details_has_none() -> None:
    error = error_from(wire.ErrorMessage(code="SLOW_DOWN", message="later", details={"seq": 3}))
    assert (error.code, error.details) == ("SLOW_DOWN", {"seq": 3})
    assert error_from(wire.ErrorMessage(code="X", message="", details="text")).details == {}


def test_playback_of_a_failed_result_has_no_group() -> None:
    assert tts_started("s-1", Translation(0, trace_id="t-1"), 5).group_id == ""
