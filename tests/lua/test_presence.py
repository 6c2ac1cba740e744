from __future__ import annotations

import pytest

from lua.store import Store
from lua.store.types.deployment import Presence
from mesh.errors import StoreError
from mesh.keys import Keys
from tests.lua.conftest import RedisClient

SELECTOR = "selector:s1:0001"
FACTS = Presence("host-1", 7, "0.1", 5)


async def test_process_is_listed_until_its_presence_expires_or_is_withdrawn(
    store: Store, raw: RedisClient, keys: Keys
) -> None:
    key = keys.presence("selector", SELECTOR)
    for _ in range(2):
        await store.deployment.announce("selector", SELECTOR, FACTS)
        assert await store.deployment.processes("selector") == [(SELECTOR, FACTS)]
        assert 0 < raw.pttl(key) <= 6_000
    for _ in range(2):
        await store.deployment.withdraw("selector", SELECTOR)
        assert not raw.exists(key) and await store.deployment.processes("selector") == []


async def test_processes_are_listed_by_kind_with_their_counts(store: Store) -> None:
    edge = FACTS._replace(counts={"accepted": 12, "delivered": 11, "in_flight": 1})
    await store.deployment.announce("edge", "edge:b:2", edge)
    await store.deployment.announce("edge", "edge:a:1", FACTS)
    await store.deployment.announce("selector", SELECTOR, FACTS)
    assert await store.deployment.processes("edge") == [("edge:a:1", FACTS), ("edge:b:2", edge)]
    assert await store.deployment.processes("broker") == []


async def test_expired_process_is_not_listed_and_its_entry_deleted(store: Store, raw: RedisClient, keys: Keys) -> None:
    await store.deployment.announce("edge", "edge:a:1", FACTS)
    await store.deployment.announce("edge", "edge:b:2", FACTS)
    raw.delete(keys.presence("edge", "edge:a:1"))  # it expired a moment before its list entry
    assert [identity for identity, _ in await store.deployment.processes("edge")] == ["edge:b:2"]
    raw.zadd(keys.present(), {"edge edge:a:1": 1})
    assert [identity for identity, _ in await store.deployment.processes("edge")] == ["edge:b:2"]
    await store.deployment.announce("edge", "edge:b:2", FACTS)
    assert raw.zrange(keys.present(), 0, -1) == [b"edge edge:b:2"]


async def test_undecodable_presence_is_an_error(store: Store, raw: RedisClient, keys: Keys) -> None:
    await store.deployment.announce("edge", "edge:a:1", FACTS)
    raw.hset(keys.presence("edge", "edge:a:1"), "counts", "nonsense")
    with pytest.raises(StoreError, match="cannot be decoded"):
        await store.deployment.processes("edge")
