"""`lingua translate`: send or stream a WAV file to a running mesh and print the results."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from linguamesh.cli.errors import fail
from linguamesh.cli.waterfall import waterfall
from linguamesh.errors import SessionError, Unreachable
from linguamesh.session import Session, Translation
from linguamesh.session.stream import WavError, mix_to_mono, open_wav
from mesh.errors import ConfigError
from mesh.process import EXIT_CONFIG, EXIT_FAILED, EXIT_OK, EXIT_UNREACHABLE
from mesh.words import MissingReason

#: Fits into one message of the mesh (2 MiB) as base64.
AUDIO_BYTES_MAX: Final = 1_500_000


@dataclass(frozen=True, slots=True)
class WavAudio:
    """PCM16 mono, little-endian."""

    pcm: bytes
    sample_rate: int


def run(options: argparse.Namespace) -> int:
    """Translate one file; the exit code."""
    path = Path(options.file)
    try:
        if options.stream:
            return asyncio.run(_stream(options, path))
        translation = asyncio.run(_translate(options, read_wav(path)))
    except (ConfigError, WavError) as error:
        return fail(str(error), EXIT_CONFIG)
    except Unreachable as error:
        return fail(f"no mesh running there: {error}. Start one with `lingua up`.", EXIT_UNREACHABLE)
    except SessionError as error:
        return fail(f"{error}. {error.hint}".strip(), EXIT_FAILED)
    print(json.dumps(as_dict(translation)) if options.json else _printed(translation, options))
    return EXIT_OK


def read_wav(path: Path) -> WavAudio:
    """The audio of a WAV file, stereo mixed to mono; ConfigError, in one line, if it is not usable."""
    try:
        with open_wav(path) as file:
            channels, rate = file.getnchannels(), file.getframerate()
            # One frame beyond the bound is enough to detect that the file is too long.
            frames = file.readframes(AUDIO_BYTES_MAX // 2 + 1)
    except WavError as error:
        raise ConfigError(str(error)) from None
    except (wave.Error, EOFError) as error:
        raise ConfigError(f"{path} is not a PCM WAV file: {str(error) or 'it ends too early'}") from None
    pcm = frames if channels == 1 else mix_to_mono(frames)
    if not pcm:
        raise ConfigError(f"{path} holds no sound")
    if len(pcm) > AUDIO_BYTES_MAX:
        seconds = AUDIO_BYTES_MAX / 2 / rate
        raise ConfigError(f"{path} is too long for one utterance: at most {seconds:.0f} s at {rate} Hz; try --stream")
    return WavAudio(pcm, rate)


async def _translate(options: argparse.Namespace, audio: WavAudio) -> Translation:
    async with Session(options.url, src=options.src, tgt=options.tgt, stage_timings=options.timing or None) as session:
        return await session.translate(audio.pcm, sample_rate=audio.sample_rate, timeout=options.timeout)


async def _stream(options: argparse.Namespace, path: Path) -> int:
    """Stream the file and print results as they arrive; exit code 1 if one of them failed, or none arrived."""
    with open_wav(path) as file:
        rate = file.getframerate()
        if not file.getnframes():
            raise WavError(f"{path} holds no sound")
    results: list[Translation] = []

    async def print_results(session: Session) -> None:
        async for translation in session.results():
            results.append(translation)
            print(_streamed(translation, options), flush=True)

    session = Session(
        options.url,
        src=options.src,
        tgt=options.tgt,
        sample_rate=rate,
        close_timeout=options.timeout,
        stage_timings=options.timing or None,
    )
    async with session:
        printing = asyncio.create_task(print_results(session))
        await session.stream(path)
    await printing
    if session.lost:
        print("warning: the mesh lost the session; results may be missing or duplicated", file=sys.stderr)
    if not results:
        return fail(f"no result came within {options.timeout:g} s of the file's end", EXIT_FAILED)
    # An utterance without speech is no failure.
    failed = any(
        result.error is not None and result.error.details.get("reason") != MissingReason.SILENCE_DETECTED
        for result in results
    )
    return EXIT_FAILED if failed else EXIT_OK


def _streamed(translation: Translation, options: argparse.Namespace) -> str:
    error = translation.error
    if options.json:
        fields = {"utterance_index": translation.utterance_index, **as_dict(translation)}
        return json.dumps({**fields, "error": {"code": error.code, "message": error.message}} if error else fields)
    if error:
        return f"[{translation.utterance_index}] {error}"
    return f"[{translation.utterance_index}] {_printed(translation, options)}"


def _printed(translation: Translation, options: argparse.Namespace) -> str:
    text = as_text(translation, options.src, options.tgt)
    return f"{text}\n{waterfall(translation.stages)}" if options.timing else text


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
        **({"stages": translation.stages} if translation.stages else {}),
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
    return ", ".join(f"{name.removesuffix('_ms')} {value} ms" for name, value in timings.items()) or "unknown"
