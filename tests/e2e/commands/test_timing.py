"""`lingua translate --timing`: the stages of an utterance on its way through real processes."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import pytest

from mesh.words import LatencyStage
from tests.support.processes.lingua_command import lingua_up


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    path = tmp_path / "speech.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * 16_000))
    return path


def test_every_stage_is_reported_if_it_is_asked_for(tmp_path: Path, wav: Path) -> None:
    names = [stage.value for stage in LatencyStage]
    with lingua_up(tmp_path, "--nodes", "1", "--selectors", "1") as up:
        done = up.translate(wav, "--timing")
        assert done.returncode == 0, done.stderr
        assert [line.split()[0] for line in done.stdout.splitlines()[-len(names) - 1 :]] == [*names, "sum"]

        done = up.translate(wav, "--timing", "--json")
        stages = json.loads(done.stdout)["stages"]
        assert list(stages) == names
        assert all(microseconds >= 0 for microseconds in stages.values())
        assert stages[LatencyStage.NODE] > 0

        done = up.translate(wav, "--timing", "--stream")
        assert done.returncode == 0, done.stderr
        assert "on the node" in done.stdout

        done = up.translate(wav, "--json")
        assert "stages" not in json.loads(done.stdout)
