"""Detects speech in continuous audio that includes silence, such as that of a microphone.

    await session.stream(speech_of(microphone))

For PCM16, mono, little-endian. `SpeechGate` is pure: its output depends on the samples alone, not on their arrival or
the size of their pieces. console/audio/speech-gate.js is its twin for web pages, sample for sample.

The level is measured in frames of 20 ms, against a noise floor that falls at once and rises slowly. The gate opens at
three loud frames in a row, so that a click does not open it. From a little before those, all audio is passed unchanged,
until a silence of `pause_ms`. Of that silence only the beginning is passed. The rest is buffered until speech
continues, and then passed before it, in the same step, or until the utterance has ended, and then discarded: so speech
is never delayed, and silence is not sent to be translated.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import AsyncGenerator
from contextlib import aclosing
from math import sqrt
from typing import Final

from linguamesh.session.stream import SAMPLE_BYTES, Source, read_source

FRAME_MS: Final = 20
#: Loud frames in a row that count as speech. A click of one frame's length may lie in two.
LOUD_FRAMES: Final = 3
#: Audio before speech that is passed with it, because words begin softly.
PRE_ROLL_FRAMES: Final = 15
#: Audio after speech that is passed at once, because words end softly.
HANGOVER_FRAMES: Final = 15
#: The silence that ends an utterance, and its upper bound: it is buffered in memory.
PAUSE_MS: Final = 700
PAUSE_MS_MAX: Final = 10_000
#: Root mean square of samples: a frame below this never begins speech.
LEVEL_MIN: Final = 150
LEVEL_MAX: Final = 32_767
SAMPLE_RATE_MIN: Final = 1_000
SAMPLE_RATE_MAX: Final = 192_000
#: Multiples of the noise floor: speech begins at the first, and continues down to the second.
START_RATIO: Final = 3
STOP_RATIO: Final = 2
#: Of the noise floor, in each frame: 3 dB in a second. Even loud speech dips more often than that would close the gate.
RISE: Final = 1.007


class SpeechGate:
    """Passes speech, and None where an utterance ends. Buffers at most `pause_ms` of audio.

    sample_rate  of the audio, in Hz
    pause_ms     the silence that ends an utterance
    level_min    the level, as the root mean square of samples in 20 ms, below which no utterance begins
    """

    def __init__(self, *, sample_rate: int = 16_000, pause_ms: int = PAUSE_MS, level_min: float = LEVEL_MIN) -> None:
        _check_range("sample_rate", sample_rate, SAMPLE_RATE_MIN, SAMPLE_RATE_MAX)
        _check_range("pause_ms", pause_ms, FRAME_MS, PAUSE_MS_MAX)
        _check_range("level_min", level_min, 1, LEVEL_MAX)
        self._frame_bytes = sample_rate * FRAME_MS // 1_000 * SAMPLE_BYTES
        self._pause_frames = -(-pause_ms // FRAME_MS)
        self._hangover_frames = min(HANGOVER_FRAMES, self._pause_frames)
        self._floor_min = level_min / START_RATIO
        self._floor = self._floor_min
        self._is_open = False
        self._loud_frames = 0  # in a row, while it is closed
        self._silent_frames = 0  # in a row, while it is open
        self._frame = bytearray()  # the incomplete frame that is measured next
        self._buffered = bytearray()  # neither passed nor dropped yet

    def push(self, sound: bytes | bytearray | memoryview) -> list[bytes | None]:
        """Add audio; returns the audio passed now, in whole samples, and None for each end of an utterance."""
        passed: list[bytes | None] = []
        rest = memoryview(sound).cast("B")
        while rest:
            part = rest[: self._frame_bytes - len(self._frame)]
            rest = rest[len(part) :]
            self._frame += part
            self._buffered += part
            if len(self._frame) == self._frame_bytes:
                passed += self._on_frame(_level(self._frame))
                self._frame.clear()
        # An incomplete frame too: it is passed, whatever its level will be.
        if self._is_open and self._silent_frames < self._hangover_frames and len(self._buffered) >= SAMPLE_BYTES:
            passed.append(self._take())
        return passed

    def _on_frame(self, level: float) -> list[bytes | None]:
        floor = self._floor
        self._floor = max(self._floor_min, min(level, floor * RISE))
        if self._is_open:
            return self._continue(level >= floor * STOP_RATIO)
        self._loud_frames = self._loud_frames + 1 if level >= floor * START_RATIO else 0
        if self._loud_frames == LOUD_FRAMES:
            self._is_open = True
            self._silent_frames = 0
        else:
            self._drop_all_but(PRE_ROLL_FRAMES + self._loud_frames)
        return []

    def _continue(self, is_speech: bool) -> list[bytes | None]:
        """The next frame of an open utterance."""
        passed: list[bytes | None] = []
        self._silent_frames = 0 if is_speech else self._silent_frames + 1
        if self._silent_frames == self._hangover_frames:
            passed.append(self._take())
        if self._silent_frames == self._pause_frames:
            passed.append(None)
            self._is_open = False
            self._loud_frames = 0
            self._drop_all_but(PRE_ROLL_FRAMES)  # the next word may begin at once
        return passed

    def _take(self) -> bytes:
        whole_bytes = len(self._buffered) // SAMPLE_BYTES * SAMPLE_BYTES
        taken = bytes(self._buffered[:whole_bytes])
        del self._buffered[:whole_bytes]
        return taken

    def _drop_all_but(self, frames: int) -> None:
        del self._buffered[: max(0, len(self._buffered) - frames * self._frame_bytes)]


async def speech_of(
    source: Source, *, sample_rate: int = 16_000, pause_ms: int = PAUSE_MS, level_min: float = LEVEL_MIN
) -> AsyncGenerator[bytes | None, None]:
    """The speech in a source of PCM16, and None where an utterance ends. Options are those of `SpeechGate`.

    A piece of the source of which nothing is passed yields an empty one, so that a reader notices during silence that
    its session is closed.
    """
    gate = SpeechGate(sample_rate=sample_rate, pause_ms=pause_ms, level_min=level_min)
    async with aclosing(read_source(source, sample_rate)) as pieces:
        async for sound in pieces:
            if not isinstance(sound, bytes | bytearray | memoryview):
                raise TypeError("PCM16 comes as bytes")
            for passed in gate.push(sound) or (b"",):
                yield passed


def _level(frame: bytearray) -> float:
    samples = array("h", bytes(frame))
    if sys.byteorder == "big":
        samples.byteswap()
    return sqrt(sum(sample * sample for sample in samples) / len(samples))


def _check_range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; it is from {least} to {most}")
