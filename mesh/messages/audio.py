"""The audio of a message: base64 in JSON, raw bytes in a binary message (binary.py). It is forwarded as it came.

A decoded message has the JSON text of the field (`Raw`, not decoded), or a view of the frame's bytes. A message that is
built may have either, or base64 as a string. Raw bytes are encoded to JSON as base64, so each form means the same.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from msgspec import Raw
from pybase64 import b64decode, b64encode

if TYPE_CHECKING:
    Audio: TypeAlias = Raw | str | bytes | bytearray | memoryview
else:
    Audio = Raw  # decoders of JSON leave it as text

#: Default of an audio field: absent. Omitted on output, because it is the default itself.
NOT_SENT: Final = Raw(b"null")
#: Audio that is there, and empty.
NO_AUDIO: Final = Raw(b'""')

_QUOTE: Final = ord('"')


def has_audio(audio: Audio) -> bool:
    """True if the field holds anything."""
    if isinstance(audio, Raw):
        view = memoryview(audio)
        return len(view) > 2 and view[0] == _QUOTE
    return len(audio) > 0


def check_audio(audio: Audio, *, null: bool, name: str = "tts_audio") -> None:
    """ValueError unless it can be forwarded: raw bytes, a JSON string of plain ASCII or, if `null`, null."""
    if type(audio) is not Raw:
        return
    text = bytes(audio)
    if text[0] == _QUOTE:
        if text.isascii():
            return
    elif null and text == b"null":
        return
    raise ValueError(f"`{name}` must be a base64 string")


def audio_text(audio: Audio) -> str:
    """The base64 text of the audio; "" if there is none."""
    if isinstance(audio, Raw):
        return msgspec.json.decode(audio, type=str | None) or ""
    return audio if isinstance(audio, str) else b64encode(audio).decode()


def audio_bytes(audio: Audio) -> bytes | bytearray | memoryview:
    """The audio itself: raw bytes as they are, base64 decoded; ValueError if it is no base64."""
    if isinstance(audio, (bytes, bytearray, memoryview)):
        return audio
    if isinstance(audio, Raw):
        if not has_audio(audio):
            return b""
        try:
            return b64decode(memoryview(audio)[1:-1], validate=True)
        except Base64Error:
            pass  # it may have escapes of JSON
    try:
        return b64decode(audio_text(audio), validate=True)
    except Base64Error as error:
        raise ValueError(str(error)) from None


def json_audio(audio: Audio) -> Audio:
    """The audio as a field of a JSON message: raw bytes become base64, faster than by the encoder."""
    if isinstance(audio, (bytes, bytearray, memoryview)):
        return Raw(b'"%b"' % b64encode(audio))
    return audio
