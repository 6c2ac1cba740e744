"""Where streamed sound comes from, and how it is cut into packets. The cutters are pure.

A source is an async iterator of bytes, an iterable of bytes, bytes, a binary file object, or the path of a WAV file. A
piece of PCM16 may have any size; for Opus each piece is one packet, or a list of packets. None between pieces: the
utterance ends here.
"""

from __future__ import annotations

import asyncio
import os
import sys
import wave
from array import array
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeAlias

Sound: TypeAlias = bytes | bytearray | memoryview | Sequence[bytes]
Source: TypeAlias = AsyncIterable[Sound | None] | Iterable[Sound | None] | bytes | BinaryIO | str | os.PathLike[str]

#: Bytes that are read from a file at once.
READ_BYTES: Final = 32_768
SAMPLE_BYTES: Final = 2
#: Length of one Opus packet on the wire, and the largest one: its length has two bytes.
OPUS_PACKET_MS: Final = 20
OPUS_PACKET_BYTES_MAX: Final = 65_535

_BYTES: Final = (bytes, bytearray, memoryview)
#: Told from all sound by what it is, not by what is in it.
_NO_MORE: Final = bytearray()


class Packet(NamedTuple):
    """Sound that goes into one message, and how long it sounds."""

    audio: bytes
    ms: int


class Cutter(Protocol):
    """Cuts pieces of any size into packets."""

    def put(self, sound: Sound) -> list[Packet]:
        """More sound; the packets that are full now."""

    def rest(self) -> list[Packet]:
        """There is no more."""


class PcmCutter:
    """PCM16 mono: packets of `packet_ms`, in whole samples. An odd byte at the very end is no sample."""

    def __init__(self, sample_rate: int, packet_ms: int) -> None:
        self._rate = sample_rate
        self._bytes = max(1, sample_rate * packet_ms // 1_000) * SAMPLE_BYTES
        self._held = bytearray()

    def put(self, sound: Sound) -> list[Packet]:
        """More sound; the packets that are full now."""
        if not isinstance(sound, _BYTES):
            raise TypeError("PCM16 comes as bytes")
        self._held += sound
        full = len(self._held) // self._bytes * self._bytes
        packets = [self._packet(start, start + self._bytes) for start in range(0, full, self._bytes)]
        del self._held[:full]
        return packets

    def rest(self) -> list[Packet]:
        """What did not fill a packet; an odd byte stays for the sound that follows."""
        whole = len(self._held) // SAMPLE_BYTES * SAMPLE_BYTES
        packets = [self._packet(0, whole)] if whole else []
        del self._held[:whole]
        return packets

    def _packet(self, start: int, end: int) -> Packet:
        return Packet(bytes(self._held[start:end]), (end - start) * 1_000 // (SAMPLE_BYTES * self._rate))


class OpusCutter:
    """Opus: as many packets as make `packet_ms`, each behind its length as a 16-bit little-endian number."""

    def __init__(self, packet_ms: int) -> None:
        self._count = max(1, packet_ms // OPUS_PACKET_MS)
        self._held: list[bytes] = []

    def put(self, sound: Sound) -> list[Packet]:
        """One packet, or a list of them; what is full now."""
        for packet in [bytes(sound)] if isinstance(sound, _BYTES) else sound:
            if not 0 < len(packet) <= OPUS_PACKET_BYTES_MAX:
                raise ValueError(f"an Opus packet has 1 to {OPUS_PACKET_BYTES_MAX} bytes, this one {len(packet)}")
            self._held.append(len(packet).to_bytes(2, "little") + packet)
        full = len(self._held) // self._count * self._count
        packets = [_opus(self._held[start : start + self._count]) for start in range(0, full, self._count)]
        del self._held[:full]
        return packets

    def rest(self) -> list[Packet]:
        """What did not fill a packet."""
        packets = [_opus(self._held)] if self._held else []
        self._held = []
        return packets


def _opus(held: list[bytes]) -> Packet:
    return Packet(b"".join(held), len(held) * OPUS_PACKET_MS)


def cutter_of(codec: str, sample_rate: int, packet_ms: int) -> Cutter:
    """The cutter for what was negotiated."""
    if packet_ms < 1:
        raise ValueError(f"chunk_ms is {packet_ms}; it is at least 1")
    return OpusCutter(packet_ms) if codec == "opus" else PcmCutter(sample_rate, packet_ms)


# --- sources --------------------------------------------------------------------------------------


def is_recorded(source: Source) -> bool:
    """True if the sound is there already, so that its time is its place in the recording and not when it is read."""
    if isinstance(source, (*_BYTES, str, os.PathLike)):
        return True
    seekable = getattr(source, "seekable", None)  # a file is, a pipe or a microphone is not
    return bool(seekable and seekable())


async def sounds(source: Source, sample_rate: int) -> AsyncGenerator[Sound | None, None]:
    """All sound of a source, as it comes, and None where an utterance ends. What may block is read in a thread."""
    if isinstance(source, _BYTES):
        yield source
    elif isinstance(source, AsyncIterable):
        async for sound in source:
            yield sound
    elif isinstance(source, str | os.PathLike):
        async for sound in _in_thread(wav_frames(Path(source), sample_rate)):
            yield sound
    elif hasattr(source, "read"):
        async for sound in _in_thread(_file_pieces(source)):
            yield sound
    else:
        async for sound in _in_thread(iter(source)):
            yield sound


async def _in_thread(pieces: Iterator[Sound | None]) -> AsyncIterator[Sound | None]:
    while (sound := await asyncio.to_thread(next, pieces, _NO_MORE)) is not _NO_MORE:
        yield sound


def _file_pieces(file: Any) -> Iterator[bytes]:
    # read1 returns what a pipe has; read would wait until all of it is there.
    read = getattr(file, "read1", file.read)
    first = True
    while piece := read(READ_BYTES):
        if first and piece[:4] == b"RIFF":
            raise ValueError("a file object holds raw samples; for a WAV file give its path")
        first = False
        yield piece


class WavError(ValueError):
    """A file that is no usable WAV; the text says why, in one line."""


def open_wav(path: Path) -> wave.Wave_read:
    """The WAV file, which has 16 bits and one or two channels; WavError otherwise, or if it cannot be read."""
    try:
        file = wave.open(str(path), "rb")  # noqa: SIM115 - whoever asked for it closes it
    except OSError as error:
        raise WavError(f"cannot read {path}: {error.strerror}") from None
    except (wave.Error, EOFError) as error:
        raise WavError(f"{path} is not a PCM WAV file: {str(error) or 'it ends too early'}") from None
    width, channels = file.getsampwidth(), file.getnchannels()
    if width != SAMPLE_BYTES or channels not in (1, 2):
        file.close()
        raise WavError(f"{path} has {width * 8} bits and {channels} channels; 16 bits, mono or stereo, are needed")
    return file


def wav_frames(path: Path, sample_rate: int) -> Iterator[bytes]:
    """The sound in a WAV file of that rate, piece by piece, stereo mixed to mono."""
    with open_wav(path) as file:
        if file.getframerate() != sample_rate:
            rate = file.getframerate()
            raise WavError(f"{path} has {rate} Hz and the session {sample_rate}: open it with sample_rate={rate}")
        channels = file.getnchannels()
        while frames := file.readframes(READ_BYTES // (SAMPLE_BYTES * channels)):
            yield frames if channels == 1 else mixed(frames)


def mixed(frames: bytes) -> bytes:
    """Stereo to mono: the mean of left and right."""
    samples = array("h", frames[: len(frames) // 4 * 4])
    if sys.byteorder == "big":
        samples.byteswap()
    mono = array("h", [(left + right) // 2 for left, right in zip(samples[::2], samples[1::2], strict=True)])
    if sys.byteorder == "big":
        mono.byteswap()
    return mono.tobytes()
