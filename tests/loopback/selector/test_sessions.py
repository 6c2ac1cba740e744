"""Sessions that move between edges and go away: claims, notes, mail and posts, on one server and on a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from lua.store.types.deployment import Presence
from mesh.cells import cell_of
from mesh.frames import (
    Assign,
    EdgeReport,
    Failed,
    Frame,
    Mail,
    MailAsk,
    MailTrim,
    Post,
    Posted,
    Push,
    ResultAck,
    ResultAcks,
    SessionClaim,
    SessionClaimed,
    SessionNote,
    SessionRelease,
    SessionReleased,
    SessionTaken,
    Undone,
    decode_frame,
)
from tests.support.builders.store import session_owner
from tests.support.conditions import DEADLINE_S
from tests.support.processes.selector import FakeEdge, Rig, selecting, until

#: Edges number their claims.
REFS = itertools.count(1)
TEXT = b'{"type":"job_result","text":"\xe4\xbd\xa0\xe5\xa5\xbd"}'


@pytest.fixture(scope="module", params=["server", "cluster"])
def mesh(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """One selector, which soon notices that an edge is gone, and pages of at most a kilobyte."""
    process = "_redis_process" if request.param == "server" else "_cluster_processes"
    settings = {
        "LINGUA_SELECTOR_PRESENCE_MS": "50",
        "LINGUA_SELECTOR_PRESENCE_TTL_MS": "500",
        "LINGUA_SELECTOR_RESULT_LOST_MS": "500",
        "LINGUA_SESSION_MAIL_PAGE_BYTES_MAX": "1024",
        "LINGUA_SESSION_MAIL_MAX": "6",
    }
    with selecting(request.getfixturevalue(process), "s1", **settings) as rig:
        yield rig


async def claim(edge: FakeEdge, session_id: str = "s-1", **more: Any) -> SessionClaimed:
    """Claim a session as edges do for clients that will come back."""
    fields = {"token": "digest", "trace_id": "t-1", "preferred_node": "node-9", "resumable": True, **more}
    ref = fields.pop("ref", "") or f"claim-{next(REFS)}"
    edge.send_record(session_id, SessionClaim(ref, session_id, edge.identity, 0, "acme", "en", "es", **fields))
    return (await edge.take(SessionClaimed, lambda frame: frame.ref == ref))[0]


async def resume(edge: FakeEdge, session_id: str = "s-1", **more: Any) -> SessionClaimed:
    return await claim(edge, session_id, resume=True, trace_id="", preferred_node="", **more)


async def go_away(rig: Rig, edge: FakeEdge, epoch: int, session_id: str = "s-1", **more: Any) -> None:
    edge.send_record(session_id, SessionNote(session_id, edge.identity, epoch, away=True, **more))
    async with rig.store() as store:

        async def is_away() -> bool:
            [seat] = await store.sessions.owners([session_id])
            assert not isinstance(seat, Exception)
            return seat.away

        await until(is_away)


async def finish_until_acked(edge: FakeEdge, assign: Assign, text: bytes = TEXT) -> ResultAck:
    """Repeat the result, as the node's edge does, until there is a word about it."""
    for resend in range(1, 200):
        edge.finish(assign, text, resend=resend)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                return await edge.take_ack(assign.job_id)
    raise AssertionError("nobody acknowledged the result")


async def read_mail(edge: FakeEdge, epoch: int, session_id: str = "s-1") -> tuple[list[tuple[Frame, bytes]], str, int]:
    """All mail of a session, the id of its last entry, and the number of pages."""
    entries: list[tuple[Frame, bytes]] = []
    after = last = ""
    async with asyncio.timeout(DEADLINE_S):
        for number in range(1, 100):
            edge.send_record(session_id, MailAsk(f"mail-{number}", session_id, edge.identity, epoch, after))
            page, parts = await edge.take(Mail, lambda frame, number=number: frame.ref == f"mail-{number}")
            entries += [(decode_frame(frame), body) for frame, body in zip(parts[::2], parts[1::2], strict=True)]
            last = page.last or last
            if not page.more:
                return entries, last, number
            after = page.last
    raise AssertionError("the mail never ends")


async def leave(rig: Rig, edge: FakeEdge) -> None:
    """The edge dies."""
    rig.edges.remove(edge)
    await edge.link.close()


# --- ownership ----------------------------------------------------------------------------------------------


async def test_the_edge_that_loses_a_session_hears_of_it_at_once_and_whenever_it_speaks_of_it(rig: Rig) -> None:
    old, new = await rig.add_edge("old"), await rig.add_edge("new")
    first = await claim(old)
    await go_away(rig, old, first.epoch, room="123456")
    second = await resume(new)
    assert second.epoch > first.epoch
    assert (second.tenant_id, second.trace_id, second.preferred_node, second.room) == (
        "acme", "t-1", "node-9", "123456",
    )  # fmt: skip
    taken, _ = await old.take(SessionTaken)
    assert taken == SessionTaken("s-1", second.epoch, new.identity)

    old.send_record("s-1", SessionNote("s-1", old.identity, first.epoch))
    told, _ = await old.take(SessionTaken)
    assert told == taken
    old.send_record("s-1", SessionRelease("s-1", old.identity, first.epoch, "ref-r"))
    released, _ = await old.take(SessionReleased)
    assert released == SessionReleased("ref-r", "s-1"), "there is no reason to say it again"
    new.send_record("s-1", SessionNote("s-1", new.identity, second.epoch))
    third = await resume(new)
    assert third.epoch > second.epoch, "the release of an old owner releases nothing"
    assert not new.has(SessionTaken), "an edge takes nothing from itself"


async def test_a_repeated_claim_gets_the_same_epoch(rig: Rig, edge: FakeEdge) -> None:
    first = await claim(edge, ref="17")
    assert await claim(edge, ref="17") == first
    edge.send_record("s-1", SessionNote("s-1", edge.identity, first.epoch))
    assert (await resume(edge)).epoch > first.epoch
    assert not edge.has(SessionTaken)


async def test_a_session_is_resumed_by_its_token_only(rig: Rig, edge: FakeEdge) -> None:
    other = await rig.add_edge("other")
    await claim(edge)
    for session_id, token in (("s-1", "guessed"), ("s-1", ""), ("s-unknown", "digest")):
        frame = SessionClaim("ref", session_id, other.identity, 0, "", "en", "es", token, resume=True)
        other.send_record(session_id, frame)
        failed, _ = await other.take(Failed)
        assert (failed.ref, failed.code) == ("ref", "INVALID_SESSION")
    assert not edge.has(SessionTaken)
    async with rig.store() as store:
        assert await session_owner(store, "s-1") == edge.identity
        assert await session_owner(store, "s-unknown") is None


async def test_an_owner_whose_record_is_gone_claims_anew(rig: Rig, edge: FakeEdge) -> None:
    first = await claim(edge)
    async with rig.store() as store:
        assert await store.sessions.release("s-1", edge.identity, first.epoch)
    edge.send_record("s-1", SessionNote("s-1", edge.identity, first.epoch))
    taken, _ = await edge.take(SessionTaken)
    assert taken == SessionTaken("s-1", 0, "")
    again = await claim(edge)
    assert again.epoch >= first.epoch
    assert (await resume(await rig.add_edge("other"))).trace_id == "t-1"


# --- results ------------------------------------------------------------------------------------------------


async def test_a_result_for_a_client_that_is_away_waits_in_the_mail_once_however_often_it_comes(rig: Rig) -> None:
    owner, node_edge, new = await rig.add_edge("owner"), await rig.add_edge("nodes"), await rig.add_edge("new")
    await node_edge.add_node("node-1")
    claimed = await claim(owner)
    assign, _ = await owner.place("r-1", at=node_edge)
    await go_away(rig, owner, claimed.epoch)
    for _ in range(3):
        ack = await finish_until_acked(node_edge, assign)
        assert ack == ResultAck("node-1", assign.job_id, 1, "parked")
    assert not owner.has(Push)

    resumed = await resume(new)
    assert (resumed.mail, resumed.lost) == (1, 0)
    [(push, body)], last, _ = await read_mail(new, resumed.epoch)
    assert push == Push(assign.job_id, 1, "node-1", node_edge.identity, "r-1", "s-1", assign.utterance_index)
    assert body == TEXT
    new.send_record("s-1", MailTrim("s-1", new.identity, resumed.epoch, last))

    async def is_trimmed() -> bool:
        return (await read_mail(new, resumed.epoch))[0] == []

    await until(is_trimmed)
    node_edge.finish(assign, TEXT, resend=9)  # its acknowledgement was lost: now the client is there
    assert (await new.take(Push))[0] == push


async def test_a_result_for_an_edge_that_died_waits_in_the_mail(rig: Rig, edge: FakeEdge) -> None:
    owner = await rig.add_edge("owner")
    await edge.add_node("node-1")
    await claim(owner)
    assign, _ = await owner.place("r-1", at=edge)
    await leave(rig, owner)
    ack = await finish_until_acked(edge, assign)
    assert ack.verdict == "parked"
    resumed = await resume(edge)
    [(push, body)], _, _ = await read_mail(edge, resumed.epoch)
    assert isinstance(push, Push) and (push.request_id, body) == ("r-1", TEXT)


async def test_a_result_that_nobody_will_ask_for_is_not_kept(rig: Rig, edge: FakeEdge) -> None:
    owner = await rig.add_edge("owner")
    await edge.add_node("node-1")
    await claim(owner, resumable=False)
    assign, _ = await owner.place("r-1", at=edge)
    await leave(rig, owner)
    assert (await finish_until_acked(edge, assign)).verdict == "no_session"


async def test_an_edge_that_only_redis_knows_to_live_gets_its_results(rig: Rig, edge: FakeEdge) -> None:
    quiet, dead = await rig.add_edge("quiet"), await rig.add_edge("dead")
    await edge.add_node("node-1", max_jobs=2)
    await claim(quiet, "s-quiet")
    await claim(dead, "s-dead")
    # It reports to another selector, which tells Redis.
    async with rig.store() as store:
        await store.deployment.announce("edge", quiet.identity, Presence("host", 1, "1.0", 0))
    assigned, _ = await quiet.place("r-quiet", session_id="s-quiet", at=edge)
    lost, _ = await dead.place("r-dead", session_id="s-dead", at=edge)
    await leave(rig, dead)
    assert (await finish_until_acked(edge, lost)).verdict == "parked", "so long has nobody heard of either"
    edge.finish(assigned, TEXT, resend=1)
    push, _ = await quiet.take(Push)
    assert push.request_id == "r-quiet"
    acks = [ack for m in edge.received if isinstance(m.frame, ResultAcks) for ack in m.frame.acks]
    assert not any(ack.job_id == assigned.job_id for ack in acks)


async def test_a_job_whose_result_died_with_its_keepers_is_done_again(rig: Rig, edge: FakeEdge) -> None:
    await edge.add_node("node-1")
    assign, _ = await edge.place("r-1")
    edge.finish(assign, TEXT)
    await edge.take(Push)  # and lost: nobody acknowledges it, nobody repeats it

    async def is_given_up() -> bool:
        edge.dispatch("r-1")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                undone, _ = await edge.take(Undone)
                assert (undone.request_id, undone.attempt, undone.job_id) == ("r-1", 1, assign.job_id)
                assert (undone.reason, undone.exclude_node) == ("result_lost", False)
                return True
        return False

    await until(is_given_up)
    again, _ = await edge.place("r-1", attempt=2)
    assert again.attempt == 2 and again.job_id != assign.job_id


async def test_an_edge_that_resumes_a_session_catches_up_with_the_attempts_of_the_one_before(
    rig: Rig, edge: FakeEdge
) -> None:
    before = await rig.add_edge("before")
    await edge.add_node("node-1", max_jobs=4)
    await before.place("r-1", at=edge)
    second, _ = await before.place("r-1", attempt=2, at=edge)
    edge.dispatch("r-1")
    undone, _ = await edge.take(Undone)
    assert (undone.attempt, undone.reason) == (1, "overtaken")
    same, _ = await edge.place("r-1", attempt=2)
    assert (same.job_id, same.session_edge) == (second.job_id, edge.identity)
    assert not before.has(Undone)


# --- posts and pages ----------------------------------------------------------------------------------------


def post(edge: FakeEdge, number: int, body: bytes = b"{}", *, session_id: str = "s-1", **more: Any) -> Post:
    frame = Post(f"post-{number}", edge.identity, session_id, "result", f"k-{number}", **more)
    edge.send_record(session_id, frame, body)
    return frame


async def posted(edge: FakeEdge, frame: Post) -> str:
    answer, _ = await edge.take(Posted, lambda posted: posted.ref == frame.ref)
    assert answer.session_id == frame.session_id
    return answer.verdict


async def test_a_post_goes_to_the_edge_that_owns_the_session(rig: Rig, edge: FakeEdge) -> None:
    owner = await rig.add_edge("owner")
    await claim(owner)
    for _ in range(2):  # repeated: its receiver knows it by its key
        frame = post(edge, 1, TEXT, park=True)
        received, payload = await owner.take(Post)
        assert (received, payload) == (frame, [TEXT])
    assert not edge.has(Posted), "the receiver answers"


async def test_a_post_for_a_session_that_is_away_waits_or_is_not_told(rig: Rig, edge: FakeEdge) -> None:
    owner = await rig.add_edge("owner")
    claimed = await claim(owner)
    assert await posted(edge, post(edge, 1, session_id="s-none", park=True)) == "no_session"
    await go_away(rig, owner, claimed.epoch)
    assert await posted(edge, post(edge, 2)) == "away"
    kept = post(edge, 3, TEXT, park=True)
    assert await posted(edge, kept) == "parked"
    assert await posted(edge, post(edge, 3, TEXT, park=True)) == "parked"
    silent = replace(kept, edge="", key="k-4")
    edge.send_record("s-1", silent, b"4")
    await posted(edge, post(edge, 5, b"5", park=True))
    resumed = await resume(edge)
    entries, _, _ = await read_mail(edge, resumed.epoch)
    assert [(entry.key, body) for entry, body in entries if isinstance(entry, Post)] == [
        ("k-3", TEXT), ("k-4", b"4"), ("k-5", b"5"),
    ]  # fmt: skip
    assert entries[0][0] == kept
    assert not edge.has(Posted) and not owner.has(Post)


async def test_a_post_for_an_edge_that_died_waits(rig: Rig, edge: FakeEdge) -> None:
    owner = await rig.add_edge("owner")
    await claim(owner)
    await leave(rig, owner)

    async def is_parked() -> bool:
        frame = post(edge, 1, TEXT, park=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                assert await posted(edge, frame) == "parked"
                return True
        return False

    await until(is_parked)
    assert (await resume(edge)).mail == 1


async def test_mail_comes_in_pages_and_the_oldest_is_lost_when_there_is_too_much(rig: Rig, edge: FakeEdge) -> None:
    claimed = await claim(edge)
    await go_away(rig, edge, claimed.epoch)
    bodies = [bytes([number]) * 400 for number in range(8)]
    for number, body in enumerate(bodies):
        assert await posted(edge, post(edge, number, body, park=True)) == "parked"
    resumed = await resume(edge)
    assert (resumed.mail, resumed.lost) == (6, 2)
    entries, last, pages = await read_mail(edge, resumed.epoch)
    assert [body for _, body in entries] == bodies[2:]
    assert pages == 3
    edge.send_record("s-1", MailAsk("old", "s-1", edge.identity, claimed.epoch))
    failed, _ = await edge.take(Failed)
    assert (failed.ref, failed.code) == ("old", "INVALID_SESSION")

    edge.send_record("s-1", MailTrim("s-1", edge.identity, claimed.epoch, last))  # of an older connection
    assert len((await read_mail(edge, resumed.epoch))[0]) == 6
    edge.send_record("s-1", MailTrim("s-1", edge.identity, resumed.epoch, last))

    async def is_trimmed() -> bool:
        return (await read_mail(edge, resumed.epoch))[0] == []

    await until(is_trimmed)
    again = await resume(edge)
    assert (again.mail, again.lost) == (0, 0)


async def test_what_is_wrong_with_one_frame_costs_no_other(rig: Rig, edge: FakeEdge) -> None:
    claimed = await claim(edge)
    edge.send_record("s-1", MailTrim("s-1", edge.identity, claimed.epoch, "nonsense"))
    edge.send_record("s-1", MailAsk("bad", "s-1", edge.identity, claimed.epoch, "nonsense"))
    report = EdgeReport(edge.identity, "host", 1, "1.0", 0, {})
    assert edge.link.send("", cell_of("s-1", rig.config.mesh.cells), report)
    assert (await read_mail(edge, claimed.epoch))[0] == []
