"""Binary frames of /ws/session: audio chunks, finalize and ping without JSON and base64. docs/protocol.md: layouts.

All numbers are little-endian. The time is the lower 32 bits of the client's milliseconds. A malformed frame is
PeerError(INVALID_MESSAGE); whether the session belongs to the client is the edge's check.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from mesh.errors import ErrorCode, PeerError

AUDIO_CHUNK: Final = 0x01
FINAL: Final = 0x02
PING: Final = 0x10
PONG: Final = 0x11

#: Type, length of the session id, seq, time; audio has two bytes more: is_final, and a reserved one.
_HEAD: Final = Struct("<BBII")
_AUDIO_HEAD: Final = Struct("<BBIIBx")
_U32_MAX: Final = 2**32 - 1
_SESSION_ID_BYTES_MAX: Final = 255


class AudioFrame(NamedTuple):
    """A chunk of streamed audio."""

    session_id: str
    seq: int
    timestamp_ms: int
    is_final: bool
    audio: bytes


class FinalFrame(NamedTuple):
    """Finalizes the utterance, as an audio frame that is final and empty."""

    session_id: str
    seq: int
    timestamp_ms: int


class PingFrame(NamedTuple):
    """Replied to by a pong with the same fields."""

    session_id: str
    seq: int
    timestamp_ms: int


class PongFrame(NamedTuple):
    """Reply to a ping."""

    session_id: str
    seq: int
    timestamp_ms: int


BinaryFrame: TypeAlias = AudioFrame | FinalFrame | PingFrame | PongFrame

_SHORT: Final[dict[int, type[FinalFrame] | type[PingFrame] | type[PongFrame]]] = {
    FINAL: FinalFrame,
    PING: PingFrame,
    PONG: PongFrame,
}
_TYPE_OF: Final = {kind: number for number, kind in _SHORT.items()}


def encode(frame: BinaryFrame) -> bytes:
    """The frame's bytes. The time is reduced to its lower 32 bits."""
    session_id = frame.session_id.encode()
    assert 0 < len(session_id) <= _SESSION_ID_BYTES_MAX, "the length of a session id is one byte"
    assert 0 <= frame.seq <= _U32_MAX, "a seq has 32 bits"
    time = frame.timestamp_ms & _U32_MAX
    if isinstance(frame, AudioFrame):
        head = _AUDIO_HEAD.pack(AUDIO_CHUNK, len(session_id), frame.seq, time, frame.is_final)
        return b"".join((head, session_id, frame.audio))
    return _HEAD.pack(_TYPE_OF[type(frame)], len(session_id), frame.seq, time) + session_id


def decode(data: bytes) -> BinaryFrame:
    """The frame in `data`; PeerError(INVALID_MESSAGE) if it is malformed. The audio is copied once."""
    if not data:
        raise _invalid("is empty")
    if data[0] == AUDIO_CHUNK:
        if len(data) < _AUDIO_HEAD.size:
            raise _too_short("an audio chunk", _AUDIO_HEAD.size, len(data))
        _, id_bytes, seq, time, is_final = _AUDIO_HEAD.unpack_from(data)
        end = _AUDIO_HEAD.size + id_bytes
        return AudioFrame(_session_id(data, _AUDIO_HEAD.size, end), seq, time, is_final != 0, data[end:])
    kind = _SHORT.get(data[0])
    if kind is None:
        raise _invalid(f"has the unknown type 0x{data[0]:02x}")
    if len(data) < _HEAD.size:
        raise _too_short(kind.__name__, _HEAD.size, len(data))
    _, id_bytes, seq, time = _HEAD.unpack_from(data)
    end = _HEAD.size + id_bytes
    session_id = _session_id(data, _HEAD.size, end)
    if len(data) > end:
        raise _invalid(f"has {len(data) - end} bytes behind the session id, where none belong")
    return kind(session_id, seq, time)


def _session_id(data: bytes, start: int, end: int) -> str:
    if end > len(data):
        raise _invalid(f"ends within the session id: {end - start} bytes promised, {len(data) - start} there")
    if start == end:
        raise _invalid("has an empty session id")
    try:
        return data[start:end].decode()
    except UnicodeDecodeError:
        raise _invalid("has a session id that is not UTF-8") from None


def _too_short(what: str, least: int, there: int) -> PeerError:
    return _invalid(f"is too short: {what} has at least {least} bytes, this one {there}")


def _invalid(what: str) -> PeerError:
    return PeerError(ErrorCode.INVALID_MESSAGE, f"the binary frame {what}")
