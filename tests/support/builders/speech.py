"""Audio of known levels for speech gates, and the speech in it: one table for the Python gate and its twin in the page.

Samples are +level or -level at random. So the root mean square of any frame is known exactly, and no two stretches are
equal.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np

from linguamesh.speech_gate import SpeechGate

RATE = 16_000
#: (milliseconds, level) one after the other.
Script: TypeAlias = list[tuple[int, int]]
Passed: TypeAlias = list[bytes | None]

#: Levels of a quiet room and of a voice.
QUIET = 20
VOICE = 3_000


@dataclass(frozen=True)
class Case:
    """Audio, and the (start, end) of its utterances in milliseconds."""

    script: Script
    utterances: list[tuple[int, int]]
    #: The last one has not ended.
    is_open: bool = False
    options: dict[str, Any] = field(default_factory=dict)


CASES: dict[str, Case] = {
    "nothing": Case([], []),
    "silence": Case([(3_000, 0)], []),
    "a quiet room": Case([(3_000, QUIET)], []),
    "speech with its pre-roll and hangover": Case([(1_000, QUIET), (500, VOICE), (1_500, QUIET)], [(700, 1_800)]),
    "speech at once": Case([(500, VOICE), (1_000, QUIET)], [(0, 800)]),
    "speech until the end": Case([(1_000, QUIET), (500, VOICE)], [(700, 1_500)], is_open=True),
    "a pause that is not over": Case([(1_000, QUIET), (500, VOICE), (690, QUIET)], [(700, 1_800)], is_open=True),
    "a short pause between words": Case(
        [(1_000, QUIET), (200, VOICE), (680, QUIET), (200, VOICE), (1_000, QUIET)], [(700, 2_380)]
    ),
    "two utterances": Case(
        [(500, QUIET), (200, VOICE), (1_000, QUIET), (200, VOICE), (1_000, QUIET)], [(200, 1_000), (1_400, 2_200)]
    ),
    "an utterance as soon as the last one has ended": Case(
        [(300, QUIET), (200, VOICE), (700, QUIET), (200, VOICE), (1_000, QUIET)], [(0, 800), (900, 1_700)]
    ),
    "passed audio is not passed twice": Case(
        [(300, QUIET), (200, VOICE), (400, QUIET), (200, VOICE), (1_000, QUIET)],
        [(0, 800), (800, 1_400)],
        options={"pause_ms": 400},
    ),
    "a pause shorter than the hangover": Case(
        [(500, QUIET), (200, VOICE), (500, QUIET), (200, VOICE), (500, QUIET)],
        [(200, 800), (900, 1_500)],
        options={"pause_ms": 100},
    ),
    "a long pause between words with a long pause_ms": Case(
        [(500, QUIET), (200, VOICE), (1_900, QUIET), (200, VOICE), (2_000, QUIET)],
        [(200, 3_100)],
        options={"pause_ms": 2_000},
    ),
    "a click": Case([(1_010, QUIET), (20, 20_000), (1_000, QUIET)], []),
    "the shortest word": Case([(1_000, QUIET), (60, VOICE), (1_000, QUIET)], [(700, 1_360)]),
    "too soft": Case([(1_000, QUIET), (500, 149), (1_000, QUIET)], []),
    "just loud enough to begin": Case([(1_000, QUIET), (60, 153), (1_000, QUIET)], [(700, 1_360)]),
    "soft speech with a low level_min": Case(
        [(1_000, QUIET), (500, 100), (1_000, QUIET)], [(700, 1_800)], options={"level_min": 60}
    ),
    "loud enough to go on": Case([(1_000, QUIET), (100, 160), (200, 120), (1_000, QUIET)], [(700, 1_600)]),
    "not loud enough to begin with": Case([(1_000, QUIET), (300, 120), (1_000, QUIET)], []),
    # The floor rises from 50 by 3 dB in a second: after 199 frames it is half of the noise, which then is no speech.
    "noise is speech until the floor has risen": Case(
        [(8_000, 400), (500, VOICE), (1_000, 400)], [(0, 4_280), (7_700, 8_800)]
    ),
    "soft speech as soon as the noise is over": Case(
        [(8_000, 400), (200, QUIET), (500, 300), (1_000, QUIET)], [(0, 4_280), (7_900, 9_000)]
    ),
}


def sound_of(script: Script, rate: int = RATE, seed: int = 0) -> bytes:
    """PCM16."""
    generator = np.random.default_rng(seed)
    parts = [level * generator.choice([-1, 1], size=ms * rate // 1_000) for ms, level in script]
    return np.concatenate([np.zeros(0), *parts]).astype("<i2").tobytes()


def random_case(seed: int, rate: int = RATE) -> tuple[bytes, list[int]]:
    """Audio of random levels, noise included, and the bytes in each of its pieces."""
    rng = random.Random(seed)
    levels = [0, QUIET, 60, 100, 150, 250, 600, VOICE, 32_767]
    script = [(rng.randrange(1, 900), rng.choice(levels)) for _ in range(rng.randrange(5, 25))]
    sound = sound_of(script, rate, seed)
    sizes: list[int] = []
    while sum(sizes) < len(sound):
        sizes.append(2 * rng.choice([1, 7, 160, 320, 333, 1_600, 5_000, 40_000]))
    return sound, sizes


def pieces_of(sound: bytes, sizes: list[int]) -> list[bytes]:
    """The audio in pieces of those sizes."""
    ends = np.cumsum(sizes).tolist()
    return [sound[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def passed_by(gate: SpeechGate, sound: bytes, size: int) -> Passed:
    """The gate's output for audio in pieces of that many bytes."""
    return [passed for at in range(0, len(sound), size) for passed in gate.push(sound[at : at + size])]


def utterances_in(passed: Passed) -> list[bytes]:
    """The audio of each utterance."""
    return [b"".join(part) for is_sound, part in groupby(passed, lambda one: one is not None) if is_sound]  # type: ignore[arg-type]


def expected(case: Case, sound: bytes, rate: int = RATE) -> list[bytes]:
    """The utterances of the case, as slices of the audio."""
    at_ms = rate * 2 // 1_000
    return [sound[start * at_ms : end * at_ms] for start, end in case.utterances]
