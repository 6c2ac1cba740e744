"""An edge keeps no memory of closed sessions: ten thousand of them, of every kind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

from edge.sessions.actor import Actor
from tests.loopback.edge.test_streaming import PCM, PIECES
from tests.support.conditions import until
from tests.support.processes.edge import Rig, Talk, running

SESSIONS = 10_000
#: Sessions that are open at the same time.
TOGETHER = 50


async def close(client: Talk) -> None:
    await client.send({"type": "session_close", "session_id": client.id, "reason": "done"})
    await client.receive("session_close_ack")


async def one_that_streams(rig: Rig) -> None:
    client = await rig.session(**PCM)
    await client.chunk(0, PIECES[0], is_final=True)
    await client.receive("translation_result")
    await client.chunk(1, PIECES[1])
    await close(client)  # which cuts the rest
    await client.close()


async def one_that_vanishes(rig: Rig) -> None:
    client = await rig.session(**PCM)
    await client.chunk(0, PIECES[0])
    client.socket.transport.abort()


async def one_that_could_resume_and_does_not(rig: Rig) -> None:
    client = await rig.session(**PCM, resumable=True)
    await client.chunk(0, PIECES[0], is_final=True)
    await client.receive("translation_result")  # and does not acknowledge it
    client.socket.transport.abort()


async def one_that_resumes(rig: Rig) -> None:
    client = await rig.session(**PCM, resumable=True)
    await client.chunk(0, PIECES[0])
    token = client.received[0]["resume_token"]
    client.socket.transport.abort()
    again = await rig.session(**PCM, resumable=True, resume_token=token, last_index=-1, last_seq=-1)
    await again.chunk(1, PIECES[1], is_final=True)
    await again.receive("translation_result")
    await close(again)
    await again.close()


async def one_in_a_room(rig: Rig) -> None:
    client = await rig.session(**PCM)
    await client.send({"type": "room_create", "client_ts": 1, "preferred_lang": "en"})
    await client.receive("room_members")
    await client.chunk(0, PIECES[0], is_final=True)
    await client.receive("translation_result")
    client.socket.transport.abort()


KINDS = (one_that_streams, one_that_vanishes, one_that_could_resume_and_does_not, one_that_resumes, one_in_a_room)


async def test_nothing_is_kept_of_ten_thousand_sessions(tmp: Path, monkeypatch: Any) -> None:
    made: weakref.WeakSet[Actor] = weakref.WeakSet()
    count = 0
    init = Actor.__init__

    def counted(self: Actor, *args: Any, **fields: Any) -> None:
        nonlocal count
        count += 1
        made.add(self)
        init(self, *args, **fields)

    monkeypatch.setattr(Actor, "__init__", counted)
    async with running(tmp, session_resume_ms=1_000, session_close_ms=10_000) as rig:
        node = await rig.node(max_concurrent_jobs=64)

        async def work() -> None:
            while True:
                await node.answer(await node.receive("job_assign"))
                node.received.clear()

        async def visit(number: int) -> None:
            for turn in range(number, SESSIONS, TOGETHER):
                await KINDS[turn % len(KINDS)](rig)
                rig.selector.seen.clear()
                rig.forget_talks()

        working = asyncio.create_task(work())
        await asyncio.gather(*(visit(number) for number in range(TOGETHER)))
        sessions, link = rig.edges[0].sessions, rig.edges[0].link
        await until(lambda: not sessions.actors, "every session has ended")
        await until(lambda: not link.asks.open, "no question is open")
        assert count >= SESSIONS  # one that resumes too late makes another
        await until(lambda: not (sessions.sockets or sessions.tracker.requests or len(sessions.relay)), "all is quiet")
        assert len(sessions._timers) == 0
        table = sessions.tracker.table
        table.check()
        assert not table.sessions and not table._resumed and not table.audio_bytes
        await until(lambda: not rig.selector.sessions, "the mesh is notified of each end")
        working.cancel()
        await asyncio.wait([working])
        gc.collect()
        assert len(made) == 0, "no object holds a closed session"
