"""Nodes and requests for the tests of the store."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from lua.store import CommitRequest, Heartbeat, HeartbeatReply, Registered, Store
from mesh.cells import cell_of
from mesh.frames import NodeCaps, NodeLoad
from mesh.keys import Keys
from tests.lua.conftest import RedisClient

EDGE = "edge:a:0001"
CELLS = 16
#: What session_get answers about a session that there is not.
NOBODY = ["", 0, 0, 0]


def caps(max_jobs: int = 2) -> NodeCaps:
    return NodeCaps("1.0", "linux", 8, 16.0, 1, 8.0, ["asr"], ["asr"], ["en"], ["es"], [], True, max_jobs)


async def register(store: Store, node_id: str, max_jobs: int = 2, edge: str = EDGE) -> Registered:
    """A node that is ready: registered, and heard of once."""
    registered = await store.register_node(node_id, edge, caps(max_jobs), ["p1", "p2"])
    beaten = await beat(store, node_id, registered.epoch)
    return registered._replace(status=beaten.status, used=beaten.used, version=beaten.version)


async def beat(
    store: Store, node_id: str, epoch: int, *, healthy: bool = True, jobs: Iterable[str] | None = None, edge: str = EDGE
) -> HeartbeatReply:
    """One heartbeat."""
    said = None if jobs is None else tuple(jobs)
    return await store.heartbeat_node(Heartbeat(node_id, edge, epoch, NodeLoad(), healthy, said))


def request(
    request_id: str, candidates: list[str], *, session_id: str = "s-1", attempt: int = 1, unique: str = ""
) -> CommitRequest:
    unique = unique or secrets.token_hex(16)
    return CommitRequest(request_id, session_id, "edge:b:0002", 7, attempt, unique, candidates, 99_000, "trace-1")


def in_cell(prefix: str, cell: int) -> str:
    """An id that lies in the cell."""
    return next(name for name in (f"{prefix}{n}" for n in range(10_000)) if cell_of(name, CELLS) == cell)


@contextmanager
def sampled(raw: RedisClient, keys: Keys, node_ids: Iterable[str]) -> Iterator[list[int]]:
    """Looks at the nodes' leases over and over; yields the highest count seen and the number of looks."""
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
