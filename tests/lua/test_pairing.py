from __future__ import annotations

import asyncio

import msgspec
import pytest

from lua.store import Store
from lua.store.types.pairing import IssuedCode, PairingAttempt
from mesh.cells import cell_of
from mesh.config import Config
from mesh.config.sessions import PairingConfig
from mesh.keys import Keys
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS, EDGE, register

NODE, CODE = "node-1", "123456"


@pytest.fixture
def config(config: Config) -> Config:
    return msgspec.structs.replace(config, pairing=PairingConfig(codes_per_node_max=3, wrong_per_client_max=4))


@pytest.fixture(autouse=True)
async def known(store: Store) -> None:
    """There is a node."""
    await register(store, NODE)


async def planned(store: Store, serial: int, code: str, **options: str) -> IssuedCode:
    return await store.pairing.issue(NODE, EDGE, serial, code, **options)


# --- a node asks ----------------------------------------------------------------------------------


async def test_unknown_node_gets_no_code(store: Store) -> None:
    assert await planned(store, 1, CODE) == IssuedCode("ok", CODE)
    assert await store.pairing.issue("node-9", EDGE, 1, CODE) == IssuedCode("unknown")
    registered = await register(store, NODE)
    assert await store.nodes.set_offline(NODE, registered.epoch, "gone")
    assert await planned(store, 2, CODE) == IssuedCode("unknown"), "it is off the lists"


async def test_retried_issue_gets_the_same_code_and_counts_once(store: Store) -> None:
    for code in ("111111", "222222", "333333", "444444", "555555"):
        assert await planned(store, 1, code) == IssuedCode("ok", "111111")
    assert await planned(store, 1, "222222", instead_of="111111") == IssuedCode("ok", "222222")
    assert await planned(store, 1, "333333", instead_of="111111") == IssuedCode("ok", "222222")
    assert await planned(store, 2, "444444") == IssuedCode("ok", "444444", "222222")
    assert await planned(store, 2, "555555") == IssuedCode("ok", "444444", "222222")


async def test_delayed_duplicate_does_not_revoke_a_later_code(store: Store) -> None:
    await planned(store, 1, "111111")
    await planned(store, 2, "222222")
    assert await planned(store, 1, "333333") == IssuedCode("late")
    assert await store.pairing.issue(NODE, "edge:b:0002", 1, "333333") == IssuedCode("ok", "333333", "222222")


async def test_issue_is_rate_limited_per_node(store: Store, raw: RedisClient, keys: Keys) -> None:
    for serial in (1, 2, 3):
        assert (await planned(store, serial, f"{serial:06d}")).verdict == "ok"
    slow = await planned(store, 4, CODE)
    assert slow.verdict == "slow" and 0 < slow.wait_ms <= 60_000
    await register(store, "node-2")
    assert (await store.pairing.issue("node-2", EDGE, 5, CODE)).verdict == "ok", "others need not"
    assert raw.delete(keys.pairing_asked(cell_of(NODE, CELLS), NODE)) == 1, "the window has passed"
    assert await planned(store, 4, CODE) == IssuedCode("ok", CODE, "000003")


async def test_code_belongs_to_one_node(store: Store, raw: RedisClient, keys: Keys) -> None:
    assert await store.pairing.create(CODE, NODE, "a 1") == 300_000
    raw.pexpire(keys.pairing(cell_of(CODE, CELLS), CODE), 5_000)
    assert 0 < await store.pairing.create(CODE, NODE, "a 1") <= 5_000, "a repeat does not lengthen its life"
    assert await store.pairing.create(CODE, "node-2", "a 2") == 0
    assert await store.pairing.redeem(CODE, "use-1") == NODE


async def test_revoke_deletes_a_code_unless_it_was_redeemed(store: Store) -> None:
    await store.pairing.create(CODE, NODE, "a 1")
    assert not await store.pairing.revoke(CODE, "node-2"), "it stands for another node"
    assert await store.pairing.revoke(CODE, NODE)
    assert not await store.pairing.revoke(CODE, NODE)
    assert await store.pairing.redeem(CODE, "use-1") == ""
    await store.pairing.create(CODE, NODE, "a 2")
    await store.pairing.redeem(CODE, "use-2")
    assert not await store.pairing.revoke(CODE, NODE)
    assert await store.pairing.redeem(CODE, "use-2") == NODE


# --- a client uses it -----------------------------------------------------------------------------


async def test_code_is_redeemed_once_and_a_retry_gets_the_same_node(store: Store, raw: RedisClient, keys: Keys) -> None:
    await store.pairing.create(CODE, NODE, "a 1")
    raw.pexpire(keys.pairing(cell_of(CODE, CELLS), CODE), 5_000)
    taken = await asyncio.gather(*(store.pairing.redeem(CODE, f"use-{number}") for number in range(20)))
    assert sorted(taken) == [""] * 19 + [NODE]
    winner = taken.index(NODE)
    assert await store.pairing.redeem(CODE, f"use-{winner}") == NODE
    assert raw.pttl(keys.pairing(cell_of(CODE, CELLS), CODE)) > 5_000, "its repeat may come when the code has lapsed"
    assert await store.pairing.create(CODE, "node-2", "a 2") == 0, "and it stands for nothing else until then"


async def test_code_expires(store: Store, raw: RedisClient, keys: Keys) -> None:
    await store.pairing.create(CODE, NODE, "a 1")
    key = keys.pairing(cell_of(CODE, CELLS), CODE)
    assert 0 < raw.pttl(key) <= 300_000
    raw.delete(key)
    assert await store.pairing.redeem(CODE, "use-1") == ""


async def test_failed_attempts_are_rate_limited_per_client(store: Store, raw: RedisClient, keys: Keys) -> None:
    answers = await asyncio.gather(*(store.pairing.attempt("c", f"use-{number}") for number in range(50)))
    assert sum(answer.allowed for answer in answers) == 4, "also when it tries all at once"
    slow = await store.pairing.attempt("c", "use-50")
    assert not slow.allowed and 0 < slow.wait_ms <= 60_000
    assert raw.scard(keys.pairing_wrong(cell_of("c", CELLS), "c")) == 4
    assert await store.pairing.attempt("other", "use-1") == PairingAttempt(True)


async def test_retried_attempt_counts_once_and_a_right_code_not_at_all(store: Store) -> None:
    for _ in range(10):
        assert (await store.pairing.attempt("c", "use-1")).allowed
    for number in range(2, 30):
        assert (await store.pairing.attempt("c", f"use-{number}")).allowed
        await store.pairing.attempt_ok("c", f"use-{number}")
    allowed = [(await store.pairing.attempt("c", f"wrong-{number}")).allowed for number in range(5)]
    assert allowed == [True, True, True, False, False]
