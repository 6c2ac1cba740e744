"""Fixtures of the tests that run whole meshes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def mesh_dir() -> Iterator[Path]:
    """A directory with a short path: ipc:// sockets allow 107 characters."""
    with TemporaryDirectory(prefix="lm-") as directory:
        yield Path(directory)
