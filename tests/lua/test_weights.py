from __future__ import annotations

import asyncio

import pytest

from lua.store import Store
from lua.store.types.deployment import StoredWeights
from mesh.config.weights import Weights
from mesh.errors import StoreError
from mesh.keys import Keys
from tests.lua.conftest import RedisClient

DEAR = Weights(region_ms=500.0)


async def test_weights_of_the_configuration_are_in_force_by_default(store: Store) -> None:
    assert await store.deployment.weights() == StoredWeights(0, None, 0, "")


async def test_weights_are_versioned(store: Store) -> None:
    stored = await store.deployment.set_weights(DEAR, None, "ann")
    assert stored is not None and (stored.version, stored.weights, stored.by) == (1, DEAR, "ann")
    assert stored.since_ms > 0 and await store.deployment.weights() == stored
    second = await store.deployment.set_weights(Weights(), 1, "bob")
    assert second is not None and second.version == 2
    assert await store.deployment.weights() == second


async def test_set_with_an_old_version_changes_nothing(store: Store) -> None:
    await store.deployment.set_weights(DEAR, 0, "ann")
    assert await store.deployment.set_weights(Weights(), 0, "bob") is None
    assert (await store.deployment.weights()).by == "ann"


async def test_one_of_many_concurrent_sets_wins(store: Store) -> None:
    answers = await asyncio.gather(
        *(store.deployment.set_weights(Weights(busy_ms=float(n)), 0, f"p{n}") for n in range(20))
    )
    [winner] = [answer for answer in answers if answer is not None]
    assert await store.deployment.weights() == winner


async def test_undecodable_weights_is_an_error(store: Store, raw: RedisClient, keys: Keys) -> None:
    raw.hset(keys.weights(), mapping={"version": 3, "packed": b"\xc1", "since_ms": 1, "by": "x"})
    with pytest.raises(StoreError, match="weights of version 3"):
        await store.deployment.weights()
