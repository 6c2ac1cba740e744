from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from linguamesh.redis_server import RedisServer
from tests.wire.selector_rig import FakeEdge, Rig


@pytest.fixture
async def rig(mesh: Rig, redis_server: RedisServer) -> AsyncIterator[Rig]:
    """The `mesh` of the test's file, over an emptied Redis; what a test adds to it ends with the test."""
    lasting = list(mesh.processes)
    yield mesh
    await mesh.close_edges()
    mesh.end([process for process in mesh.processes if process not in lasting])


@pytest.fixture
async def edge(rig: Rig) -> FakeEdge:
    return await rig.add_edge("a")
