"""`lingua translate`: send a WAV file through a running mesh and print what comes back."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import wave
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from linguamesh.errors import SessionError, Unreachable
from linguamesh.session import Session, Translation
from mesh.errors import ConfigError
from mesh.process import EXIT_CONFIG, EXIT_FAILED, EXIT_OK, EXIT_UNREACHABLE

#: What fits into one message of the mesh (2 MiB) once it is base64.
AUDIO_BYTES_MAX: Final = 1_500_000


@dataclass(frozen=True, slots=True)
class Sound:
    """PCM16 mono, little-endian."""

    pcm: bytes
    sample_rate: int


def run(options: argparse.Namespace) -> int:
    """Translate one file; the exit code."""
    try:
        sound = read_wav(Path(options.file))
        translation = asyncio.run(_translate(options, sound))
    except ConfigError as error:
        return _fail(str(error), EXIT_CONFIG)
    except Unreachable as error:
        return _fail(f"no mesh running there: {error}. Start one with `lingua up`.", EXIT_UNREACHABLE)
    except SessionError as error:
        return _fail(f"{error}. {error.hint}".strip(), EXIT_FAILED)
    print(json.dumps(as_dict(translation)) if options.json else as_text(translation, options.src, options.tgt))
    return EXIT_OK


def read_wav(path: Path) -> Sound:
    """The sound in a WAV file, stereo mixed to mono; ConfigError, in one line, if there is none."""
    try:
        with wave.open(str(path), "rb") as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            # One frame more than fits is enough to see that it does not.
            frames = file.readframes(AUDIO_BYTES_MAX // 2 + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (wave.Error, EOFError) as error:
        raise ConfigError(f"{path} is not a PCM WAV file: {str(error) or 'it ends too early'}") from None
    if width != 2 or channels not in (1, 2):
        raise ConfigError(f"{path} has {width * 8} bits and {channels} channels; 16 bits, mono or stereo, are needed")
    pcm = frames if channels == 1 else _mixed(frames)
    if not pcm:
        raise ConfigError(f"{path} holds no sound")
    if len(pcm) > AUDIO_BYTES_MAX:
        seconds = AUDIO_BYTES_MAX / 2 / rate
        raise ConfigError(f"{path} is too long for one utterance: at most {seconds:.0f} s at {rate} Hz")
    return Sound(pcm, rate)


def _mixed(frames: bytes) -> bytes:
    """Stereo to mono: the mean of left and right."""
    samples = array("h", frames[: len(frames) // 4 * 4])
    if sys.byteorder == "big":
        samples.byteswap()
    mono = array("h", [(left + right) // 2 for left, right in zip(samples[::2], samples[1::2], strict=True)])
    if sys.byteorder == "big":
        mono.byteswap()
    return mono.tobytes()


async def _translate(options: argparse.Namespace, sound: Sound) -> Translation:
    async with Session(options.url, src=options.src, tgt=options.tgt) as session:
        return await session.translate(sound.pcm, sample_rate=sound.sample_rate, timeout=options.timeout)


def as_dict(translation: Translation) -> dict[str, Any]:
    """What --json prints."""
    return {
        "text_asr": translation.text_asr,
        "text_translated": translation.text_translated,
        "tts_format": translation.tts_format,
        "tts_bytes": len(translation.tts_audio),
        "job_id": translation.job_id,
        "trace_id": translation.trace_id,
        "total_ms": translation.total_ms,
        "service_timings": translation.service_timings,
        "network_timings": translation.network_timings,
    }


def as_text(translation: Translation, src: str, tgt: str) -> str:
    """Two lines of text and one of timing."""
    return (
        f"{src}: {translation.text_asr}\n"
        f"{tgt}: {translation.text_translated}\n"
        f"{translation.total_ms} ms in total; node: {_timings(translation.service_timings)}; "
        f"network: {_timings(translation.network_timings)}; speech: {len(translation.tts_audio)} bytes of "
        f"{translation.tts_format}"
    )


def _timings(timings: dict[str, int]) -> str:
    return ", ".join(f"{name.removesuffix('_ms')} {value} ms" for name, value in timings.items()) or "not told"


def _fail(text: str, code: int) -> int:
    print(f"error: {text}", file=sys.stderr)
    return code
