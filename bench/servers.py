"""What a measurement runs beside: a Redis of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from linguamesh.local.redis_server import RedisServer


@contextmanager
def redis_at_hand() -> Iterator[tuple[Path, str]]:
    """A short temporary directory, and the address of a Redis in it."""
    with TemporaryDirectory(prefix="lm-") as name:
        directory = Path(name)
        server = RedisServer.start(directory / "redis")
        try:
            yield directory, server.url
        finally:
            server.stop()
