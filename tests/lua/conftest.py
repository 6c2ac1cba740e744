"""A store on a real server and on a real cluster: most tests run on both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
import redis

from lua.engine.runner import Runner
from lua.store import Store
from mesh.config import Config
from mesh.config.jobs import JobConfig, NodeConfig
from mesh.config.network import RedisConfig
from mesh.keys import Keys

RedisClient = redis.Redis | redis.RedisCluster
Connect = Callable[[RedisConfig], Awaitable[Runner]]


@pytest.fixture(params=["server", "cluster"])
def redis_config(request: pytest.FixtureRequest) -> RedisConfig:
    place = request.getfixturevalue(f"redis_{request.param}")
    return RedisConfig(url=place.url, cluster=request.param == "cluster", timeout_ms=5_000)


@pytest.fixture
def config(redis_config: RedisConfig) -> Config:
    return Config(redis=redis_config, node=NodeConfig(tombstones_max=5), job=JobConfig(lease_ms=20_000))


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes runners. Each is closed when the test ends, also if it fails: the next test must not collect it."""
    made: list[Runner] = []

    async def connect(config: RedisConfig) -> Runner:
        made.append(await Runner.connect(config))
        return made[-1]

    yield connect
    for runner in made:
        await runner.close()


@pytest.fixture
async def runner(connect: Connect, config: Config) -> Runner:
    return await connect(config.redis)


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def store(runner: Runner, keys: Keys, config: Config) -> Store:
    return Store(runner, keys, config)


@pytest.fixture
def raw(redis_config: RedisConfig) -> Iterator[RedisClient]:
    """A client that looks behind the store's back."""
    make = redis.RedisCluster if redis_config.cluster else redis.Redis
    client: RedisClient = make.from_url(redis_config.url, decode_responses=False)
    yield client
    client.close()
