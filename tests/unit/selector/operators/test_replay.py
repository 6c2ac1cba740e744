"""`python -m selector.operators.replay`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from selector.operators import replay
from selector.operators.core.recording_format import pack, unpack
from tests.support.simulation.selector import PLENTY, lived


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "recording"
    path.write_bytes(pack(lived(14, batches=20, per_batch=4).taken(), PLENTY))
    return path


def test_command_prints_differences_under_other_weights(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "new.toml"
    weights.write_text("[weights]\nbusy = 0.0\nbusy_ms = 0.0\nload_ms = 5000.0\n")
    assert replay.main(["--recording", str(recording), "--weights", str(weights)]) == 0
    text = capsys.readouterr().out
    assert "80 decisions" in text
    assert "bit for bit" in text
    assert "would choose another node" in text
    assert replay.main(["--recording", str(recording), "--weights", str(weights), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["decisions"], answer["different"], answer["weights_versions"]) == (80, 0, [7])
    assert answer["moved"] > 0
    assert len(answer["shares"]) == 10


def test_command_fails_when_a_decision_differs(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tampered = unpack(recording.read_bytes())
    tampered.batches[5].choice.rows[0, 0] += 1
    recording.write_bytes(pack(tampered, PLENTY))
    assert replay.main(["--recording", str(recording)]) == 1
    assert "1 come out otherwise than recorded (batches 6)" in capsys.readouterr().out


def test_empty_recording_has_no_decisions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert replay.main(["--recording", str(tmp_path / "empty")]) == 0
    assert "0 decisions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--recording", "/nowhere"], 2, "cannot read /nowhere"),
        (["--recording", "{bad}"], 1, "no recording"),
        (["--recording", "{good}", "--weights", "/nowhere"], 2, "cannot read /nowhere"),
        (["--recording", "{good}", "--weights", "{bad}"], 2, "bad"),
    ],
)
def test_unreadable_files_are_an_error_with_its_exit_code(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str
) -> None:
    bad = tmp_path / "bad"
    bad.write_text("busy = [")
    filled = [one.format(good=recording, bad=bad) for one in arguments]
    assert replay.main(filled) == code
    assert says in capsys.readouterr().err


def test_several_recordings_are_listed_by_the_name_of_their_file(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "selector:s2:1"
    other.write_bytes(b"")
    assert replay.main([str(recording), str(other), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["selectors"]
    assert [(one["recording"], one["decisions"]) for one in found] == [("recording", 80), ("selector:s2:1", 0)]
