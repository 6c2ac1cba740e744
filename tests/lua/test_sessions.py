from __future__ import annotations

from typing import Any

import pytest

from lua.store import Store
from lua.store.types.sessions import Claim, Claimed, MailEntry, MailPage, Noted, SessionOwner
from mesh.cells import cell_of
from mesh.errors import ConfigError
from mesh.keys import Keys
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS, claim_session, session_owner

A, B = "edge:a:0001", "edge:b:0002"


async def claim(store: Store, edge: str, epoch: int) -> Claimed:
    return await claim_session(store, "s-1", edge, epoch, "tenant", "en", "es")


async def test_first_claim_creates_the_record(store: Store, raw: RedisClient, keys: Keys) -> None:
    claimed = await claim(store, A, 0)
    assert claimed.ok and claimed.owner == A and claimed.epoch > 0
    assert await session_owner(store, "s-1") == A
    key = keys.session(cell_of("s-1", CELLS), "s-1")
    assert raw.hmget(key, "tenant", "src_lang", "tgt_lang") == [b"tenant", b"en", b"es"]
    assert 0 < raw.pttl(key) <= 3_600_000


async def test_claim_with_epoch_zero_takes_over_and_fences_the_old_owner(store: Store) -> None:
    first = await claim(store, A, 0)
    second = await claim(store, B, 0)
    assert second.ok and second.epoch > first.epoch
    refused = await claim(store, A, first.epoch)
    assert refused == Claimed(False, B, second.epoch, "held")
    assert not await store.sessions.release("s-1", A, first.epoch)
    assert await session_owner(store, "s-1") == B


async def test_claim_with_the_epoch_in_force_is_idempotent(store: Store) -> None:
    first = await claim(store, A, 0)
    moved = await claim(store, B, first.epoch)
    assert moved.ok and moved.epoch > first.epoch and moved.before == A
    assert await claim(store, B, first.epoch) == moved, "the answer may have been lost"
    assert not (await claim(store, A, first.epoch)).ok, "only one can take an epoch over"


async def test_the_owner_renews_without_a_new_epoch(store: Store, raw: RedisClient, keys: Keys) -> None:
    first = await claim(store, A, 0)
    key = keys.session(cell_of("s-1", CELLS), "s-1")
    raw.pexpire(key, 5_000)
    assert await claim(store, A, first.epoch) == first
    assert raw.pttl(key) > 5_000


async def test_lost_session_can_be_claimed(store: Store) -> None:
    claimed = await claim(store, A, 1 << 45)
    assert claimed.ok and claimed.epoch > 1 << 45


async def test_release_needs_owner_and_epoch(store: Store) -> None:
    claimed = await claim(store, A, 0)
    assert not await store.sessions.release("s-1", B, claimed.epoch)
    assert not await store.sessions.release("s-1", A, claimed.epoch + 1)
    assert await store.sessions.release("s-1", A, claimed.epoch)
    assert not await store.sessions.release("s-1", A, claimed.epoch)
    assert await session_owner(store, "s-1") is None


def wanted(edge: str, **more: Any) -> Claim:
    """A claim as edges make it."""
    plain = Claim("s-1", edge, 0, "tenant", "en", "es", token="digest", trace_id="t-1", preferred_node="node-1")
    return plain._replace(resumable=True, **more)


def resuming(edge: str, **more: Any) -> Claim:
    return Claim("s-1", edge, 0, "", "de", "fr", token="digest", resume=True)._replace(**more)


async def test_session_is_resumed_on_any_edge_with_its_facts(store: Store) -> None:
    first = await store.sessions.claim(wanted(A))
    assert (first.before, first.mail, first.lost) == ("", 0, 0)
    assert (first.tenant_id, first.trace_id, first.preferred_node) == ("tenant", "t-1", "node-1")
    await store.sessions.note("s-1", A, first.epoch, away=True, room="123456")
    assert await store.sessions.owners(["s-1", "s-2"]) == [SessionOwner(A, first.epoch, True, True), SessionOwner("")]

    second = await store.sessions.claim(resuming(B))
    assert second.ok and second.epoch > first.epoch
    kept = Claimed(True, B, second.epoch, "ok", A, "tenant", "t-1", "node-1", "123456")
    assert second == kept
    assert await store.sessions.owners(["s-1"]) == [SessionOwner(B, second.epoch, False, True)]


async def test_resume_on_the_same_edge_gets_a_new_epoch_and_no_former_owner(store: Store) -> None:
    first = await store.sessions.claim(wanted(A))
    again = await store.sessions.claim(resuming(A))
    assert again.ok and again.epoch > first.epoch and again.before == ""


async def test_resume_needs_the_record_and_its_token(store: Store) -> None:
    assert await store.sessions.claim(resuming(A)) == Claimed(False, "", 0, "gone")
    assert await session_owner(store, "s-1") is None, "a claim that fails makes nothing"
    first = await store.sessions.claim(wanted(A))
    for token in ("another", ""):
        refused = await store.sessions.claim(resuming(B, token=token))
        assert refused == Claimed(False, A, first.epoch, "wrong_token")
    assert await session_owner(store, "s-1") == A


async def test_session_without_a_token_cannot_be_resumed(store: Store) -> None:
    await claim(store, A, 0)
    assert (await store.sessions.claim(resuming(B, token=""))).verdict == "wrong_token"


async def test_retried_claim_is_idempotent(store: Store) -> None:
    await store.sessions.claim(wanted(A, ref="1"))
    second = await store.sessions.claim(resuming(B, ref="7"))
    await store.sessions.note("s-1", B, second.epoch, away=True)
    assert await store.sessions.claim(resuming(B, ref="7")) == second, "also that A is out: that word may be lost too"
    assert await store.sessions.owners(["s-1"]) == [SessionOwner(B, second.epoch, True, True)]


async def test_delayed_duplicate_of_a_claim_is_fenced(store: Store) -> None:
    await store.sessions.claim(wanted(A, ref="1"))
    second = await store.sessions.claim(resuming(B, ref="7"))
    assert await store.sessions.claim(wanted(A, ref="1")) == Claimed(False, B, second.epoch, "held")
    assert (await store.sessions.claim(resuming(A, ref="2"))).ok, "a new one does"
    assert (await store.sessions.claim(resuming(B, ref="7"))).verdict == "held"


async def test_owner_claims_again_after_redis_lost_the_session(store: Store, raw: RedisClient, keys: Keys) -> None:
    first = await store.sessions.claim(wanted(A, ref="1"))
    cell = cell_of("s-1", CELLS)
    raw.delete(keys.session(cell, "s-1"))
    assert await store.sessions.note("s-1", A, first.epoch) == Noted("gone", "", 0)
    anew = await store.sessions.claim(wanted(A, ref="2"))
    assert anew.ok and anew.epoch >= first.epoch
    assert (await store.sessions.claim(resuming(B))).ok


async def test_new_session_with_the_same_id_inherits_nothing(store: Store) -> None:
    first = await store.sessions.claim(wanted(A))
    await store.sessions.note("s-1", A, first.epoch, room="123456")
    await store.sessions.park_mail([MailEntry("s-1", "k", b"frame", b"body")])
    other = await store.sessions.claim(wanted(B, token="other", trace_id="t-2"))
    assert other.ok and other.epoch > first.epoch and other.before == A
    assert (other.trace_id, other.room, other.mail) == ("t-2", "", 0)
    assert await store.sessions.read_mail("s-1", B, other.epoch) == MailPage("", False, [])
    assert await store.sessions.trim_mail("s-1", B, other.epoch, "9999999999999-0") == 0
    await store.sessions.park_mail([MailEntry("s-1", "k", b"frame", b"another")])
    page = await store.sessions.read_mail("s-1", B, other.epoch)
    assert page is not None and page.parts == [b"frame", b"another"]


async def test_note_of_the_owner_renews_the_record_and_stores_away(store: Store, raw: RedisClient, keys: Keys) -> None:
    claimed = await store.sessions.claim(wanted(A))
    key = keys.session(cell_of("s-1", CELLS), "s-1")
    raw.pexpire(key, 5_000)
    assert await store.sessions.note("s-1", A, claimed.epoch, away=True, room="123456") == Noted("ok", A, claimed.epoch)
    assert raw.pttl(key) > 5_000
    since = raw.hget(key, "away_ms")
    await store.sessions.note("s-1", A, claimed.epoch, away=True)
    assert raw.hmget(key, "away_ms", "room") == [since, b"123456"]
    await store.sessions.note("s-1", A, claimed.epoch, room="")
    assert raw.hmget(key, "away_ms", "room") == [b"0", b""]


async def test_note_of_another_edge_changes_nothing(store: Store) -> None:
    first = await store.sessions.claim(wanted(A))
    second = await store.sessions.claim(resuming(B))
    for edge, epoch in ((A, first.epoch), (B, first.epoch), (A, second.epoch)):
        assert await store.sessions.note("s-1", edge, epoch, away=True) == Noted("taken", B, second.epoch)
    assert await store.sessions.owners(["s-1"]) == [SessionOwner(B, second.epoch, False, True)]
    assert await store.sessions.note("s-none", A, 1) == Noted("gone", "", 0)


async def test_deployment_keeps_its_number_of_cells(store: Store) -> None:
    await store.deployment.check(16)
    await store.deployment.check(16)
    with pytest.raises(ConfigError, match="this deployment has 16"):
        await store.deployment.check(8)
