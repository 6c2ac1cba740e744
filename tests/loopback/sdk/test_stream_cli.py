"""`lingua translate --stream` against a played mesh."""

from __future__ import annotations

import argparse
import asyncio
import json
import wave
from array import array
from pathlib import Path

import pytest

from linguamesh.cli import translate
from linguamesh.cli.main import build_parser
from mesh.process import EXIT_CONFIG, EXIT_FAILED, EXIT_OK, EXIT_UNREACHABLE
from tests.support.fakes.played_mesh import played_mesh, recv_close
from tests.support.fakes.scripted_server import Peer, scripted_server


def options(path: Path, url: str, *arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(["translate", str(path), "--to", "es", "--url", url, "--stream", *arguments])


def write(path: Path, samples: list[int], *, rate: int = 16_000, channels: int = 1) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(array("h", samples).tobytes())
    return path


async def test_file_of_any_length_is_streamed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = [number % 1_000 for number in range(9_999)]
    path = write(tmp_path / "a.wav", [sample for sample in samples for _ in "LR"], channels=2)
    async with played_mesh() as mesh:
        assert await translate._stream(options(path, mesh.urls[0], "--json"), path) == EXIT_OK
    (line,) = capsys.readouterr().out.splitlines()
    printed = json.loads(line)
    assert printed["utterance_index"] == 0 and "error" not in printed
    assert printed["text_asr"].split() == [str(sample) for sample in samples]


async def test_failures_are_printed_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.wav", [1, 2, 3], rate=8_000)

    async def answer(peer: Peer, reason: str) -> None:
        init = await peer.recv("session_init")
        assert init["sample_rate"] == 8_000
        await peer.send("session_init_ack", session_id="s-1", trace_id="t-1", resume_token="token")
        await recv_close(peer)
        result = {"job_id": "", "text_asr": "hi", "text_translated": "hola", "tts_audio": "", "tts_format": "pcm16"}
        await peer.send("translation_result", session_id="s-1", utterance_index=0, trace_id="t", **result)
        await peer.send(
            "missing_result", session_id="s-1", utterance_index=1, reason=reason, created_at_ms=1, last_seq=1
        )
        await peer.send("session_close_ack", session_id="s-1")

    for reason, code in (("silence_detected", EXIT_OK), ("job_failed", EXIT_FAILED)):
        async with scripted_server() as server:
            running = asyncio.create_task(translate._stream(options(path, server.url), path))
            await answer(await server.peer(), reason)
            assert await running == code
        lines = capsys.readouterr().out.splitlines()
        assert lines[:2] == ["[0] auto: hi", "es: hola"]
        assert lines[-1] == f"[1] MISSING_RESULT: {reason}"


def test_unusable_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    silent = write(tmp_path / "silent.wav", [])
    absent = tmp_path / "absent.wav"
    good = write(tmp_path / "a.wav", [1])
    assert translate.run(options(silent, "ws://127.0.0.1:1")) == EXIT_CONFIG
    assert translate.run(options(absent, "ws://127.0.0.1:1")) == EXIT_CONFIG
    assert translate.run(options(good, "ws://127.0.0.1:1")) == EXIT_UNREACHABLE
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["error"] * 3
    assert "holds no sound" in lines[0] and "cannot read" in lines[1] and "lingua up" in lines[2]


async def test_stream_without_results_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.wav", [1])
    async with scripted_server() as server:
        running = asyncio.create_task(translate._stream(options(path, server.url, "--timeout", "0.1"), path))
        peer = await server.peer()
        await peer.recv("session_init")
        await peer.send("session_init_ack", session_id="s-1", trace_id="t-1")
        assert await running == EXIT_FAILED
    assert "no result came" in capsys.readouterr().err
