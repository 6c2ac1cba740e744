from __future__ import annotations

import pytest

from lua.store import Claimed, Store
from mesh.cells import cell_of
from mesh.errors import ConfigError
from mesh.keys import Keys
from tests.lua.conftest import RedisClient
from tests.lua.samples import CELLS

A, B = "edge:a:0001", "edge:b:0002"


async def claim(store: Store, edge: str, epoch: int) -> Claimed:
    return await store.claim_session("s-1", edge, epoch, "tenant", "en", "es")


async def test_the_first_claim_makes_the_record(store: Store, raw: RedisClient, keys: Keys) -> None:
    claimed = await claim(store, A, 0)
    assert claimed.ok and claimed.owner == A and claimed.epoch > 0
    assert await store.session_owner("s-1") == A
    key = keys.session(cell_of("s-1", CELLS), "s-1")
    assert raw.hmget(key, "tenant", "src_lang", "tgt_lang") == [b"tenant", b"en", b"es"]
    assert 0 < raw.pttl(key) <= 3_600_000


async def test_epoch_zero_takes_over_and_the_old_owner_is_out(store: Store) -> None:
    first = await claim(store, A, 0)
    second = await claim(store, B, 0)
    assert second.ok and second.epoch > first.epoch
    refused = await claim(store, A, first.epoch)
    assert refused == Claimed(False, B, second.epoch)
    assert not await store.release_session("s-1", A, first.epoch)
    assert await store.session_owner("s-1") == B


async def test_the_right_epoch_hands_the_session_over_and_its_repeat_is_the_same(store: Store) -> None:
    first = await claim(store, A, 0)
    moved = await claim(store, B, first.epoch)
    assert moved.ok and moved.epoch > first.epoch
    assert await claim(store, B, first.epoch) == moved, "the answer may have been lost"
    assert not (await claim(store, A, first.epoch)).ok, "only one can take an epoch over"


async def test_the_owner_renews_without_a_new_epoch(store: Store, raw: RedisClient, keys: Keys) -> None:
    first = await claim(store, A, 0)
    key = keys.session(cell_of("s-1", CELLS), "s-1")
    raw.pexpire(key, 5_000)
    assert await claim(store, A, first.epoch) == first
    assert raw.pttl(key) > 5_000


async def test_a_session_that_redis_forgot_is_claimed_again(store: Store) -> None:
    claimed = await claim(store, A, 1 << 45)
    assert claimed.ok and claimed.epoch > 1 << 45


async def test_release_needs_owner_and_epoch(store: Store) -> None:
    claimed = await claim(store, A, 0)
    assert not await store.release_session("s-1", B, claimed.epoch)
    assert not await store.release_session("s-1", A, claimed.epoch + 1)
    assert await store.release_session("s-1", A, claimed.epoch)
    assert not await store.release_session("s-1", A, claimed.epoch)
    assert await store.session_owner("s-1") is None


async def test_a_deployment_keeps_the_cells_it_was_born_with(store: Store) -> None:
    await store.check_deployment(16)
    await store.check_deployment(16)
    with pytest.raises(ConfigError, match="born with 16"):
        await store.check_deployment(8)
