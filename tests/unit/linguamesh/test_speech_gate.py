"""The speech gate. Its twin for web pages runs the same table in tests/browser."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linguamesh.speech_gate import SpeechGate, speech_of
from tests.support.builders.speech import (
    CASES,
    QUIET,
    RATE,
    VOICE,
    Passed,
    expected,
    passed_by,
    sound_of,
    utterances_in,
)

#: Bytes of one millisecond, at 16 kHz.
MS = RATE * 2 // 1_000


@pytest.mark.parametrize("piece_ms", [1, 100, 20_000])
@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
@pytest.mark.parametrize("name", CASES)
def test_gate_passes_exactly_the_speech(name: str, rate: int, piece_ms: int) -> None:
    case = CASES[name]
    sound = sound_of(case.script, rate)
    passed = passed_by(SpeechGate(sample_rate=rate, **case.options), sound, piece_ms * rate // 1_000 * 2)
    assert utterances_in(passed) == expected(case, sound, rate)
    assert passed.count(None) == len(case.utterances) - case.is_open


@pytest.mark.parametrize("rate", [1_000, 11_025, 44_100, 192_000])
def test_utterance_is_detected_at_any_sample_rate(rate: int) -> None:
    sound = sound_of([(1_000, QUIET), (500, VOICE), (1_500, QUIET)], rate)
    passed = passed_by(SpeechGate(sample_rate=rate), sound, 998)
    (utterance,) = utterances_in(passed)
    assert passed[-1] is None and utterance in sound
    assert 1.05 * rate * 2 <= len(utterance) <= 1.15 * rate * 2


def test_open_gate_passes_audio_at_once() -> None:
    gate = SpeechGate()
    gate.push(sound_of([(100, VOICE)]))
    for size in (2, 100, 638, 640, 642):
        sound = sound_of([(100, VOICE)])[:size]
        assert gate.push(sound) == [sound]


def test_frame_that_opens_the_gate_is_passed_at_once() -> None:
    gate = SpeechGate()
    quiet, word = sound_of([(1_000, QUIET)]), sound_of([(60, VOICE)])
    for _ in range(3):
        gate.push(quiet)
        assert gate.push(word) == [quiet[-300 * MS :] + word]


def test_buffered_silence_is_passed_with_the_next_word() -> None:
    gate = SpeechGate()
    silence, word = sound_of([(680, QUIET)]), sound_of([(20, VOICE)], seed=1)
    gate.push(sound_of([(100, VOICE)]))
    assert gate.push(silence) == [silence[: 300 * MS]]
    assert gate.push(word) == [silence[300 * MS :] + word]


def test_half_a_sample_waits_for_its_other_half() -> None:
    gate = SpeechGate()
    sound = sound_of([(100, VOICE)])
    gate.push(sound)
    assert [gate.push(sound[:3]), gate.push(sound[3:4]), gate.push(sound[4:5])] == [[sound[:2]], [sound[2:4]], []]


def test_buffered_audio_is_bounded() -> None:
    gate = SpeechGate(pause_ms=10_000)
    for script in ([(60_000, QUIET)], [(500, VOICE), (9_000, QUIET)]):
        passed_by(gate, sound_of(script), 1_000)
        assert len(gate._buffered) <= 10_000 * MS


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pause_ms": 19}, "pause_ms is 19; it is from 20 to 10000"),
        ({"pause_ms": 10_001}, "pause_ms is 10001"),
        ({"sample_rate": 999}, "sample_rate is 999; it is from 1000 to 192000"),
        ({"level_min": 0}, "level_min is 0; it is from 1 to 32767"),
        ({"level_min": float("nan")}, "level_min is nan"),
    ],
)
def test_option_out_of_range_is_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SpeechGate(**options)


# --- random speech ----------------------------------------------------------------------------------

#: Words long enough to be detected, and pauses that clearly do or do not end an utterance.
WORD = st.tuples(st.integers(80, 1_500), st.integers(2_000, 32_767))
PAUSE = st.tuples(st.integers(1, 650) | st.integers(750, 2_500), st.integers(0, 40))


@settings(deadline=None, max_examples=150)
@given(PAUSE, st.lists(st.tuples(WORD, PAUSE), max_size=6), st.integers(0, 2**32 - 1))
def test_every_word_is_passed_and_every_pause_ends_one_utterance(
    first: tuple[int, int], spoken: list[tuple[tuple[int, int], tuple[int, int]]], seed: int
) -> None:
    script = [first, *(part for word_and_pause in spoken for part in word_and_pause)]
    sound = sound_of(script, seed=seed)
    passed, consumed = passed_at_random(sound, random.Random(seed))

    # The output consists of stretches of the input, unchanged and in order, with one end between any two.
    places: list[tuple[int, int]] = []
    for utterance in utterances_in(passed):
        start = sound.find(utterance, places[-1][1] if places else 0)
        assert start >= 0 and start % 2 == 0
        places.append((start, start + len(utterance)))
    assert all(one is not None or passed[place - 1] is not None for place, one in enumerate(passed))
    assert passed.count(None) in (len(places), len(places) - 1)

    # Each word is in one utterance, with the audio before and after it.
    at = len(sound_of([first]))
    for (word_ms, _), (pause_ms, _) in spoken:
        word_end = at + word_ms * MS
        start, end = next(place for place in places if place[0] <= at and word_end <= place[1])
        before = max((other for _, other in places if other <= at), default=0)
        assert start <= max(before, at - 280 * MS)
        assert end >= word_end + min(280, pause_ms) * MS
        at = word_end + pause_ms * MS

    # An end is reported when the pause is over, and not before.
    ends = [at for one, at in zip(passed, consumed, strict=True) if one is None]
    assert all(reported >= end + 400 * MS for reported, (_, end) in zip(ends, places, strict=False))
    assert len(ends) == sum(pause_ms >= 750 for _, (pause_ms, _) in spoken)


def passed_at_random(sound: bytes, chance: random.Random) -> tuple[Passed, list[int]]:
    """The output for pieces of random size, and the number of bytes the gate had consumed for each."""
    gate = SpeechGate()
    passed: Passed = []
    consumed: list[int] = []
    at = 0
    while at < len(sound):
        size = chance.choice([1, 2, 63, 640, 641, 3_200, 20_000])
        new = gate.push(sound[at : at + size])
        at += size
        passed += new
        consumed += [at] * len(new)
    return passed, consumed


async def test_speech_of_accepts_pcm16_and_no_other_format() -> None:
    sound = sound_of([(500, QUIET), (200, VOICE), (1_000, QUIET), (200, VOICE), (1_000, QUIET)])
    passed = [one async for one in speech_of(sound)]
    assert utterances_in(passed) == [sound[200 * MS : 1_000 * MS], sound[1_400 * MS : 2_200 * MS]]
    with pytest.raises(TypeError, match="as bytes"):
        async for _ in speech_of(iter([[b"a packet"]])):
            pass
