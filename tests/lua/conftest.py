"""A store on a real server and on a real cluster: most tests run on both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from lua.runner import Runner
from lua.store import Store
from mesh.config import Config, JobConfig, NodeConfig, RedisConfig
from mesh.keys import Keys

RedisClient = redis.Redis | redis.RedisCluster


@pytest.fixture(params=["server", "cluster"])
def redis_config(request: pytest.FixtureRequest) -> RedisConfig:
    place = request.getfixturevalue(f"redis_{request.param}")
    return RedisConfig(url=place.url, cluster=request.param == "cluster", timeout_ms=5_000)


@pytest.fixture
def config(redis_config: RedisConfig) -> Config:
    return Config(redis=redis_config, node=NodeConfig(tombstones_max=5), job=JobConfig(lease_ms=20_000))


@pytest.fixture
async def runner(config: Config) -> AsyncIterator[Runner]:
    runner = await Runner.connect(config.redis)
    yield runner
    await runner.close()


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
