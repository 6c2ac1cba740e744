"""Streaming: reads audio from a source or from single calls and packetizes it for the sender. Packetizers are pure.

A source is an async iterator of bytes, an iterable of bytes, bytes, a binary file object, or the path of a WAV file. A
piece of PCM16 may have any size; for Opus each piece is one packet, or a list of packets. None between pieces ends the
utterance.
"""

from __future__ import annotations

import asyncio
import os
import sys
import wave
from array import array
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeAlias

from linguamesh.session.send_buffer import Piece
from linguamesh.session.sender import Sender
from mesh.clock import now_ms, wall_ms

Sound: TypeAlias = bytes | bytearray | memoryview | Sequence[bytes]
Source: TypeAlias = AsyncIterable[Sound | None] | Iterable[Sound | None] | bytes | BinaryIO | str | os.PathLike[str]

#: Audio in one message.
CHUNK_MS: Final = 100
#: Bytes per read from a file.
READ_BYTES: Final = 32_768
SAMPLE_BYTES: Final = 2
#: Duration of one Opus packet on the wire, and its largest size: its length prefix has two bytes.
OPUS_PACKET_MS: Final = 20
OPUS_PACKET_BYTES_MAX: Final = 65_535

_BYTES: Final = (bytes, bytearray, memoryview)
#: Recognised by identity, not by content.
_END_OF_SOURCE: Final = bytearray()


class Streamer:
    """Streams the audio of one session to its sender."""

    def __init__(self, sender: Sender, sample_rate: int) -> None:
        self._sender = sender
        self._sample_rate = sample_rate
        self._packetizer: Packetizer | None = None  # of `speak`; buffers half a sample, at most

    async def stream(self, source: Source, codec: str, chunk_ms: int, realtime: bool) -> None:
        """Stream the whole source; None in it ends an utterance."""
        packetizer = packetizer_for(codec, self._sample_rate, chunk_ms)
        began_ms, began_wall_ms, streamed_ms = now_ms(), wall_ms(), 0
        recorded = realtime or is_recorded(source)

        async def send(packets: list[Packet]) -> None:
            nonlocal streamed_ms
            for packet in packets:
                if realtime:
                    await asyncio.sleep(max(0, began_ms + streamed_ms - now_ms()) / 1_000)
                # Backpressure must not show as a pause in a recording: its timestamps are positions in it.
                timestamp_ms = began_wall_ms + streamed_ms if recorded else wall_ms()
                await self._sender.add_audio(Piece(packet.audio, packet.ms, False, timestamp_ms))
                streamed_ms += packet.ms

        async with aclosing(read_source(source, self._sample_rate)) as pieces:
            async for sound in pieces:
                self._sender.check_open()  # silence sends nothing, and must not outlast the session
                if sound is None:
                    await send(packetizer.flush())
                    await self.end_utterance()
                else:
                    await send(packetizer.add(sound))
        await send(packetizer.flush())

    async def speak(self, sound: Sound, codec: str) -> None:
        """Send a piece of audio at once; half a sample waits for its other half."""
        packetizer = self._packetizer = self._packetizer or packetizer_for(codec, self._sample_rate, CHUNK_MS)
        for packet in [*packetizer.add(sound), *packetizer.flush()]:
            await self._sender.add_audio(Piece(packet.audio, packet.ms, False, wall_ms()))

    async def end_utterance(self) -> None:
        """Finalize the utterance; no effect if it has no audio."""
        self._packetizer = None
        await self._sender.end_utterance(wall_ms())


# --- packets --------------------------------------------------------------------------------------


class Packet(NamedTuple):
    """The audio of one message, and its duration."""

    audio: bytes
    ms: int


class Packetizer(Protocol):
    """Turns pieces of any size into packets."""

    def add(self, sound: Sound) -> list[Packet]:
        """More audio; the packets that are complete now."""

    def flush(self) -> list[Packet]:
        """The last, incomplete packet, if there is one."""


class PcmPacketizer:
    """PCM16 mono: packets of `packet_ms`, in whole samples. An odd byte at the very end is discarded."""

    def __init__(self, sample_rate: int, packet_ms: int) -> None:
        self._rate = sample_rate
        self._bytes = max(1, sample_rate * packet_ms // 1_000) * SAMPLE_BYTES
        self._partial = bytearray()

    def add(self, sound: Sound) -> list[Packet]:
        """More audio; the packets that are complete now."""
        if not isinstance(sound, _BYTES):
            raise TypeError("PCM16 comes as bytes")
        self._partial += sound
        full = len(self._partial) // self._bytes * self._bytes
        packets = [self._packet(start, start + self._bytes) for start in range(0, full, self._bytes)]
        del self._partial[:full]
        return packets

    def flush(self) -> list[Packet]:
        """The last, incomplete packet; an odd byte stays for the audio that follows."""
        whole_bytes = len(self._partial) // SAMPLE_BYTES * SAMPLE_BYTES
        packets = [self._packet(0, whole_bytes)] if whole_bytes else []
        del self._partial[:whole_bytes]
        return packets

    def _packet(self, start: int, end: int) -> Packet:
        return Packet(bytes(self._partial[start:end]), (end - start) * 1_000 // (SAMPLE_BYTES * self._rate))


class OpusPacketizer:
    """Opus: as many packets as make `packet_ms`, each after its length as a 16-bit little-endian number."""

    def __init__(self, packet_ms: int) -> None:
        self._count = max(1, packet_ms // OPUS_PACKET_MS)
        self._partial: list[bytes] = []

    def add(self, sound: Sound) -> list[Packet]:
        """One Opus packet, or a list of them; the packets that are complete now."""
        for packet in [bytes(sound)] if isinstance(sound, _BYTES) else sound:
            if not 0 < len(packet) <= OPUS_PACKET_BYTES_MAX:
                raise ValueError(f"an Opus packet has 1 to {OPUS_PACKET_BYTES_MAX} bytes, this one {len(packet)}")
            self._partial.append(len(packet).to_bytes(2, "little") + packet)
        full = len(self._partial) // self._count * self._count
        packets = [_opus_packet(self._partial[start : start + self._count]) for start in range(0, full, self._count)]
        del self._partial[:full]
        return packets

    def flush(self) -> list[Packet]:
        """The last, incomplete packet, if there is one."""
        packets = [_opus_packet(self._partial)] if self._partial else []
        self._partial = []
        return packets


def _opus_packet(packets: list[bytes]) -> Packet:
    return Packet(b"".join(packets), len(packets) * OPUS_PACKET_MS)


def packetizer_for(codec: str, sample_rate: int, packet_ms: int) -> Packetizer:
    """A packetizer for the negotiated codec."""
    if packet_ms < 1:
        raise ValueError(f"chunk_ms is {packet_ms}; it is at least 1")
    return OpusPacketizer(packet_ms) if codec == "opus" else PcmPacketizer(sample_rate, packet_ms)


# --- sources --------------------------------------------------------------------------------------


def is_recorded(source: Source) -> bool:
    """True if the audio is complete already: its timestamps are positions in the recording, not times of reading."""
    if isinstance(source, (*_BYTES, str, os.PathLike)):
        return True
    seekable = getattr(source, "seekable", None)  # true for a file, not for a pipe or a microphone
    return bool(seekable and seekable())


async def read_source(source: Source, sample_rate: int) -> AsyncGenerator[Sound | None, None]:
    """The audio of a source, as it arrives, and None where an utterance ends. Blocking reads run in a thread."""
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
    while (sound := await asyncio.to_thread(next, pieces, _END_OF_SOURCE)) is not _END_OF_SOURCE:
        yield sound


def _file_pieces(file: Any) -> Iterator[bytes]:
    # read1 returns the available bytes of a pipe; read would block until all of them have arrived.
    read = getattr(file, "read1", file.read)
    first = True
    while piece := read(READ_BYTES):
        if first and piece[:4] == b"RIFF":
            raise ValueError("a file object holds raw samples; for a WAV file give its path")
        first = False
        yield piece


class WavError(ValueError):
    """The file is not a usable WAV file; the text has the reason, in one line."""


def open_wav(path: Path) -> wave.Wave_read:
    """A WAV file of 16 bits and one or two channels; WavError for any other, or if it cannot be read."""
    try:
        file = wave.open(str(path), "rb")  # noqa: SIM115 - the caller closes it
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
    """The audio of a WAV file of that rate, piece by piece, stereo mixed to mono."""
    with open_wav(path) as file:
        if file.getframerate() != sample_rate:
            rate = file.getframerate()
            raise WavError(f"{path} has {rate} Hz and the session {sample_rate}: open it with sample_rate={rate}")
        channels = file.getnchannels()
        while frames := file.readframes(READ_BYTES // (SAMPLE_BYTES * channels)):
            yield frames if channels == 1 else mix_to_mono(frames)


def mix_to_mono(frames: bytes) -> bytes:
    """Stereo to mono: the mean of left and right."""
    samples = array("h", frames[: len(frames) // 4 * 4])
    if sys.byteorder == "big":
        samples.byteswap()
    mono = array("h", [(left + right) // 2 for left, right in zip(samples[::2], samples[1::2], strict=True)])
    if sys.byteorder == "big":
        mono.byteswap()
    return mono.tobytes()
