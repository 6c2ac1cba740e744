"""Tones in a WAV file, and what is left of them on the other side."""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np

HZ = 440
SAMPLE_RATE = 16_000


def samples(seconds: float, hz: float = HZ, rate: int = SAMPLE_RATE) -> np.ndarray:
    """A sine at half of the full amplitude, as floats."""
    return 0.5 * np.sin(2 * np.pi * hz * np.arange(int(seconds * rate)) / rate)


def pcm16(seconds: float, hz: float = HZ, rate: int = SAMPLE_RATE) -> bytes:
    """The same as PCM16."""
    return (samples(seconds, hz, rate) * 32_767).astype("<i2").tobytes()


def write_tone(path: Path, seconds: float = 2.0) -> Path:
    """A WAV file. Its tone ends on a whole wave, so that it can be repeated without a click."""
    return write_wav(path, pcm16(seconds))


def write_wav(path: Path, sound: bytes) -> Path:
    """A WAV file of PCM16."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(sound)
    return path


def loudest_hz(sound: Sequence[float] | np.ndarray, rate: int = SAMPLE_RATE) -> float:
    """The frequency that is strongest in it."""
    heard = np.asarray(sound, dtype=float)
    strengths = np.abs(np.fft.rfft(heard * np.hanning(len(heard))))
    return float(np.argmax(strengths) * rate / len(heard))
