from __future__ import annotations

import asyncio

import msgspec
import pytest

from lua.engine.runner import Runner
from lua.store import Store
from lua.store.types.rooms import Room
from mesh.cells import cell_of
from mesh.config import Config
from mesh.config.sessions import RoomsConfig
from mesh.frames import RoomMember
from mesh.keys import Keys
from mesh.random_ids import new_room_id
from tests.lua.conftest import RedisClient
from tests.support.builders.store import CELLS

CODE = "123456"


@pytest.fixture
def config(config: Config) -> Config:
    return msgspec.structs.replace(config, rooms=RoomsConfig(members_max=4, rooms_max=CELLS * 3, silent_ms=60_000))


async def created(store: Store, session_id: str = "s-1", code: str = CODE) -> Room:
    room = await store.rooms.create(code, new_room_id(), session_id, "Ann", "en")
    assert room.verdict == "ok"
    return room


async def joined(store: Store, *session_ids: str) -> Room:
    rooms = [await store.rooms.join(CODE, session_id, session_id.upper(), "es") for session_id in session_ids]
    assert {room.verdict for room in rooms} == {"ok"}
    return rooms[-1]


def codes_in(cell: int) -> list[str]:
    """Codes whose rooms lie in the cell."""
    return [code for code in map(str, range(100_000, 110_000)) if cell_of(code, CELLS) == cell]


def names(room: Room) -> list[str]:
    return [member.session_id for member in room.members]


def silence(raw: RedisClient, keys: Keys, code: str, for_ms: int) -> None:
    """Move the last speech in a room into the past."""
    raw.zincrby(keys.rooms(cell_of(code, CELLS)), -for_ms, code)


# --- making one -----------------------------------------------------------------------------------


async def test_creator_is_a_member_of_its_room(store: Store, raw: RedisClient, keys: Keys) -> None:
    room = await store.rooms.create(CODE, "room-1", "s-1", "Ann ♥", "en")
    [member] = room.members
    assert room == Room("ok", "room-1", (RoomMember("s-1", "Ann ♥", "en", member.joined_ms),), 1)
    cell = cell_of(CODE, CELLS)
    assert raw.zscore(keys.rooms(cell), CODE) == member.joined_ms
    assert raw.hget(keys.room(cell, CODE), "created_ms") == str(member.joined_ms).encode()
    assert await store.rooms.get(CODE) == room


async def test_code_is_taken_once_and_a_retry_gets_the_same_room(store: Store) -> None:
    room = await created(store)
    assert await store.rooms.create(CODE, new_room_id(), "s-1", "Ann", "en") == room, "the answer may have been lost"
    assert await store.rooms.create(CODE, new_room_id(), "s-2", "Bob", "es") == Room("taken")
    await joined(store, "s-2")
    await store.rooms.leave(CODE, "s-1")
    assert await store.rooms.create(CODE, new_room_id(), "s-1", "Ann", "en") == Room("taken"), "it has left that one"


async def test_concurrent_creates_with_one_code_create_one_room(store: Store) -> None:
    rooms = await asyncio.gather(*(store.rooms.create(CODE, f"room-{n}", f"s-{n}", "", "") for n in range(20)))
    assert sorted(room.verdict for room in rooms) == ["ok", *["taken"] * 19]
    assert len((await store.rooms.get(CODE)).members) == 1


async def test_session_keeps_its_reserved_code_until_it_turns_out_to_be_taken(
    store: Store, raw: RedisClient, keys: Keys
) -> None:
    reserve = store.rooms.reserve_code
    assert await reserve("s-1", "111111") == "111111"
    assert await reserve("s-1", "222222") == "111111", "a repeat, perhaps by another selector, makes the same room"
    assert await reserve("s-2", "222222") == "222222"
    assert await reserve("s-1", "333333", instead_of="111111") == "333333"
    assert await reserve("s-1", "444444", instead_of="111111") == "333333", "another one found that out before"
    assert 0 < raw.pttl(keys.room_plan(cell_of("s-1", CELLS), "s-1")) <= 10_000


async def test_rooms_per_cell_are_bounded(store: Store, config: Config) -> None:
    codes = codes_in(5)
    made = [await store.rooms.create(code, new_room_id(), f"s-{code}", "", "") for code in codes[:4]]
    assert [room.verdict for room in made] == ["ok", "ok", "ok", "crowded"]
    await store.rooms.leave(codes[0], f"s-{codes[0]}")
    again = await store.rooms.create(codes[3], new_room_id(), "s-4", "", "")
    assert again.verdict == "ok"


async def test_a_deployment_with_fewer_rooms_than_cells_has_one_per_cell(
    runner: Runner, keys: Keys, config: Config
) -> None:
    store = Store(runner, keys, msgspec.structs.replace(config, rooms=RoomsConfig(rooms_max=1)))
    verdicts = {}
    for cell in (5, 6):
        codes = codes_in(cell)
        rooms = [await store.rooms.create(code, new_room_id(), f"s-{code}", "", "") for code in codes[:3]]
        verdicts[cell] = [room.verdict for room in rooms]
    assert verdicts == {5: ["ok", "crowded", "crowded"], 6: ["ok", "crowded", "crowded"]}


# --- who is in it ---------------------------------------------------------------------------------


async def test_members_are_listed_in_the_order_of_joining(store: Store) -> None:
    await created(store)
    room = await joined(store, "s-9", "s-3", "s-5")
    assert names(room) == ["s-1", "s-9", "s-3", "s-5"]
    await store.rooms.leave(CODE, "s-1")
    assert names(await joined(store, "s-1")) == ["s-9", "s-3", "s-5", "s-1"], "who comes back came last"


async def test_repeated_join_changes_name_and_language_only(store: Store) -> None:
    await created(store)
    first = await joined(store, "s-2")
    await store.rooms.set_voice(CODE, "s-2", "s-1", wanted=False)
    again = await store.rooms.join(CODE, "s-2", "Bobby", "fr")
    before, after = first.members[1], again.members[1]
    assert names(again) == ["s-1", "s-2"]
    assert after == RoomMember("s-2", "Bobby", "fr", before.joined_ms, {"s-1": False})


async def test_members_per_room_are_bounded(store: Store) -> None:
    await created(store, "s-0")
    answers = await asyncio.gather(*(store.rooms.join(CODE, f"s-{n}", "", "") for n in range(1, 9)))
    assert sorted(room.verdict for room in answers) == ["full"] * 5 + ["ok"] * 3
    room = await store.rooms.get(CODE)
    assert len(room.members) == 4
    inside = room.members[-1].session_id
    assert (await store.rooms.join(CODE, inside, "Ann", "en")).verdict == "ok", "who is in is not kept out"
    await store.rooms.leave(CODE, inside)
    assert (await store.rooms.join(CODE, "s-late", "", "")).verdict == "ok"


async def test_missing_room_is_gone_for_every_request(store: Store, raw: RedisClient, keys: Keys) -> None:
    assert await store.rooms.join(CODE, "s-1", "", "") == Room("gone")
    assert await store.rooms.speak(CODE, "s-1") == Room("gone")
    assert await store.rooms.get(CODE) == Room("gone")
    assert await store.rooms.set_voice(CODE, "s-1", "s-2", wanted=True) == Room("gone")
    assert not raw.exists(keys.room(cell_of(CODE, CELLS), CODE))


async def test_leave_is_idempotent_and_the_last_one_deletes_the_room(
    store: Store, raw: RedisClient, keys: Keys
) -> None:
    room = await created(store)
    await joined(store, "s-2")
    for _ in range(2):
        left = await store.rooms.leave(CODE, "s-1")
        assert (left.verdict, left.room_id, names(left)) == ("ok", room.room_id, ["s-2"])
    assert names(await store.rooms.leave(CODE, "s-stranger")) == ["s-2"]
    assert (await store.rooms.leave(CODE, "s-2"))[:3] == ("ok", room.room_id, ())
    assert await store.rooms.leave(CODE, "s-2") == Room("gone")
    cell = cell_of(CODE, CELLS)
    assert not raw.exists(keys.room(cell, CODE)) and raw.zscore(keys.rooms(cell), CODE) is None


async def test_version_increases_with_changes_of_members_only(store: Store) -> None:
    versions = [(await created(store)).version]
    for change in (
        store.rooms.join(CODE, "s-2", "Bob", "es"),
        store.rooms.set_voice(CODE, "s-2", "s-1", wanted=False),
        store.rooms.join(CODE, "s-2", "Bob", "fr"),
        store.rooms.leave(CODE, "s-1"),
    ):
        versions.append((await change).version)
    assert versions == sorted(set(versions)) and versions[0] > 0
    for same in (store.rooms.speak(CODE, "s-2"), store.rooms.get(CODE), store.rooms.leave(CODE, "s-1")):
        assert (await same).version == versions[-1]


# --- voices ---------------------------------------------------------------------------------------


async def test_voice_settings_are_stored_per_member(store: Store) -> None:
    await created(store)
    await joined(store, "s-2", "s-3")
    await store.rooms.set_voice(CODE, "s-2", "s-1", wanted=False)
    room = await store.rooms.set_voice(CODE, "s-2", "s-3", wanted=True)
    assert [member.voices for member in room.members] == [{}, {"s-1": False, "s-3": True}, {}]
    room = await store.rooms.set_voice(CODE, "s-2", "s-1", wanted=True)
    assert room.members[1].voices == {"s-1": True, "s-3": True}
    assert await store.rooms.set_voice(CODE, "s-9", "s-1", wanted=True) == Room("outsider")
    assert await store.rooms.set_voice(CODE, "s-1", "s-9", wanted=True) == Room("stranger")


async def test_voice_settings_for_a_member_are_deleted_with_it(store: Store) -> None:
    await created(store)
    await joined(store, "s-2", "s-3")
    await store.rooms.set_voice(CODE, "s-1", "s-2", wanted=False)
    await store.rooms.set_voice(CODE, "s-3", "s-2", wanted=False)
    await store.rooms.set_voice(CODE, "s-3", "s-1", wanted=False)
    left = await store.rooms.leave(CODE, "s-2")
    assert [member.voices for member in left.members] == [{}, {"s-1": False}]
    assert [member.voices for member in (await joined(store, "s-2")).members] == [{}, {"s-1": False}, {}]


# --- silence --------------------------------------------------------------------------------------


async def test_idle_room_is_deleted_and_one_caller_gets_its_members(store: Store, raw: RedisClient, keys: Keys) -> None:
    await created(store)
    await joined(store, "s-2")
    cell = cell_of(CODE, CELLS)
    assert await store.rooms.expire(cell) == []
    silence(raw, keys, CODE, 60_000)
    told = [ended for found in await asyncio.gather(*(store.rooms.expire(cell) for _ in range(8))) for ended in found]
    assert [(code, names(room)) for code, room in told] == [(CODE, ["s-1", "s-2"])]
    assert not raw.exists(keys.room(cell, CODE)) and raw.zcard(keys.rooms(cell)) == 0
    await created(store, "s-3")


@pytest.mark.parametrize("keeps_alive", ["join", "speak"])
async def test_join_and_speech_reset_the_idle_timeout(
    store: Store, raw: RedisClient, keys: Keys, keeps_alive: str
) -> None:
    await created(store)
    silence(raw, keys, CODE, 100_000)
    if keeps_alive == "join":
        await joined(store, "s-2")
    else:
        assert names(await store.rooms.speak(CODE, "s-1")) == ["s-1"]
    assert await store.rooms.expire(cell_of(CODE, CELLS)) == []


async def test_reads_leaves_and_outsiders_do_not_reset_the_idle_timeout(
    store: Store, raw: RedisClient, keys: Keys
) -> None:
    await created(store)
    await joined(store, "s-2")
    silence(raw, keys, CODE, 100_000)
    await store.rooms.get(CODE)
    await store.rooms.set_voice(CODE, "s-1", "s-2", wanted=False)
    await store.rooms.leave(CODE, "s-2")
    assert await store.rooms.speak(CODE, "s-2") == Room("outsider")
    assert [code for code, _ in await store.rooms.expire(cell_of(CODE, CELLS))] == [CODE]


async def test_idle_rooms_are_deleted_in_bounded_batches(
    runner: Runner, keys: Keys, config: Config, raw: RedisClient
) -> None:
    store = Store(runner, keys, msgspec.structs.replace(config, rooms=RoomsConfig()))
    codes = codes_in(5)[:100]
    await asyncio.gather(*(created(store, f"s-{code}", code) for code in codes))
    for code in codes:
        silence(raw, keys, code, 10**7)
    ended = [[code for code, _ in await store.rooms.expire(5)] for _ in range(3)]
    assert [len(some) for some in ended] == [64, 36, 0]
    assert sorted(ended[0] + ended[1]) == codes


async def test_room_with_a_lost_record_is_removed_from_the_list(store: Store, raw: RedisClient, keys: Keys) -> None:
    room = await created(store)
    assert room.room_id
    cell = cell_of(CODE, CELLS)
    raw.delete(keys.room(cell, CODE))
    silence(raw, keys, CODE, 100_000)
    assert await store.rooms.expire(cell) == [(CODE, Room("ended"))]
    assert raw.zcard(keys.rooms(cell)) == 0
