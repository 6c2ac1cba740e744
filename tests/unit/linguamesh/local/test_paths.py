"""Ports and directories of a local stack."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from linguamesh.local import paths
from linguamesh.local.paths import SOCKET_DIRECTORY_MAX, PortGuard, StateDirectory
from mesh.errors import ConfigError


def listener(port: int, *, share: bool) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if share:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen()
    return sock


def test_a_guarded_port_takes_edges_but_no_second_stack() -> None:
    guard = PortGuard("127.0.0.1", 0)
    with listener(guard.port, share=True), listener(guard.port, share=True):
        with pytest.raises(ConfigError, match=f"port {guard.port} .* cannot be used"):
            PortGuard("127.0.0.1", guard.port)
        with socket.create_connection(("127.0.0.1", guard.port), timeout=5):
            pass
    with pytest.raises(ConfigError):  # also while the edges are not there yet, or are starting again
        PortGuard("127.0.0.1", guard.port)
    guard.close()
    PortGuard("127.0.0.1", guard.port).close()


@pytest.mark.parametrize("share", [True, False])
def test_a_port_that_anybody_listens_on_is_refused(share: bool) -> None:
    with listener(0, share=share) as other, pytest.raises(ConfigError):
        PortGuard("127.0.0.1", other.getsockname()[1])


def test_a_temporary_directory_goes_away() -> None:
    with StateDirectory(None) as place:
        place.log("edge-0").write_text("x")
        assert not place.is_kept
        assert len(str(place.sockets)) <= SOCKET_DIRECTORY_MAX
    assert not place.path.exists()
    assert not place.sockets.exists()


def test_a_directory_of_the_user_stays_and_is_not_shared(tmp_path: Path) -> None:
    wanted = tmp_path / "state"
    with StateDirectory(str(wanted)) as place:
        place.log("edge-0").write_text("x")
        with pytest.raises(ConfigError, match="used by another"):
            StateDirectory(str(wanted))
    assert (wanted / "logs" / "edge-0.log").read_text() == "x"
    with StateDirectory(str(wanted)):
        pass


def test_a_long_path_gets_its_sockets_elsewhere(tmp_path: Path) -> None:
    with StateDirectory(str(tmp_path / ("d" * 120))) as place:
        assert place.path.exists()
        assert len(str(place.sockets)) <= SOCKET_DIRECTORY_MAX
    assert place.path.exists()
    assert not place.sockets.exists()


def test_a_directory_that_cannot_be_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot use the state directory"):
        StateDirectory(str(tmp_path / "file"))


def test_what_a_killed_stack_left_is_removed_and_what_lives_is_not(
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
