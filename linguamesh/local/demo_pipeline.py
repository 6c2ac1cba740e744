"""A simulated pipeline for demo nodes: no model, no recognition; every text it returns is marked as simulated.

Deterministic: the same utterance takes the same time and gives the same texts. Time grows with the audio's length, as
it would on a real node, with a small variation that is seeded by the utterance.
"""

from __future__ import annotations

import asyncio
import math
import random
from array import array
from dataclasses import dataclass
from typing import Final

from linguamesh.node.job import Job, Result

#: Milliseconds per second of audio and a fixed part, for each stage, at the default speed.
ASR_MS_PER_S: Final = 60.0
NMT_MS: Final = 25.0
TTS_MS_PER_S: Final = 20.0
#: The default speed: milliseconds per second of audio, over all stages. Another speed scales the fixed parts too.
MS_PER_S: Final = ASR_MS_PER_S + TTS_MS_PER_S
#: The duration of a stage varies by up to this share.
VARIATION: Final = 0.15
#: Longer audio counts as this long, so that a simulated job ends soon.
AUDIO_S_MAX: Final = 60.0

TONE_HZ: Final = 440.0
TONE_S: Final = 0.25
TONE_RATE: Final = 16_000
_TONE_LOUDNESS: Final = 6_000  # of 32,767
_FADE_S: Final = 0.02
#: Length of one Opus packet on the wire.
_OPUS_PACKET_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class DemoPace:
    """The duration of each stage of one utterance."""

    asr_ms: int
    nmt_ms: int
    tts_ms: int


def pace_of(audio_s: float, seed: str, ms_per_s: float = MS_PER_S) -> DemoPace:
    """The durations for an utterance of that length at that speed; deterministic for a seed."""
    rng = random.Random(seed)
    length_s = min(audio_s, AUDIO_S_MAX)
    slowness = ms_per_s / MS_PER_S

    def varied(milliseconds: float) -> int:
        return max(1, round(slowness * milliseconds * rng.uniform(1 - VARIATION, 1 + VARIATION)))

    return DemoPace(varied(20 + ASR_MS_PER_S * length_s), varied(NMT_MS), varied(10 + TTS_MS_PER_S * length_s))


def audio_seconds(audio: bytes, audio_format: str, sample_rate: int) -> float:
    """Duration of PCM16, or of Opus packets, each after its length in 2 bytes."""
    if audio_format.lower() != "opus":
        return len(audio) / 2 / sample_rate
    packets = position = 0
    while position + 2 <= len(audio):
        position += 2 + int.from_bytes(audio[position : position + 2], "little")
        packets += 1
    return packets * _OPUS_PACKET_S


def tone(seconds: float = TONE_S, rate: int = TONE_RATE, hertz: float = TONE_HZ) -> bytes:
    """A soft tone as PCM16, little-endian: the simulated speech."""
    count, fade = int(seconds * rate), max(1, int(_FADE_S * rate))
    samples = array("h")
    for index in range(count):
        loudness = _TONE_LOUDNESS * min(1.0, index / fade, (count - index) / fade)
        samples.append(round(loudness * math.sin(2 * math.pi * hertz * index / rate)))
    return b"".join(sample.to_bytes(2, "little", signed=True) for sample in samples)


_TONE: Final = tone()


async def translate(job: Job, ms_per_s: float = MS_PER_S) -> Result:
    """A node's handler: takes as long as a real pipeline might, and returns texts that are marked as simulated."""
    audio_s = audio_seconds(job.audio, job.audio_format, job.sample_rate)
    pace = pace_of(audio_s, f"{job.session_id}/{job.utterance_index}", ms_per_s)
    text = f"[simulated] {audio_s:.1f} s of {job.src} speech"
    await asyncio.sleep(pace.asr_ms / 1_000)
    await job.partial(text, is_final=True)
    await asyncio.sleep((pace.nmt_ms + pace.tts_ms) / 1_000)
    return Result(
        text_asr=text,
        text_translated=f"{text}, in {job.tgt}",
        tts_audio=_TONE,
        timings={
            "asr_ms": pace.asr_ms,
            "nmt_ms": pace.nmt_ms,
            "tts_ms": pace.tts_ms,
            "total_ms": pace.asr_ms + pace.nmt_ms + pace.tts_ms,
        },
    )
