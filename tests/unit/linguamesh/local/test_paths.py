"""The state directory of a local stack; its port guard is in tests/loopback."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from linguamesh.local import paths
from linguamesh.local.paths import SOCKET_DIRECTORY_MAX, StateDirectory
from mesh.errors import ConfigError


def test_temporary_directory_is_removed() -> None:
    with StateDirectory(None) as directory:
        directory.log("edge-0").write_text("x")
        assert not directory.is_kept
        assert len(str(directory.sockets)) <= SOCKET_DIRECTORY_MAX
    assert not directory.path.exists()
    assert not directory.sockets.exists()


def test_directory_of_the_user_is_kept_and_locked(tmp_path: Path) -> None:
    wanted = tmp_path / "state"
    with StateDirectory(str(wanted)) as directory:
        directory.log("edge-0").write_text("x")
        with pytest.raises(ConfigError, match="used by another"):
            StateDirectory(str(wanted))
    assert (wanted / "logs" / "edge-0.log").read_text() == "x"
    with StateDirectory(str(wanted)):
        pass


def test_sockets_of_a_long_path_are_in_a_temporary_directory(tmp_path: Path) -> None:
    with StateDirectory(str(tmp_path / ("d" * 120))) as directory:
        assert directory.path.exists()
        assert len(str(directory.sockets)) <= SOCKET_DIRECTORY_MAX
    assert directory.path.exists()
    assert not directory.sockets.exists()


def test_unusable_directory_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot use the state directory"):
        StateDirectory(str(tmp_path / "file"))


def test_directory_of_a_killed_stack_is_removed_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(paths, "SOCKET_DIRECTORY_MAX", 1_000)
    monkeypatch.setattr(paths, "ABANDONED_AFTER_S", 0)
    abandoned = tmp_path / f"{paths.TEMPORARY_PREFIX}x"
    (abandoned / "logs").mkdir(parents=True)
    (abandoned / paths.LOCK_NAME).write_text("")
    stranger = tmp_path / f"{paths.TEMPORARY_PREFIX}y"  # no lock: not one of ours
    stranger.mkdir()
    with StateDirectory(None) as first, StateDirectory(None) as second:
        assert first.path.exists()
        assert second.path.exists()
        assert not abandoned.exists()
        assert stranger.exists()
