from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from tests.lua.conftest import RedisClient
from tests.support.processes.selector import FakeEdge, Rig


@pytest.fixture
async def rig(mesh: Rig, request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """The `mesh` of the test's file, over an emptied Redis; what a test adds to it ends with the test."""
    request.getfixturevalue("redis_cluster" if mesh.config.redis.cluster else "redis_server")
    lasting = list(mesh.processes)
    yield mesh
    await mesh.close_edges()
    mesh.end([process for process in mesh.processes if process not in lasting])


@pytest.fixture
async def edge(rig: Rig) -> FakeEdge:
    return await rig.add_edge("a")


@pytest.fixture
def raw(rig: Rig) -> Iterator[RedisClient]:
    """A client that looks behind the selectors' backs."""
    make = redis.RedisCluster if rig.config.redis.cluster else redis.Redis
    client: RedisClient = make.from_url(rig.config.redis.url)
    yield client
    client.close()
