"""Audio formats: durations and framing of PCM16 and Opus "Plan A", without decoding. Bytes in, milliseconds out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, cast

from mesh.errors import ErrorCode, PeerError
from mesh.messages.audio import Audio, audio_bytes

#: One Opus packet of "Plan A" holds this much sound.
OPUS_PACKET_MS: Final = 20
#: Five minutes of packets, more than an utterance lasts. Counting a message full of empty packets would block the edge.
OPUS_PACKETS_MAX: Final = 15_000
_SAMPLE_BYTES: Final = 2
_PCM_FORMATS: Final = frozenset({"pcm16", "pcm", "s16le"})


def audio_of(audio: Audio) -> bytes:
    """The bytes of an audio field: raw ones as they are, base64 decoded; PeerError INVALID_AUDIO if it is none."""
    try:
        return cast("bytes", audio_bytes(audio))  # a view of a frame is read like bytes, and nobody changes it
    except ValueError as error:
        raise PeerError(ErrorCode.INVALID_AUDIO, f"the audio is not base64: {error}") from None


def duration_ms(audio: bytes, audio_format: str, sample_rate: int) -> int:
    """The duration: PCM16 by its bytes, Opus "Plan A" by its packets; 0 for any other format."""
    name = audio_format.lower()
    if name in _PCM_FORMATS:
        return len(audio) * 1_000 // (_SAMPLE_BYTES * sample_rate) if sample_rate > 0 else 0
    if name == "opus":
        return opus_packets(audio) * OPUS_PACKET_MS
    return 0


def opus_packets(audio: bytes) -> int:
    """Packets of Opus "Plan A": each behind its length, 2 bytes little-endian. A truncated last one does not count."""
    packets = place = 0
    for _ in range(OPUS_PACKETS_MAX):
        if place + 2 > len(audio):
            break
        length = audio[place] | audio[place + 1] << 8
        place += 2 + length
        if length and place <= len(audio):
            packets += 1
    return packets


# --- streamed audio -------------------------------------------------------------------------------


class Sound(NamedTuple):
    """The unit in which the sound of one stream is counted: samples or packets.

    Units add up exactly. Milliseconds, rounded for each small chunk, would drift.
    """

    units_per_s: int
    #: Units in a chunk; PeerError INVALID_AUDIO if it does not consist of whole ones.
    measure: Callable[[bytes], int]

    def ms(self, units: int) -> int:
        """The duration of that many units."""
        return units * 1_000 // self.units_per_s

    def units(self, ms: int) -> int:
        """The least number of units that last at least `ms`."""
        return -(-ms * self.units_per_s // 1_000)


def sound_of(audio_format: str, sample_rate: int) -> Sound:
    """The unit of a stream in the session's format: PCM16 or Opus "Plan A"."""
    name = audio_format.lower()
    if name == "opus":
        return Sound(1_000 // OPUS_PACKET_MS, whole_packets)
    assert name in _PCM_FORMATS and sample_rate > 0, f"session_init does not accept {audio_format} at {sample_rate}"
    return Sound(sample_rate, whole_samples)


def whole_samples(audio: bytes) -> int:
    """Samples of a PCM16 chunk; PeerError INVALID_AUDIO if the last one is truncated."""
    if len(audio) % _SAMPLE_BYTES:
        raise PeerError(ErrorCode.INVALID_AUDIO, f"PCM16 has 2 bytes per sample; {len(audio)} bytes end within one")
    return len(audio) // _SAMPLE_BYTES


def whole_packets(audio: bytes) -> int:
    """Packets of an Opus "Plan A" chunk; PeerError INVALID_AUDIO if one is truncated or empty, or too many."""
    packets = place = 0
    end = len(audio)
    while place < end:
        if packets == OPUS_PACKETS_MAX:
            raise _bad_packet(packets, place, f"is one too many: a chunk may have {OPUS_PACKETS_MAX}")
        if place + 1 == end:
            raise _bad_packet(packets, place, "is truncated: it has half a length field")
        length = audio[place] | audio[place + 1] << 8
        if not length:
            raise _bad_packet(packets, place, "is empty")
        if place + 2 + length > end:
            raise _bad_packet(packets, place, f"is truncated: {length} bytes announced, {end - place - 2} present")
        place += 2 + length
        packets += 1
    return packets


def _bad_packet(number: int, place: int, fault: str) -> PeerError:
    return PeerError(ErrorCode.INVALID_AUDIO, f"Opus packet {number} at byte {place} {fault}")
