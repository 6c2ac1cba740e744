"""Nodes and requests for the tests of the store."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from lua.engine.batch import sure
from lua.store import Store
from lua.store.jobs import split_request
from lua.store.node_view import Changes, unquote_reason
from lua.store.types.commits import CommitRequest
from lua.store.types.jobs import Advance, Advanced
from lua.store.types.nodes import Heartbeat, HeartbeatReply, Registered
from lua.store.types.sessions import Claim, Claimed
from mesh.cells import cell_of
from mesh.frames import NodeCaps, NodeLoad
from mesh.keys import Keys
from mesh.states.job import JobAction
from tests.lua.conftest import RedisClient

EDGE = "edge:a:0001"
CELLS = 16
#: Reply of session_get without a record.
NO_SESSION = ["", 0, 0, 0]
#: The times in a job's record, in the order of job_get.
JOB_TIMES = ("created", *(action.value for action in JobAction))


class JobRecord(NamedTuple):
    """The record of a job."""

    state: str
    attempt: int
    node_id: str
    request_id: str
    session_id: str
    edge: str
    #: "ok" | "failed" | ""
    outcome: str
    #: Of a release.
    reason: str
    #: `created`, and every event of mesh.states.job that happened -> when, by Redis's clock.
    times: dict[str, int]


def caps(max_jobs: int = 2) -> NodeCaps:
    return NodeCaps("1.0", "linux", 8, 16.0, 1, 8.0, ["asr"], ["asr"], ["en"], ["es"], [], True, max_jobs)


async def register(store: Store, node_id: str, max_jobs: int = 2, edge: str = EDGE) -> Registered:
    """A ready node: registered, with one heartbeat."""
    registered = await store.nodes.register(node_id, edge, caps(max_jobs), ["p1", "p2"])
    beaten = await beat(store, node_id, registered.epoch)
    return registered._replace(status=beaten.status, used=beaten.used, version=beaten.version)


async def beat(
    store: Store, node_id: str, epoch: int, *, healthy: bool = True, jobs: Iterable[str] | None = None, edge: str = EDGE
) -> HeartbeatReply:
    """One heartbeat."""
    running = None if jobs is None else tuple(jobs)
    return await store.nodes.heartbeat(Heartbeat(node_id, edge, epoch, NodeLoad(), healthy, running))


def request(
    request_id: str, candidates: list[str], *, session_id: str = "s-1", attempt: int = 1, unique: str = ""
) -> CommitRequest:
    unique = unique or secrets.token_hex(16)
    return CommitRequest(request_id, session_id, "edge:b:0002", 7, attempt, unique, candidates, 99_000, "trace-1")


async def node_changes(store: Store, cell: int, since: int, limit: int) -> Changes:
    """The nodes of one cell that changed after version `since`."""
    [changes] = await store.nodes.changes([(cell, since)], limit)
    return sure(changes)


async def advance_job(
    store: Store, job_id: str, attempt: int, node_id: str, events: str, *, success: bool = True
) -> Advanced:
    """Apply events to one job."""
    [advanced] = await store.jobs.advance([Advance(job_id, attempt, node_id, events, success)])
    return sure(advanced)


async def job_record(store: Store, job_id: str) -> JobRecord | None:
    """The record of a job, None if there is none."""
    [answer] = await store.jobs.get_many([job_id])
    state, outcome, holder, request, reason, _, times = sure(answer)
    if not state:
        return None
    attempt, _, node_id = holder.partition(" ")
    happened = {name: time_ms for name, time_ms in zip(JOB_TIMES, times, strict=True) if time_ms}
    return JobRecord(state, int(attempt), node_id, *split_request(request), outcome, unquote_reason(reason), happened)


async def claim_session(
    store: Store, session_id: str, edge: str, epoch: int, tenant_id: str, src_lang: str, tgt_lang: str
) -> Claimed:
    """Claim a session that is not resumable."""
    return await store.sessions.claim(Claim(session_id, edge, epoch, tenant_id, src_lang, tgt_lang))


async def session_owner(store: Store, session_id: str) -> str | None:
    """The edge that owns a session, None if none does."""
    [found] = await store.sessions.owners([session_id])
    return sure(found).owner or None


def in_cell(prefix: str, cell: int) -> str:
    """An id that lies in the cell."""
    return next(name for name in (f"{prefix}{n}" for n in range(10_000)) if cell_of(name, CELLS) == cell)


@contextmanager
def sampled(raw: RedisClient, keys: Keys, node_ids: Iterable[str]) -> Iterator[list[int]]:
    """Samples the nodes' leases in a thread; yields the highest count and the number of samples."""
    stop, seen = threading.Event(), [0, 0]

    def look() -> None:
        while not stop.wait(0.005):
            pipe = raw.pipeline(transaction=False)
            for node_id in node_ids:
                pipe.zcard(keys.leases(cell_of(node_id, CELLS), node_id))
            seen[0] = max(seen[0], *pipe.execute())
            seen[1] += 1

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
