"""Rooms through real selectors: made, joined, left, spoken and signalled in, and closed when nobody speaks."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from mesh.cells import cell_of
from mesh.frames import (
    Failed,
    Frame,
    Post,
    Posted,
    RoomRequest,
    RoomSignal,
    RoomState,
    SessionClaim,
    SessionClaimed,
    SessionNote,
)
from mesh.ids import is_code
from mesh.keys import Keys
from tests.support.processes.selector import FakeEdge, Rig, selecting, until

RedisClient = redis.Redis | redis.RedisCluster
REFS = itertools.count(1)


@pytest.fixture(scope="module", params=["server", "cluster"])
def mesh(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Two selectors that look for silent rooms all the time."""
    process = "_redis_process" if request.param == "server" else "_cluster_processes"
    with selecting(
        request.getfixturevalue(process),
        "s1",
        "s2",
        LINGUA_ROOMS_MEMBERS_MAX="4",
        LINGUA_ROOMS_ROOMS_MAX="1600",
        LINGUA_ROOMS_SCAN_MS="20",
        LINGUA_ROOMS_SILENT_MS="60000",
        LINGUA_SELECTOR_PRESENCE_TTL_MS="3600000",  # the edges of these tests report to nobody
    ) as rig:
        yield rig


def ask(edge: FakeEdge, action: str, session_id: str, code: str = "", **fields: Any) -> str:
    """Send a request as an edge does; its ref."""
    ref = str(next(REFS))
    frame = RoomRequest(ref, edge.identity, session_id, action, code, **fields)
    edge.send_record(code or session_id, frame)
    return ref


async def answer(edge: FakeEdge, ref: str) -> Any:
    """What came of a request."""
    frame, _ = await edge.take(Frame, lambda frame: getattr(frame, "ref", None) == ref)
    return frame


async def asked(edge: FakeEdge, action: str, session_id: str, code: str = "", **fields: Any) -> Any:
    return await answer(edge, ask(edge, action, session_id, code, **fields))


async def room_of(edge: FakeEdge, *session_ids: str) -> str:
    """A room with these members, in this order; its code."""
    state = await asked(edge, "create", session_ids[0])
    for session_id in session_ids[1:]:
        state = await asked(edge, "join", session_id, state.room_code)
    assert names(state) == list(session_ids)
    return str(state.room_code)


async def claim(edge: FakeEdge, session_id: str) -> int:
    ref = str(next(REFS))
    frame = SessionClaim(ref, session_id, edge.identity, 0, "", "en", "es", token="t", resumable=True)
    edge.send_record(session_id, frame)
    claimed, _ = await edge.take(SessionClaimed, lambda frame: frame.ref == ref)
    return claimed.epoch


def names(state: RoomState) -> list[str]:
    return [member.session_id for member in state.members]


def silence(raw: RedisClient, rig: Rig, code: str) -> None:
    """Let it be long ago that somebody spoke in the room."""
    raw.zincrby(Keys().rooms(cell_of(code, rig.config.mesh.cells)), -(10**7), code)


# --- requests ---------------------------------------------------------------------------------------------


async def test_a_room_from_its_first_member_to_its_last(edge: FakeEdge) -> None:
    made = await asked(edge, "create", "s-1", display_name="Ann", preferred_lang="en")
    assert isinstance(made, RoomState) and is_code(made.room_code) and len(made.room_id) == len("room-") + 32
    assert [(one.session_id, one.display_name, one.preferred_lang) for one in made.members] == [("s-1", "Ann", "en")]
    code = made.room_code
    joined = await asked(edge, "join", "s-2", code, display_name="Bob", preferred_lang="es")
    assert names(joined) == ["s-1", "s-2"] and joined.room_id == made.room_id
    again = await asked(edge, "join", "s-2", code, display_name="Bobby", preferred_lang="fr")
    assert [(one.display_name, one.preferred_lang) for one in again.members] == [("Ann", "en"), ("Bobby", "fr")]
    preferred = await asked(edge, "prefer", "s-2", code, target="s-1", wanted=False)
    assert [one.voices for one in preferred.members] == [{}, {"s-1": False}]
    assert (await asked(edge, "speak", "s-1", code)).members == preferred.members
    assert (await asked(edge, "look", "s-2", code)).members == preferred.members
    left = await asked(edge, "leave", "s-1", code)
    assert names(left) == ["s-2"] and left.members[0].voices == {}
    assert (await asked(edge, "leave", "s-1", code)).members == left.members, "it may be repeated"
    assert names(await asked(edge, "leave", "s-2", code)) == []
    gone = await asked(edge, "leave", "s-2", code)
    assert (gone.room_code, gone.room_id, gone.members) == (code, "", []), "who leaves a room that is gone has left it"


@pytest.mark.parametrize(
    ("action", "session_id", "code", "fields", "error"),
    [
        ("join", "s-9", "000001", {}, "ROOM_NOT_FOUND"),
        ("speak", "s-9", "000001", {}, "ROOM_NOT_FOUND"),
        ("look", "s-9", "000001", {}, "ROOM_NOT_FOUND"),
        ("prefer", "s-9", "000001", {"target": "s-1"}, "ROOM_NOT_FOUND"),
        ("join", "s-9", "12345", {}, "INVALID_ROOM_CODE"),
        ("join", "s-9", "1234567", {}, "INVALID_ROOM_CODE"),
        ("leave", "s-9", "{x}:no", {}, "INVALID_ROOM_CODE"),
        ("speak", "s-9", "", {}, "INVALID_ROOM_CODE"),
        ("speak", "s-9", "its", {}, "NOT_IN_ROOM"),
        ("look", "s-9", "its", {}, "NOT_IN_ROOM"),
        ("prefer", "s-9", "its", {"target": "s-1"}, "NOT_IN_ROOM"),
        ("prefer", "s-1", "its", {"target": "s-9"}, "MEMBER_NOT_FOUND"),
        ("dance", "s-1", "its", {}, "INVALID_MESSAGE"),
        ("create", "{x}", "", {}, "INVALID_ID"),
    ],
)
async def test_what_cannot_be_done_is_refused_by_name(
    edge: FakeEdge, action: str, session_id: str, code: str, fields: dict[str, Any], error: str
) -> None:
    its = await room_of(edge, "s-1")
    refused = await asked(edge, action, session_id, its if code == "its" else code, **fields)
    assert isinstance(refused, Failed) and refused.code == error and refused.message
    assert names(await asked(edge, "look", "s-1", its)) == ["s-1"]


async def test_eight_who_race_into_a_room_of_four(rig: Rig, edge: FakeEdge) -> None:
    code = await room_of(edge, "s-0")
    refs = [ask(edge, "join", f"s-{number}", code) for number in range(1, 9)]
    answers = [await answer(edge, ref) for ref in refs]
    inside = [frame for frame in answers if isinstance(frame, RoomState)]
    refused = [frame for frame in answers if isinstance(frame, Failed)]
    assert (len(inside), {frame.code for frame in refused}) == (3, {"ROOM_FULL"})
    assert len((await asked(edge, "look", "s-0", code)).members) == 4


async def test_a_thousand_rooms_have_a_thousand_codes(edge: FakeEdge) -> None:
    rooms: list[RoomState] = []
    for start in range(0, 1_000, 50):
        refs = [ask(edge, "create", f"s-{number}") for number in range(start, start + 50)]
        rooms += [await answer(edge, ref) for ref in refs]
    assert all(isinstance(room, RoomState) and is_code(room.room_code) for room in rooms)
    assert len({room.room_code for room in rooms}) == len({room.room_id for room in rooms}) == 1_000


async def test_a_request_for_a_room_that_is_repeated_makes_one_room(rig: Rig, edge: FakeEdge, raw: RedisClient) -> None:
    ref = str(next(REFS))
    frame = RoomRequest(ref, edge.identity, "s-1", "create")
    for name in ("s1", "s2", "s1", "s2"):
        assert edge.link.send(rig.identities[name], 0, frame)
    answers = [await answer(edge, ref) for _ in range(4)]
    assert answers == [answers[0]] * 4 and names(answers[0]) == ["s-1"]
    assert len(list(raw.scan_iter("lingua:*:room:*"))) == 1
    later = await asked(edge, "create", "s-1")
    assert later.room_code == answers[0].room_code, "its client asked again, because the edge gave up too early"


async def test_when_there_are_as_many_rooms_as_may_be(rig: Rig) -> None:
    rig.spawn("selector", "small", LINGUA_ROOMS_ROOMS_MAX="16", LINGUA_ROOMS_CODE_TRIES_MAX="100")
    edge = await rig.add_edge("b")

    async def create(*numbers: int) -> list[Any]:
        refs = {str(next(REFS)): number for number in numbers}
        for ref, number in refs.items():
            frame = RoomRequest(ref, edge.identity, f"s-{number}", "create")
            assert edge.link.send(rig.identities["small"], 0, frame)
        return [await answer(edge, ref) for ref in refs]

    answers = await create(*range(40))
    made = [frame for frame in answers if isinstance(frame, RoomState)]
    assert len(made) == len({cell_of(room.room_code, rig.config.mesh.cells) for room in made}) == 16
    assert {frame.code for frame in answers if isinstance(frame, Failed)} == {"TOO_MANY_ROOMS"}
    await asked(edge, "leave", made[0].members[0].session_id, made[0].room_code)
    later = await create(*range(100, 110))
    assert sum(isinstance(frame, RoomState) for frame in later) == 1, "there is one place again"


# --- signals ----------------------------------------------------------------------------------------------


async def test_a_signal_reaches_the_other_members_edge(rig: Rig, edge: FakeEdge) -> None:
    other = await rig.add_edge("b")
    code = await room_of(edge, "s-1", "s-2")
    await claim(other, "s-2")
    edge.send_record(code, RoomSignal("77", edge.identity, "s-1", code, "s-2"), b'{"type":"webrtc_offer"}')
    post, payload = await other.take(Post)
    assert (post.ref, post.edge, post.session_id, post.kind) == ("77", edge.identity, "s-2", "signal")
    assert (post.room_code, post.park, payload) == (code, False, [b'{"type":"webrtc_offer"}'])
    assert edge.identity in post.key and "77" in post.key, "no other edge's signals have this key"


async def test_signals_arrive_in_the_order_in_which_they_were_sent(rig: Rig, edge: FakeEdge) -> None:
    other = await rig.add_edge("b")
    code = await room_of(edge, "s-1", "s-2")
    await claim(other, "s-2")
    for number in range(100):
        edge.send_record(code, RoomSignal(str(number), edge.identity, "s-1", code, "s-2"), b"%d" % number)
    bodies = [(await other.take(Post))[1][0] for _ in range(100)]
    assert bodies == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize(
    ("sender", "target", "code", "error"),
    [
        ("s-9", "s-2", "its", "NOT_IN_ROOM"),
        ("s-1", "s-9", "its", "MEMBER_NOT_FOUND"),
        ("s-1", "s-3", "its", "RAW_VOICE_DECLINED"),
        ("s-1", "s-2", "000001", "ROOM_NOT_FOUND"),
        ("s-1", "s-2", "x", "INVALID_ROOM_CODE"),
    ],
)
async def test_a_signal_that_nobody_shall_hear(edge: FakeEdge, sender: str, target: str, code: str, error: str) -> None:
    its = await room_of(edge, "s-1", "s-2", "s-3")
    for session_id in ("s-2", "s-3"):
        await claim(edge, session_id)
    await asked(edge, "prefer", "s-3", its, target="s-1", wanted=False)
    ref, code = str(next(REFS)), its if code == "its" else code
    edge.send_record(code, RoomSignal(ref, edge.identity, sender, code, target), b"{}")
    refused = await answer(edge, ref)
    assert isinstance(refused, Failed) and refused.code == error
    assert not edge.has(Post)


async def test_a_signal_for_a_member_that_is_away_is_dropped_and_its_sender_hears_so(edge: FakeEdge) -> None:
    code = await room_of(edge, "s-1", "s-2")
    edge.send_record(code, RoomSignal("78", edge.identity, "s-1", code, "s-2"), b"{}")
    posted, _ = await edge.take(Posted)
    assert posted == Posted("78", "s-2", "no_session")


# --- silence ----------------------------------------------------------------------------------------------


async def test_a_silent_room_is_closed_and_each_member_is_told_once(rig: Rig, edge: FakeEdge, raw: RedisClient) -> None:
    other = await rig.add_edge("b")
    rooms: dict[str, list[str]] = {}
    for number in range(10):
        members = [f"s-{number}-{one}" for one in range(3)]
        for session_id in members:
            await claim(other if session_id.endswith("2") else edge, session_id)
        rooms[await room_of(edge, *members)] = members
    alive = await room_of(edge, "s-1")
    for code in rooms:
        silence(raw, rig, code)
    for code, members in rooms.items():
        for session_id in members:
            its_edge = other if session_id.endswith("2") else edge
            post, [body] = await its_edge.take(Post, lambda post, session_id=session_id: post.session_id == session_id)
            assert (post.ref, post.edge, post.kind, post.key) == ("", "", "room_expired", f"expired:{code}")
            assert (post.park, post.room_code) == (True, code)
            told = json.loads(body)
            assert (told["type"], told["room_code"]) == ("room_expired", code) and "1 minute" in told["message"]
        assert (await asked(edge, "speak", members[0], code)).code == "ROOM_NOT_FOUND"
    assert names(await asked(edge, "look", "s-1", alive)) == ["s-1"]
    # Both selectors have looked again since: whatever else they would tell has been told.
    silence(raw, rig, alive)
    await claim(edge, "s-1")
    await until_gone(rig, raw, alive)
    assert {post.frame.session_id for post in (*edge.received, *other.received) if isinstance(post.frame, Post)} <= {
        "s-1"
    }


async def until_gone(rig: Rig, raw: RedisClient, code: str) -> None:
    """The room is closed."""
    key = Keys().room(cell_of(code, rig.config.mesh.cells), code)

    async def is_so() -> bool:
        return not await asyncio.to_thread(raw.exists, key)

    await until(is_so)


async def test_a_member_that_is_away_hears_of_the_end_when_it_comes_back(
    rig: Rig, edge: FakeEdge, raw: RedisClient
) -> None:
    epoch = await claim(edge, "s-1")
    code = await room_of(edge, "s-1")
    edge.send_record("s-1", SessionNote("s-1", edge.identity, epoch, away=True, room=code))

    async def is_away() -> bool:
        async with rig.store() as store:
            [seat] = await store.sessions.owners(["s-1"])
        return bool(seat.away)  # type: ignore[union-attr]

    await until(is_away)
    silence(raw, rig, code)

    async def has_mail() -> bool:
        async with rig.store() as store:
            page = await store.sessions.read_mail("s-1", edge.identity, epoch)
        return page is not None and any(b"room_expired" in part for part in page.parts)

    await until(has_mail)


async def test_joining_and_speaking_keep_a_room_alive(rig: Rig, edge: FakeEdge, raw: RedisClient) -> None:
    code = await room_of(edge, "s-1", "s-2")
    key = Keys().rooms(cell_of(code, rig.config.mesh.cells))
    for action, session_id in (("speak", "s-1"), ("join", "s-3")):
        raw.zincrby(key, -50_000, code)
        before = raw.zscore(key, code)
        await asked(edge, action, session_id, code)
        assert raw.zscore(key, code) > before + 49_000
    raw.zincrby(key, -50_000, code)
    before = raw.zscore(key, code)
    await asked(edge, "look", "s-1", code)
    await asked(edge, "leave", "s-3", code)
    assert raw.zscore(key, code) == before
