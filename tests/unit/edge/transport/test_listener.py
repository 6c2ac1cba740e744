"""Listener: hosts that it may serve."""

from __future__ import annotations

import pytest

from edge.transport.listener import check_host
from mesh.config.network import EdgeConfig
from mesh.errors import ConfigError


def test_only_loopback_is_served_unless_insecure() -> None:
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        check_host(EdgeConfig(host=host))
    for host in ("0.0.0.0", "::", "10.0.0.1", "", "example.org"):
        with pytest.raises(ConfigError):
            check_host(EdgeConfig(host=host))
        check_host(EdgeConfig(host=host, insecure=True))
