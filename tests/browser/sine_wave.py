"""Generates tones and WAV files, and measures the frequency of received audio."""

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
    """The same sine as PCM16."""
    return (samples(seconds, hz, rate) * 32_767).astype("<i2").tobytes()


def write_tone(path: Path, seconds: float = 2.0) -> Path:
    """Write a tone. It ends on a whole period, so that its repetition has no click."""
    return write_wav(path, pcm16(seconds))


def write_wav(path: Path, sound: bytes) -> Path:
    """Write PCM16 as a WAV file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(sound)
    return path


def loudest_hz(sound: Sequence[float] | np.ndarray, rate: int = SAMPLE_RATE) -> float:
    """The frequency with the highest magnitude."""
    signal = np.asarray(sound, dtype=float)
    magnitudes = np.abs(np.fft.rfft(signal * np.hanning(len(signal))))
    return float(np.argmax(magnitudes) * rate / len(signal))
