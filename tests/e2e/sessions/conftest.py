"""Fixtures of the tests that open raw sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.clients import raw_sessions


@pytest.fixture(autouse=True)
async def no_socket_is_left() -> AsyncIterator[None]:
    """Every socket of the test is closed before its event loop is."""
    yield
    await raw_sessions.abort_all()
