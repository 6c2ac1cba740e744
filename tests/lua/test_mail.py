"""The mail of a session: bounded, in order, once each, and for its owner only."""

from __future__ import annotations

import pytest

from lua.engine.runner import Runner
from lua.store import Store
from lua.store.sessions import PAGE_MAX
from lua.store.types.sessions import Claim, MailEntry, MailPage, Parked
from mesh.cells import cell_of
from mesh.config import Config, SessionConfig
from mesh.config.network import MeshConfig, RedisConfig
from mesh.errors import StoreError
from mesh.keys import Keys
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS

A, B = "edge:a:0001", "edge:b:0002"
S = "s-1"


@pytest.fixture
def config(redis_config: RedisConfig) -> Config:
    bounds = SessionConfig(mail_max=5, mail_bytes_max=2_000, mail_page_bytes_max=1_024)
    return Config(mesh=MeshConfig(), redis=redis_config, session=bounds)


async def claim(store: Store, edge: str = A, *, resume: bool = False, resumable: bool = True) -> int:
    claim = Claim(S, edge, 0, "", "en", "es", token="digest", resume=resume, resumable=resumable)
    claimed = await store.sessions.claim(claim)
    assert claimed.ok
    return claimed.epoch


def letter(number: int, size: int = 10, session_id: str = S) -> MailEntry:
    return MailEntry(session_id, f"k-{number}", b"frame-%d" % number, bytes([number % 256]) * size)


async def park(store: Store, *letters: MailEntry) -> list[Parked | StoreError]:
    return [(await store.sessions.park_mail([one]))[0] for one in letters]


async def read_all(store: Store, edge: str, epoch: int) -> list[bytes]:
    parts: list[bytes] = []
    after = ""
    while True:
        page = await store.sessions.read_mail(S, edge, epoch, after)
        assert page is not None
        parts += page.parts
        if not page.more:
            return parts
        after = page.last


def parts_of(*letters: MailEntry) -> list[bytes]:
    return [part for one in letters for part in (one.frame, one.body)]


async def test_parked_entries_are_read_in_order_and_unchanged(store: Store) -> None:
    epoch = await claim(store)
    bodies = [bytes(range(256)), b"", '{"text": "你好"}'.encode()]
    letters = [MailEntry(S, f"k-{at}", b"\x93\x00\xff%d" % at, body) for at, body in enumerate(bodies)]
    assert await store.sessions.park_mail(letters) == [Parked("parked")] * 3
    page = await store.sessions.read_mail(S, A, epoch)
    assert page is not None and not page.more
    assert page.parts == parts_of(*letters)
    assert await store.sessions.read_mail(S, A, epoch, page.last) == MailPage("", False, [])


async def test_duplicate_entry_is_not_added(store: Store) -> None:
    epoch = await claim(store)
    assert await park(store, letter(1), letter(2), letter(1)) == [Parked("parked"), Parked("parked"), Parked("same")]
    assert await read_all(store, A, epoch) == parts_of(letter(1), letter(2))
    both = await store.sessions.park_mail([letter(3), letter(3)])
    assert both == [Parked("parked"), Parked("same")]


async def test_oldest_entries_are_evicted_beyond_the_entry_limit(store: Store) -> None:
    epoch = await claim(store)
    parked = await park(store, *(letter(number) for number in range(7)))
    assert parked == [Parked("parked")] * 5 + [Parked("parked", 1)] * 2
    assert await read_all(store, A, epoch) == parts_of(*(letter(number) for number in range(2, 7)))
    claimed = await store.sessions.claim(Claim(S, B, 0, "", "en", "es", token="digest", resume=True))
    assert (claimed.mail, claimed.lost) == (5, 2)


async def test_oldest_entries_are_evicted_beyond_the_byte_limit(store: Store, raw: RedisClient, keys: Keys) -> None:
    epoch = await claim(store)
    big = letter(9, 1_500)
    parked = await park(store, letter(1, 400), letter(2, 400), big)
    assert parked == [Parked("parked"), Parked("parked"), Parked("parked", 1)]
    assert await read_all(store, A, epoch) == parts_of(letter(2, 400), big)
    stored = sum(len(one.key) + len(one.frame) + len(one.body) for one in (letter(2, 400), big))
    assert int(raw.hget(keys.session(cell_of(S, CELLS), S), "mail_bytes") or 0) == stored <= 2_000


async def test_entry_beyond_the_byte_limit_is_lost_and_counted(store: Store) -> None:
    epoch = await claim(store)
    assert await park(store, letter(1), letter(2, 3_000)) == [Parked("parked"), Parked("parked", 2)]
    assert await read_all(store, A, epoch) == []
    assert await park(store, letter(3)) == [Parked("parked")]
    claimed = await store.sessions.claim(Claim(S, B, 0, "", "en", "es", token="digest", resume=True))
    assert (claimed.mail, claimed.lost) == (1, 2)


async def test_pages_are_bounded_by_bytes_and_have_at_least_one_entry(store: Store) -> None:
    epoch = await claim(store)
    letters = [letter(1, 400), letter(2, 400), letter(3, 400), letter(4, 600)]
    await park(store, *letters)
    first = await store.sessions.read_mail(S, A, epoch)
    assert first is not None and first.more and first.parts == parts_of(*letters[:2])
    second = await store.sessions.read_mail(S, A, epoch, first.last)
    assert second is not None and not second.more and second.parts == parts_of(*letters[2:])
    await store.sessions.trim_mail(S, A, epoch, second.last)
    await park(store, letter(5, 1_500), letter(6))
    large = await store.sessions.read_mail(S, A, epoch)
    assert large is not None and large.more and large.parts == parts_of(letter(5, 1_500))


async def test_pages_are_bounded_by_entries(runner: Runner, keys: Keys, config: Config) -> None:
    roomy = Store(runner, keys, Config(redis=config.redis))
    epoch = await claim(roomy)
    letters = [letter(number) for number in range(130)]
    await roomy.sessions.park_mail(letters)
    sizes, after, parts = [], "", []
    while True:
        page = await roomy.sessions.read_mail(S, A, epoch, after)
        assert page is not None
        sizes.append(len(page.parts) // 2)
        parts += page.parts
        after = page.last
        if not page.more:
            break
    assert sizes == [PAGE_MAX] * (130 // PAGE_MAX) + [130 % PAGE_MAX]
    assert parts == parts_of(*letters)


async def test_trim_deletes_up_to_the_entry_and_no_further(store: Store, raw: RedisClient, keys: Keys) -> None:
    epoch = await claim(store)
    letters = [letter(number, 400) for number in range(4)]
    await park(store, *letters)
    page = await store.sessions.read_mail(S, A, epoch)
    assert page is not None and page.parts == parts_of(*letters[:2])
    assert await store.sessions.trim_mail(S, A, epoch, page.last) == 2
    assert await read_all(store, A, epoch) == parts_of(*letters[2:])
    assert await store.sessions.trim_mail(S, A, epoch, page.last) == 0, "a repeat"
    assert await park(store, letters[0]) == [Parked("parked")], "it is not there any more"
    rest = await store.sessions.read_mail(S, A, epoch, page.last)
    assert rest is not None and rest.parts == parts_of(*letters[2:]) and rest.more
    end = await store.sessions.read_mail(S, A, epoch, rest.last)
    assert end is not None and await store.sessions.trim_mail(S, A, epoch, end.last) == 3
    cell = cell_of(S, CELLS)
    assert raw.xlen(keys.mail(cell, S)) == 0 and not raw.exists(keys.mailed(cell, S))
    assert raw.hget(keys.session(cell, S), "mail_bytes") == b"0"


async def test_lost_count_is_returned_until_the_first_trim(store: Store) -> None:
    await claim(store)
    await park(store, *(letter(number) for number in range(8)))
    for edge in (A, B, B):
        claimed = await store.sessions.claim(Claim(S, edge, 0, "", "en", "es", token="digest", resume=True))
        assert (claimed.mail, claimed.lost) == (5, 3)
    page = await store.sessions.read_mail(S, B, claimed.epoch)
    assert page is not None
    await store.sessions.trim_mail(S, B, claimed.epoch, page.last)
    again = await store.sessions.claim(Claim(S, A, 0, "", "en", "es", token="digest", resume=True))
    assert (again.mail, again.lost) == (0, 0)


async def test_mail_is_fenced_by_owner_and_epoch(store: Store) -> None:
    first = await claim(store)
    await park(store, letter(1))
    second = await claim(store, B, resume=True)
    for edge, epoch in ((A, first), (B, first), (A, second)):
        assert await store.sessions.read_mail(S, edge, epoch) is None
        assert await store.sessions.trim_mail(S, edge, epoch, "99999999999999-0") is None
    assert await read_all(store, B, second) == parts_of(letter(1))
    assert await store.sessions.read_mail("s-none", A, 1) is None


async def test_only_a_resumable_session_gets_mail(store: Store, raw: RedisClient, keys: Keys) -> None:
    assert await park(store, letter(1)) == [Parked("no_session")]
    await claim(store, resumable=False)
    assert await park(store, letter(1)) == [Parked("no_session")]
    assert not raw.exists(keys.mail(cell_of(S, CELLS), S))
    await claim(store, B, resume=True, resumable=True)
    assert await park(store, letter(1)) == [Parked("parked")]


async def test_mail_is_deleted_with_its_session(store: Store, raw: RedisClient, keys: Keys) -> None:
    epoch = await claim(store)
    cell = cell_of(S, CELLS)
    for number in range(2):
        await park(store, letter(number))
        for name in (keys.mail(cell, S), keys.mailed(cell, S)):
            assert 60_000 < raw.pttl(name) <= 3_600_000
            raw.pexpire(name, 60_000)
    assert await store.sessions.release(S, A, epoch)
    assert not any(raw.exists(name) for name in (keys.session(cell, S), keys.mail(cell, S), keys.mailed(cell, S)))


@pytest.mark.parametrize("entry", ["x", "1", "-", "1-", "-1", "1-x", "\uff11-0", "1_0-0", " 1-0"])
async def test_invalid_entry_id_is_a_value_error(store: Store, entry: str) -> None:
    epoch = await claim(store)
    with pytest.raises(ValueError, match="no id of a mail entry"):
        await store.sessions.read_mail(S, A, epoch, entry)
    with pytest.raises(ValueError, match="no id of a mail entry"):
        await store.sessions.trim_mail(S, A, epoch, entry)
