"""Choice of the Redis of a local stack; its servers are in tests/loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from linguamesh.local.stack_redis import StackRedis
from mesh.errors import ConfigError


def test_external_url_is_used_and_its_password_is_hidden(tmp_path: Path) -> None:
    given = StackRedis("redis://user:secret@10.0.0.1:6379/0")
    assert given.start(tmp_path, keep=False) == {"LINGUA_REDIS_URL": "redis://user:secret@10.0.0.1:6379/0"}
    assert given.shown_url == "redis://user:***@10.0.0.1:6379/0"
    given.stop()


def test_url_of_another_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match="not 'postgres://x'"):
        StackRedis("postgres://x")
