"""Audio fields: base64 in JSON, or raw bytes, with one meaning."""

from __future__ import annotations

import base64

import msgspec
import pytest
from msgspec import Raw

from mesh.messages.audio import NO_AUDIO, NOT_SENT, audio_bytes, audio_text, check_audio, has_audio, json_audio


@pytest.mark.parametrize(
    ("raw", "null", "good"), [(b'"a"', False, True), (b"null", True, True), (b"null", False, False)]
)
def test_audio_is_text_or_null_where_allowed(raw: bytes, null: bool, good: bool) -> None:
    if good:
        check_audio(Raw(raw), null=null)
    else:
        with pytest.raises(ValueError, match="tts_audio"):
            check_audio(Raw(raw), null=null)


@pytest.mark.parametrize(("raw", "has"), [(b'""', False), (b"null", False), (b'"AA"', True)])
def test_empty_audio_is_no_audio(raw: bytes, has: bool) -> None:
    assert has_audio(Raw(raw)) is has


def test_audio_text_is_the_text_in_its_json() -> None:
    assert audio_text(Raw(b'"UklGRg=="')) == "UklGRg=="
    assert audio_text(NO_AUDIO) == audio_text(Raw(b"null")) == ""


def test_every_form_has_the_same_bytes() -> None:
    sound = bytes(range(256))
    text = base64.b64encode(sound).decode()
    escaped = Raw(msgspec.json.encode(text).replace(b"/", b"\\/"))
    for audio in (sound, bytearray(sound), memoryview(sound), text, Raw(msgspec.json.encode(text)), escaped):
        assert bytes(audio_bytes(audio)) == sound and has_audio(audio)
        assert audio_text(audio) == text
        assert msgspec.json.decode(msgspec.json.encode(json_audio(audio))) == text
        check_audio(audio, null=False)


def test_raw_bytes_are_not_copied() -> None:
    view = memoryview(b"abc")[1:]
    assert audio_bytes(view) is view


@pytest.mark.parametrize("audio", [Raw(b'"not base64!"'), "A", Raw(b'"QQ=\\n="')])
def test_audio_that_is_no_base64_is_a_value_error(audio: Raw | str) -> None:
    with pytest.raises(ValueError):
        audio_bytes(audio)


def test_absent_audio_is_empty() -> None:
    for audio in (NOT_SENT, NO_AUDIO, b"", ""):
        assert not has_audio(audio) and not audio_bytes(audio)
