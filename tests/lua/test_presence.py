from __future__ import annotations

from lua.store import Presence, Store
from mesh.keys import Keys
from tests.lua.conftest import RedisClient


async def test_a_process_is_there_until_it_lapses_or_withdraws(store: Store, raw: RedisClient, keys: Keys) -> None:
    key = keys.presence("selector", "selector:s1:0001")
    for _ in range(2):
        await store.announce("selector", "selector:s1:0001", Presence("host-1", 7, "0.1", 5))
        assert raw.hgetall(key) == {
            b"host": b"host-1",
            b"pid": b"7",
            b"version": b"0.1",
            b"started_at_ms": b"5",
            b"counts": b"{}",
        }
        assert 0 < raw.pttl(key) <= 6_000
    for _ in range(2):
        await store.withdraw("selector", "selector:s1:0001")
        assert not raw.exists(key)
