from __future__ import annotations

import pytest

from mesh.loopback import is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost"])
def test_this_machine_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "::ffff:10.0.0.1", "0.0.0.0", "::", "example.org", "localhost.evil", "", None]
)
def test_other_host_is_not_loopback(host: str | None) -> None:
    assert not is_loopback(host)
