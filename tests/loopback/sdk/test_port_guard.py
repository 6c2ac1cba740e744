"""The port guard of a local stack, with real listeners."""

from __future__ import annotations

import socket

import pytest

from linguamesh.local.paths import PortGuard
from mesh.errors import ConfigError
from tests.support.conditions import DEADLINE_S


def listener(port: int, *, share: bool) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if share:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen()
    return sock


def test_guarded_port_accepts_edges_but_no_second_stack() -> None:
    guard = PortGuard("127.0.0.1", 0)
    with listener(guard.port, share=True), listener(guard.port, share=True):
        with pytest.raises(ConfigError, match=f"port {guard.port} .* cannot be used"):
            PortGuard("127.0.0.1", guard.port)
        with socket.create_connection(("127.0.0.1", guard.port), timeout=DEADLINE_S):
            pass
    with pytest.raises(ConfigError):  # also while no edge listens, before the start or during a restart
        PortGuard("127.0.0.1", guard.port)
    guard.close()
    PortGuard("127.0.0.1", guard.port).close()


@pytest.mark.parametrize("share", [True, False])
def test_port_in_use_is_refused(share: bool) -> None:
    with listener(0, share=share) as other, pytest.raises(ConfigError):
        PortGuard("127.0.0.1", other.getsockname()[1])
