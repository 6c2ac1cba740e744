"""Audio: what the edge must know of it without decoding sound. Bytes in, milliseconds out."""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64
from typing import Final

from mesh.errors import ErrorCode, PeerError

#: One Opus packet of "Plan A" holds this much sound.
OPUS_PACKET_MS: Final = 20
#: Five minutes of them, more than an utterance lasts. A message full of empty packets would hold the edge up for long.
OPUS_PACKETS_MAX: Final = 15_000
_PCM_FORMATS: Final = frozenset({"pcm16", "pcm", "s16le"})


def from_base64(text: str | bytes) -> bytes:
    """The bytes of a base64 field; PeerError INVALID_AUDIO if it is none."""
    try:
        return a2b_base64(text, strict_mode=bool(text))
    except (Base64Error, ValueError) as error:
        raise PeerError(ErrorCode.INVALID_AUDIO, f"the audio is not base64: {error}") from None


def duration_ms(audio: bytes, audio_format: str, sample_rate: int) -> int:
    """How long it sounds: PCM16 by its bytes, Opus "Plan A" by its packets; 0 for what we cannot tell."""
    name = audio_format.lower()
    if name in _PCM_FORMATS:
        return len(audio) * 1_000 // (2 * sample_rate) if sample_rate > 0 else 0
    if name == "opus":
        return opus_packets(audio) * OPUS_PACKET_MS
    return 0


def opus_packets(audio: bytes) -> int:
    """Packets of Opus "Plan A": each behind its length, 2 bytes little-endian. A torn last one does not count."""
    packets = place = 0
    for _ in range(OPUS_PACKETS_MAX):
        if place + 2 > len(audio):
            break
        length = audio[place] | audio[place + 1] << 8
        place += 2 + length
        if length and place <= len(audio):
            packets += 1
    return packets
