"""Binary messages: a message whose audio follows as raw bytes, without base64. docs/protocol.md: negotiation, layout.

    type (1 byte) | length of the head (4 bytes, little-endian) | head | audio, to the end of the frame

The head is the JSON message without its audio field. Audio is never copied here: a decoded message has a view of the
frame, and an encoded one is its parts, which a socket or a link sends one after the other.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from pybase64 import b64encode

from mesh.errors import ErrorCode, PeerError
from mesh.messages.audio import NOT_SENT
from mesh.messages.base import Codec, Message, encode_utf8
from mesh.messages.jobs import JobAssign, JobResult
from mesh.messages.utterances import TranslationResult, Utterance

UTTERANCE: Final = 0x20
JOB_ASSIGN: Final = 0x21
JOB_RESULT: Final = 0x22
TRANSLATION_RESULT: Final = 0x23

AudioMessage: TypeAlias = Utterance | JobAssign | JobResult | TranslationResult
Bytes: TypeAlias = bytes | bytearray | memoryview

_CLASSES: Final[dict[int, type[AudioMessage]]] = {
    UTTERANCE: Utterance,
    JOB_ASSIGN: JobAssign,
    JOB_RESULT: JobResult,
    TRANSLATION_RESULT: TranslationResult,
}
#: Types of binary messages; audio_frames.py has the others.
TYPES: Final = frozenset(_CLASSES)
_TYPE_OF: Final[dict[type[Message], int]] = {cls: number for number, cls in _CLASSES.items()}
_CODECS: Final[dict[int, Codec[Any]]] = {number: Codec(cls, (cls,)) for number, cls in _CLASSES.items()}
_PREFIX: Final = Struct("<BI")


class Parts(NamedTuple):
    """A binary message apart: its type, the JSON of its head, its audio."""

    type: int
    head: Bytes
    audio: Bytes


def encode(message: AudioMessage, audio: Bytes) -> tuple[bytes, Bytes]:
    """A message whose own audio field is not set, and its audio, as the parts of a frame."""
    return encode_parts(type(message), encode_utf8(message), audio)


def encode_parts(message_class: type[AudioMessage], head: Bytes, audio: Bytes) -> tuple[bytes, Bytes]:
    """The same for an encoded head."""
    return b"".join((_PREFIX.pack(_TYPE_OF[message_class], len(head)), head)), audio


def split(data: Bytes) -> Parts:
    """The parts of a frame, as views of it; PeerError(INVALID_MESSAGE) if they do not fit."""
    if len(data) < _PREFIX.size:
        raise _invalid(f"is too short: it has at least {_PREFIX.size} bytes, this one {len(data)}")
    number, head_bytes = _PREFIX.unpack_from(data)
    if number not in TYPES:
        raise _invalid(f"has the unknown type 0x{number:02x}")
    end = _PREFIX.size + head_bytes
    if end > len(data):
        raise _invalid(f"ends within its head: {head_bytes} bytes promised, {len(data) - _PREFIX.size} there")
    view = memoryview(data)
    return Parts(number, view[_PREFIX.size : end], view[end:])


def decode_parts(number: int, head: Bytes, audio: Bytes) -> Any:
    """The message of a head, with its audio; PeerError(INVALID_MESSAGE) if it is malformed."""
    message = _CODECS[number].decode_head(head)
    if getattr(message, message.audio_field) is not NOT_SENT:
        raise _invalid(f"has `{message.audio_field}` in its head")
    msgspec.structs.force_setattr(message, message.audio_field, audio)
    return message


def decode(data: Bytes) -> AudioMessage:
    """The message in a frame, with a view of its audio; PeerError(INVALID_MESSAGE) if it is malformed."""
    message: AudioMessage = decode_parts(*split(data))
    return message


def json_of(message_class: type[AudioMessage], head: Bytes, audio: Bytes) -> bytes:
    """A binary message as JSON, for a peer that did not negotiate them: its audio becomes the last field."""
    field = message_class.audio_field.encode()
    return b'%b,"%b":"%b"}' % (bytes(head).rstrip()[:-1], field, b64encode(audio))


def _invalid(what: str) -> PeerError:
    return PeerError(ErrorCode.INVALID_MESSAGE, f"the binary message {what}")
