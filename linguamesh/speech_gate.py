"""Finds the speech in sound that never ends, such as that of a microphone, which also sends silence.

    await session.stream(speech_of(microphone))

For PCM16, mono, little-endian. `SpeechGate` is pure: what it passes depends on the samples alone, not on when or in
which pieces they come. console/audio/speech-gate.js is its twin for web pages, sample for sample.

The sound is measured in frames of 20 ms, against a noise floor that falls at once and rises slowly. The gate opens at
three loud frames in a row, so that a click does not open it. From a little before those, all sound is passed as it is,
until there was silence for `pause_ms`. Of that silence only the beginning is passed. The rest is held back until
speech goes on, and then passed before it, in the same step, or until the utterance has ended: so no word waits for
anything, and no dead sound is sent to be translated.
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
#: So many loud frames in a row are speech. A click of one frame's length may lie in two.
LOUD_FRAMES: Final = 3
#: Sound before speech that is passed with it, because words begin softly.
PRE_ROLL_FRAMES: Final = 15
#: Sound after speech that is passed at once, because words end softly.
HANGOVER_FRAMES: Final = 15
#: So long a silence ends an utterance, and how long it may be at most: it is held in memory.
PAUSE_MS: Final = 700
PAUSE_MS_MAX: Final = 10_000
#: Root mean square of samples: what is below this is never the beginning of speech.
LEVEL_MIN: Final = 150
LEVEL_MAX: Final = 32_767
SAMPLE_RATE_MIN: Final = 1_000
SAMPLE_RATE_MAX: Final = 192_000
#: Times the noise floor: speech begins at the first, and goes on down to the second.
START_RATIO: Final = 3
STOP_RATIO: Final = 2
#: Of the noise floor, in each frame: 3 dB in a second. Even loud speech dips more often than that would close the gate.
RISE: Final = 1.007


class SpeechGate:
    """Passes speech, and None where an utterance ends. Holds at most `pause_ms` of sound.

    sample_rate  of the sound, in Hz
    pause_ms     so long a silence ends an utterance
    level_min    what is less loud, as the root mean square of samples in 20 ms, does not begin an utterance
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
        self._still_frames = 0  # in a row, while it is open
        self._frame = bytearray()  # what is being measured
        self._held = bytearray()  # what was neither passed nor dropped

    def push(self, sound: bytes | bytearray | memoryview) -> list[bytes | None]:
        """More sound; what is passed now, in whole samples, and None for each end."""
        passed: list[bytes | None] = []
        rest = memoryview(sound).cast("B")
        while rest:
            part = rest[: self._frame_bytes - len(self._frame)]
            rest = rest[len(part) :]
            self._frame += part
            self._held += part
            if len(self._frame) == self._frame_bytes:
                passed += self._judge(_level(self._frame))
                self._frame.clear()
        # Of a frame that is not complete too: it is passed, however loud it will be.
        if self._is_open and self._still_frames < self._hangover_frames and len(self._held) >= SAMPLE_BYTES:
            passed.append(self._take())
        return passed

    def _judge(self, level: float) -> list[bytes | None]:
        floor = self._floor
        self._floor = max(self._floor_min, min(level, floor * RISE))
        if self._is_open:
            return self._go_on(level >= floor * STOP_RATIO)
        self._loud_frames = self._loud_frames + 1 if level >= floor * START_RATIO else 0
        if self._loud_frames == LOUD_FRAMES:
            self._is_open = True
            self._still_frames = 0
        else:
            self._drop_all_but(PRE_ROLL_FRAMES + self._loud_frames)
        return []

    def _go_on(self, is_speech: bool) -> list[bytes | None]:
        """One more frame of an utterance."""
        passed: list[bytes | None] = []
        self._still_frames = 0 if is_speech else self._still_frames + 1
        if self._still_frames == self._hangover_frames:
            passed.append(self._take())
        if self._still_frames == self._pause_frames:
            passed.append(None)
            self._is_open = False
            self._loud_frames = 0
            self._drop_all_but(PRE_ROLL_FRAMES)  # the next word may begin at once
        return passed

    def _take(self) -> bytes:
        whole = len(self._held) // SAMPLE_BYTES * SAMPLE_BYTES
        taken = bytes(self._held[:whole])
        del self._held[:whole]
        return taken

    def _drop_all_but(self, frames: int) -> None:
        del self._held[: max(0, len(self._held) - frames * self._frame_bytes)]


async def speech_of(
    source: Source, *, sample_rate: int = 16_000, pause_ms: int = PAUSE_MS, level_min: float = LEVEL_MIN
) -> AsyncGenerator[bytes | None, None]:
    """The speech in a source of PCM16, and None where an utterance ends. Options are those of `SpeechGate`.

    A piece of the source in which nothing is passed gives an empty one, so that whoever reads this can see in time
    that there is nobody left to listen.
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
