"""`python -m selector.operators.replay` and what it computes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mesh.config.weights import Weights
from selector.operators import replay
from selector.operators.core.recording_format import pack, unpack
from selector.operators.core.replay_check import check, compare
from tests.support.simulation.selector import PLENTY, lived


def test_what_was_recorded_is_exact() -> None:
    world = lived(11, batches=40, per_batch=5)
    exact = check(unpack(pack(world.taken(), PLENTY)))
    assert (exact.decisions, exact.different, list(exact.batches)) == (200, 0, [])


def test_what_was_tampered_with_is_counted_and_named() -> None:
    recording = unpack(pack(lived(11, batches=40, per_batch=5).taken(), PLENTY))
    recording.batches[3].choice.scores[1, 0] += 1
    recording.batches[3].choice.terms[1, 0, 0] += 1.0
    recording.batches[9].choice.removed[0, 0] += 1
    exact = check(recording)
    assert (exact.different, list(exact.batches)) == (2, [4, 10])


def test_the_same_weights_change_nothing() -> None:
    found = compare(lived(12, batches=40, per_batch=5).taken(), Weights())
    assert (found.decisions, found.moved, found.gained_ms, found.lost_ms) == (200, 0, 0, 0)
    assert found.before == found.after


def test_other_weights_move_jobs_for_a_gain_by_their_own_measure() -> None:
    world = lived(13, batches=60, per_batch=6)
    found = compare(world.taken(), Weights(busy=0.0, busy_ms=0.0, load_ms=5_000.0))
    assert found.moved > 30
    assert found.gained_ms > 0
    assert found.lost_ms > 0
    assert found.before.total() == found.after.total() > 200
    shares = found.shares(10)
    assert len(shares) == 10
    assert any(before != after for _, before, after in shares)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "recording"
    path.write_bytes(pack(lived(14, batches=20, per_batch=4).taken(), PLENTY))
    return path


def test_the_command_tells_what_other_weights_change(
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


def test_the_command_fails_if_a_decision_comes_out_otherwise(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tampered = unpack(recording.read_bytes())
    tampered.batches[5].choice.rows[0, 0] += 1
    recording.write_bytes(pack(tampered, PLENTY))
    assert replay.main(["--recording", str(recording)]) == 1
    assert "1 come out otherwise than recorded (batches 6)" in capsys.readouterr().out


def test_a_selector_that_decided_nothing_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
        (["--url", "http://127.0.0.1:1"], 69, "connection refused"),
        (["--url", "nonsense"], 69, "is not an address"),
    ],
)
def test_what_cannot_be_done_is_said(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str
) -> None:
    bad = tmp_path / "bad"
    bad.write_text("busy = [")
    filled = [one.format(good=recording, bad=bad) for one in arguments]
    assert replay.main(filled) == code
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1:1", "error: no mesh running there: connection refused at http://127.0.0.1:1"),
        ("http://[::1", "error: no mesh running there: http://[::1 is not an address"),
        ("127.0.0.1:5010", "error: no mesh running there: 127.0.0.1:5010 is not an address"),
    ],
)
def test_a_mesh_that_is_not_there_is_told_in_one_line(capsys: pytest.CaptureFixture[str], url: str, says: str) -> None:
    assert replay.main(["--url", url]) == 69
    told = capsys.readouterr().err
    assert told.startswith(says) and told.endswith("Start one with `lingua up`.\n") and told.count("\n") == 1
