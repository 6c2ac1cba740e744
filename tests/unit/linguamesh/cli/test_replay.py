"""`lingua replay` without a mesh and without a process; with both: tests/loopback/sdk/test_cli_replay.py."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from linguamesh.cli import replay

URL = "http://127.0.0.1:5010"


class FakeOperator:
    """A mesh of two selectors. The name of one of them is a path."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        assert url == URL

    def query(self, *path: str) -> dict[str, list[str]]:
        assert path == ("selectors",)
        return {"selectors": ["selector:a:1", "../../selector:b:1"]}

    def fetch(self, *path: str, selector: str) -> bytes:
        assert path == ("recording",)
        return selector.encode()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Arguments of the replay that was started, with the content of each recording instead of its path."""
    temporary = tmp_path / "a" / "b"  # a name that escapes from its directory stays in `tmp_path`
    temporary.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    arguments: list[list[str]] = []

    def start(command: list[str], **_: Any) -> SimpleNamespace:
        assert command[1:4] == ["-P", "-m", "selector.operators.replay"]
        paths = [Path(argument) for argument in command[4:]]
        assert len({path.parent for path in paths if path.is_absolute()}) <= 1, "all are in the same directory"
        arguments.append([path.read_text() if path.is_absolute() else str(path) for path in paths])
        return SimpleNamespace(returncode=7)

    monkeypatch.setattr(replay.subprocess, "run", start)
    monkeypatch.setattr(replay, "Operator", FakeOperator)
    return arguments


@pytest.fixture
def run() -> Callable[..., int]:
    def run(**options: Any) -> int:
        defaults = {"url": URL, "recording": None, "weights": None, "json": False}
        return replay.run(argparse.Namespace(**{**defaults, **options}))

    return run


def test_recording_of_every_selector_is_replayed_whatever_its_name(
    started: list[list[str]], run: Callable[..., int]
) -> None:
    assert run() == 7, "the exit code of the replay"
    assert started == [["selector:a:1", "../../selector:b:1"]]


def test_options_are_passed_on_and_a_file_needs_no_mesh(
    started: list[list[str]], run: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(replay, "Operator")
    assert run(recording="file", weights="other.toml", json=True) == 7
    assert started == [["--weights", "other.toml", "--json", "--recording", "file"]]
