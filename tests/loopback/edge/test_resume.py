"""Sessions that come back to a real edge while something else happens to them: ends, other connections, other edges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.sessions.core.state import Phase
from mesh.frames import (
    Frame,
    Head,
    Lane,
    Mail,
    Push,
    SessionClaim,
    SessionClaimed,
    SessionRelease,
    SessionTaken,
)
from mesh.link.link import Received
from tests.loopback.edge.test_streaming import PCM, PIECES, sound_of, told
from tests.support.processes.edge import INIT, FakeSelector, Rig, Talk, running, until

RESUMABLE = {**PCM, "resumable": True}


def token_of(talk: Talk) -> str:
    return str(next(one["resume_token"] for one in talk.received if one["type"] == "session_init_ack"))


async def back(rig: Rig, talk: Talk, edge: int = 0, **fields: Any) -> tuple[Talk, dict[str, Any]]:
    """The same client on another connection, and the acknowledgement it got."""
    places = {"last_index": -1, "last_seq": -1, **fields}
    again = await rig.session(edge, **RESUMABLE, resume_token=token_of(talk), **places)
    return again, again.received[-1]


def cut(talk: Talk) -> None:
    """The connection is lost without a goodbye."""
    talk.socket.transport.abort()


async def thank(talk: Talk, index: int, speaker: str = "") -> None:
    await talk.send({"type": "result_ack", "session_id": speaker or talk.id, "utterance_index": index})


@contextmanager
def held_back(selector: FakeSelector, holds: Callable[[Frame], bool]) -> Iterator[list[tuple[Any, ...]]]:
    """What the mesh says meanwhile and `holds` finds is said when the block ends."""
    send, kept = selector.link.send, []  # type: ignore[var-annotated]

    def hold(to: str, cell: int, frame: Frame, *payload: bytes, **options: Any) -> str:
        if holds(frame):
            kept.append((to, cell, frame, *payload))
            return ""
        return send(to, cell, frame, *payload, **options)

    selector.link.send = hold  # type: ignore[method-assign]
    try:
        yield kept
    finally:
        selector.link.send = send  # type: ignore[method-assign]
        for said in kept:
            send(*said)


async def test_session_that_ends_while_its_client_resumes_goes_on_as_if_from_elsewhere(tmp: Path) -> None:
    async with running(tmp, session_resume_ms=200) as rig:
        node, client = await rig.node(), await rig.session(**RESUMABLE)
        actors = rig.edges[0].sessions.actors
        cut(client)
        await until(lambda: actors[client.id].socket is None, "the connection is lost")
        with held_back(rig.selector, lambda frame: isinstance(frame, SessionClaimed)) as kept:
            coming = asyncio.create_task(back(rig, client))
            await until(lambda: bool(kept) and not actors, "its time is up before the answer is there")
        again, ack = await coming
        assert ack["resumed"] and again.id == client.id
        await again.chunk(0, PIECES[0], is_final=True)
        await node.answer(await node.receive("job_assign"))
        await again.receive("translation_result")


async def test_session_that_its_client_closes_is_not_resumed(tmp: Path) -> None:
    async with running(tmp) as rig:
        node, client = await rig.node(), await rig.session(**RESUMABLE)
        await client.chunk(0, PIECES[0], is_final=True)
        await node.receive("job_assign")
        await client.send({"type": "session_close", "session_id": client.id, "reason": "done"})
        await until(lambda: rig.edges[0].sessions.actors[client.id].state.phase is Phase.CLOSING, "it is being closed")
        again, ack = await back(rig, client)
        assert ack["resumed"] is False and again.id != client.id
        await again.chunk(0, PIECES[1], is_final=True)
        assert sound_of(await node.receive("job_assign", session_id=again.id)) == PIECES[1]


async def test_second_connection_that_comes_while_the_mail_is_read_gets_the_session(tmp: Path) -> None:
    async with running(tmp, edges=2) as rig:
        node, client = await rig.node(1), await rig.session(**RESUMABLE)
        for seq in range(2):
            await client.chunk(seq, PIECES[seq], is_final=True)
        jobs = [await node.receive("job_assign") for _ in range(2)]
        cut(client)
        await until(lambda: rig.selector.records[client.id].away, "the mesh knows")
        for job in jobs:
            await node.answer(job)
        await until(lambda: len(rig.selector.records[client.id].mail) == 2, "the results wait in the mail")
        with held_back(rig.selector, lambda frame: isinstance(frame, Mail)) as kept:
            first = asyncio.create_task(back(rig, client, 1))
            await until(lambda: bool(kept), "the mail is read")
            second = asyncio.create_task(back(rig, client, 1))
            read = rig.edges[1].metrics.messages_total.labels("session", "in", "session_init")
            await until(lambda: read.value == 2, "the second one waits for the first")
        (older, _), (newer, ack) = await first, await second
        assert (ack["resumed"], ack["next_utterance_index"], ack["resend_from_seq"]) == (True, 2, 2)
        await newer.receive("translation_result", utterance_index=1)
        assert [index for index, _ in told(newer)] == [0, 1]
        assert (await older.receive("error"))["code"] == "SESSION_SUPERSEDED"
        await newer.chunk(2, PIECES[2], is_final=True)
        await node.answer(await node.receive("job_assign"))
        await newer.receive("translation_result", utterance_index=2)


async def test_edge_that_hears_of_a_later_claim_first_gives_the_session_up(tmp: Path) -> None:
    """Both claimed the session at once. The other one's claim counts, and word of it came before the own answer."""
    async with running(tmp, edges=2) as rig:
        client = await rig.session(**RESUMABLE)
        cut(client)
        await until(lambda: rig.selector.records[client.id].away, "the mesh knows")
        mine = lambda frame: isinstance(frame, SessionClaimed) and frame.session_id == client.id  # noqa: E731
        with held_back(rig.selector, mine) as kept:
            first = await rig.talk("/ws/session", 1)
            await first.send({**INIT, **RESUMABLE, "resume_token": token_of(client), "last_index": -1})
            await until(lambda: bool(kept), "edge 1 claims it")
            second = asyncio.create_task(back(rig, client, 0))
            await until(lambda: kept[-1][0] == rig.edges[0].identity, "edge 0 claims it after that")
            await until(lambda: rig.edges[1].sessions.taken_epoch(client.id) > 0, "edge 1 hears of it")
        newer, ack = await second
        assert ack["resumed"] and (kept[0][0], kept[-1][0]) == (rig.edges[1].identity, rig.edges[0].identity)
        assert (await first.receive_any("error", "session_init_ack")).get("code") == "SESSION_SUPERSEDED"
        await first.socket.wait_closed()
        assert first.socket.close_code == 4009 and client.id not in rig.edges[1].sessions.actors
        await newer.send({"type": "client_heartbeat", "session_id": newer.id, "timestamp": 1})
        await newer.receive("server_heartbeat")


@pytest.mark.parametrize("here", [True, False], ids=["here", "elsewhere"])
@pytest.mark.parametrize(("last_index", "last_seq"), [(-5, -5), (10**15, 10**15), (-(2**53), 5)])
async def test_nonsense_about_where_the_client_stands_harms_nobody(
    tmp: Path, here: bool, last_index: int, last_seq: int
) -> None:
    async with running(tmp, edges=2) as rig:
        node, client = await rig.node(), await rig.session(**RESUMABLE)
        cut(client)
        await until(lambda: rig.selector.records[client.id].away, "the mesh knows")
        again, ack = await back(rig, client, 0 if here else 1, last_index=last_index, last_seq=last_seq)
        assert ack["resumed"] and ack["next_utterance_index"] >= 0 and ack["resend_from_seq"] >= 0
        await again.chunk(ack["resend_from_seq"], PIECES[0], is_final=True)
        job = await node.receive("job_assign")
        assert job["utterance_index"] == ack["next_utterance_index"] and sound_of(job) == PIECES[0]
        await node.answer(job)
        await again.receive("translation_result", utterance_index=ack["next_utterance_index"])


async def test_result_for_a_session_that_moved_there_and_back_and_closed_goes_nowhere(tmp: Path) -> None:
    async with running(tmp, edges=2) as rig:
        client = await rig.session(**RESUMABLE)
        for edge in (1, 0):
            before = client
            client, ack = await back(rig, client, edge)
            assert ack["resumed"]
            await before.receive("error")
        await client.send({"type": "session_close", "session_id": client.id, "reason": "done"})
        await client.receive("session_close_ack")
        handled: list[int] = []
        forwarded: list[int] = []
        for number, edge in enumerate(rig.edges):
            on_push, to_peer = edge.link._handlers[Push], edge.link.to_peer

            def counted(*event: Any, number: int = number, on_push: Any = on_push) -> None:
                handled.append(number)
                on_push(*event)

            def watched(peer: str, frame: Any, *payload: bytes, number: int = number, to_peer: Any = to_peer) -> Any:
                if isinstance(frame, Push):
                    forwarded.append(number)
                return to_peer(peer, frame, *payload)

            edge.link._handlers[Push] = counted
            edge.link.to_peer = watched
        push = Push("job-1-" + "0" * 32, 1, "n-1", "", "r-1", client.id, 0)
        rig.selector.link.send(rig.edges[0].identity, 0, push, b"{}")
        # An edge forwards a push while it handles it: sent to and fro, one more would always be on its way.
        await until(lambda: len(handled) == 1 + len(forwarded), f"the push ends; forwarded by {forwarded}")
        assert len(forwarded) <= 1


async def test_taken_word_about_a_session_that_is_not_here_is_of_no_consequence(tmp: Path) -> None:
    async with running(tmp) as rig:
        rig.selector.link.send(rig.edges[0].identity, 0, SessionTaken("s-none", 7, "edge:x"))
        client = await rig.session(**RESUMABLE)
        assert client.id in rig.edges[0].sessions.actors


async def test_mail_that_nobody_needs_any_more_does_not_stay(tmp: Path) -> None:
    """Two edges cut the audio in different places: the result of the one is of no use to the other."""
    async with running(tmp, edges=2) as rig:
        node, client = await rig.node(1), await rig.session(**RESUMABLE)
        trace_id = client.received[-1]["trace_id"]
        cut(client)
        await until(lambda: rig.selector.records[client.id].away, "the mesh knows")
        push = Push("job-1-" + "0" * 32, 1, "n-1", "", f"{client.id}:0:en:{trace_id}:0-7", client.id, 0)
        rig.selector.park(client.id, "1-0", push, b"{}")
        client, ack = await back(rig, client, 1, last_seq=1)
        assert (ack["next_utterance_index"], ack["resend_from_seq"]) == (0, 2)
        await client.chunk(2, PIECES[2], is_final=True)
        await node.answer(await node.receive("job_assign"))
        await client.receive("translation_result", utterance_index=0)
        assert rig.selector.records[client.id].mail
        await thank(client, 0)
        await until(lambda: not rig.selector.records[client.id].mail, "the mail is empty")


async def test_end_of_a_session_is_said_until_the_mesh_knows_it(tmp: Path) -> None:
    async with running(tmp) as rig:
        client = await rig.session(**RESUMABLE)
        rig.selector.mute = lambda frame: isinstance(frame, SessionRelease)
        await client.send({"type": "session_close", "session_id": client.id, "reason": "done"})
        await client.receive("session_close_ack")
        await until(lambda: len(rig.selector.seen_of(SessionRelease)) > 1, "it is said again")
        rig.selector.mute = lambda frame: False
        await until(lambda: not rig.selector.records, "the record is gone")
        await until(lambda: not rig.edges[0].link.asks.open, "and nothing more is said")


async def test_repeat_of_a_claim_that_is_heard_after_the_end_leaves_no_record(tmp: Path) -> None:
    """The first answer took long, so the claim was repeated; the repeat was overtaken by the session's end."""
    async with running(tmp) as rig:
        rig.selector.mute = lambda frame: isinstance(frame, SessionClaim)
        opening = asyncio.create_task(rig.session(**RESUMABLE))
        await until(lambda: len(rig.selector.seen_of(SessionClaim)) > 1, "the claim is repeated")
        rig.selector.mute = lambda frame: False
        client = await opening
        await client.send({"type": "session_close", "session_id": client.id, "reason": "done"})
        await client.receive("session_close_ack")
        await until(lambda: not rig.selector.records, "the record is gone")
        first = rig.selector.seen_of(SessionClaim)[0]
        head = Head(Lane.WORK, "", 0, rig.edges[0].identity, 0)
        rig.selector._on_sessionclaim(Received(head, first, [], broker=""))
        assert client.id in rig.selector.records
        await until(lambda: not rig.selector.records, "the edge gives it back")
