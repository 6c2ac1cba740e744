"""`lingua translate` and `lingua node` as a user types them, without a mesh and against a wrong one."""

from __future__ import annotations

import wave
from pathlib import Path

import pytest

from tests.support.processes.lingua_command import lingua


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    path = tmp_path / "speech.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(3_200))
    return path


def test_no_mesh_running(wav: Path, free_port: int) -> None:
    done = lingua("translate", str(wav), "--to", "es", "--url", f"ws://127.0.0.1:{free_port}")
    assert done.returncode == 69
    assert done.stderr.startswith("error: no mesh running there: cannot connect to ")
    assert "connection refused" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [("explain", "job-1"), ("weights", "show"), ("node", "drain", "node-1")])
def test_queries_without_a_mesh(free_port: int, words: tuple[str, ...]) -> None:
    done = lingua(*words, "--url", f"http://127.0.0.1:{free_port}")
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.startswith("error: no mesh running there: cannot connect to ")
    assert done.stderr.count("\n") == 1


def test_an_address_that_is_no_websocket(wav: Path, free_port: int) -> None:
    done = lingua("translate", str(wav), "--to", "es", "--url", f"ftp://127.0.0.1:{free_port}")
    assert done.returncode == 69
    assert "is not a WebSocket address" in done.stderr


@pytest.mark.parametrize("name", ["absent.wav", "words.wav"])
def test_no_sound(tmp_path: Path, name: str) -> None:
    (tmp_path / "words.wav").write_text("these are words")
    done = lingua("translate", str(tmp_path / name), "--to", "es")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_wrong_usage_is_2() -> None:
    assert lingua("translate").returncode == 2
    assert lingua("frobnicate").returncode == 2
    assert lingua("node", "--count", "0").returncode == 2


def test_roles_pass_their_options_on() -> None:
    for role in ("broker", "edge", "selector"):
        done = lingua(role, "--help")
        assert done.returncode == 0, done.stderr
        assert "--name" in done.stdout
        assert lingua(role, "--nonsense").returncode == 2


def test_version_and_help() -> None:
    assert lingua("version").stdout.count(".") == 2
    done = lingua("--help")
    commands = ("up", "broker", "edge", "selector", "node", "translate", "explain", "weights", "replay", "version")
    for command in commands:
        assert f"\n    {command}" in done.stdout
