"""Fifty times kill -9 of selectors, nodes and edges during jobs: no slot leaks, and none is assigned twice."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import redis as redis_client

from linguamesh.errors import SessionError, Unreachable
from linguamesh.local.redis_server import RedisServer, free_port
from linguamesh.session import Session
from mesh.cells import cell_of
from mesh.config.network import MeshConfig
from mesh.keys import Keys
from tests.support.clients.sdk import AUDIO, query
from tests.support.conditions import until
from tests.support.processes.fleet import events_of
from tests.support.processes.running_mesh import MeshProcess, RunningMesh

SEED = 20_260_301
KILLS = 50
SELECTORS, EDGES, FLEETS = 3, 3, 3
NODES_EACH, MAX_JOBS = 2, 2
#: Half of the slots are in use.
SPEAKERS = 6
HEARTBEAT_MS = 500
ENV = {
    "LINGUA_NODE_HEARTBEAT_INTERVAL_MS": str(HEARTBEAT_MS),
    "LINGUA_EDGE_HEARTBEAT_MIN_MS": "100",
    "LINGUA_NODE_AUDIT_GRACE_MS": "400",
    "LINGUA_NODE_STATUS_SCAN_MS": "500",
    "LINGUA_EDGE_RECONNECT_GRACE_MS": "500",
    "LINGUA_JOB_PENDING_TIMEOUT_MS": "5000",
    "LINGUA_JOB_DISPATCHED_TIMEOUT_MS": "3000",
    "LINGUA_JOB_DEADLINE_MS": "15000",
}


class Ledger:
    """Every node's slots as Redis has them, looked at all the time."""

    LOOK = "return {redis.call('ZCARD', KEYS[2]), redis.call('HGET', KEYS[1], 'max_jobs')}"

    def __init__(self, server: RedisServer, nodes: list[str]) -> None:
        self._client: redis_client.Redis = server.client()
        cells, keys = MeshConfig().cells, Keys()
        self._keys = {
            node: (keys.node(cell_of(node, cells), node), keys.leases(cell_of(node, cells), node)) for node in nodes
        }
        self._stop = threading.Event()
        self.oversold: list[tuple[str, int, int]] = []
        self.looks = 0
        self.busy_looks = 0

    def look(self) -> dict[str, int]:
        """Node -> slots in use now. One script per node, so that slots and limit are of one moment."""
        used = {}
        for node, keys in self._keys.items():
            count, max_jobs = self._client.eval(self.LOOK, 2, *keys)  # type: ignore[misc]
            used[node] = int(count)
            if count > int(max_jobs or MAX_JOBS):
                self.oversold.append((node, int(count), int(max_jobs or MAX_JOBS)))
        self.looks += 1
        self.busy_looks += any(used.values())
        return used

    @contextmanager
    def watched(self) -> Iterator[None]:
        def run() -> None:
            while not self._stop.wait(0.02):
                self.look()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def close(self) -> None:
        self._client.close()


class Killer:
    """Kills one process after another and starts each again, by a schedule that the seed fixes."""

    def __init__(self, mesh: RunningMesh, url: str) -> None:
        self._mesh = mesh
        self._url = url
        self._chance = random.Random(SEED)
        self.kills: Counter[str] = Counter()

    async def run(self) -> None:
        counts = {"selector": SELECTORS, "edge": EDGES, "nodes": FLEETS}
        for _ in range(KILLS):
            kind = self._chance.choice(list(counts))
            # All of its kind serve again, so that the mesh serves without the next victim.
            for index in range(counts[kind]):
                await self._serves(f"{kind}-{index}")
            # In the middle of jobs: some time after the last one, which differs each time.
            await asyncio.sleep(self._chance.uniform(0.02, 0.3))
            victim = self._chance.randrange(counts[kind])
            self._mesh.kill(f"{kind}-{victim}")
            self.start(kind, victim)
            self.kills[kind] += 1
        for name in list(self._mesh.processes):
            await self._serves(name)

    async def _serves(self, name: str) -> None:
        process = self._mesh.processes[name]
        if not process.ready:
            await asyncio.to_thread(process.wait_ready)

    def start(self, kind: str, index: int) -> MeshProcess:
        if kind != "nodes":
            return self._mesh.start(kind, index)
        options = ("--events", str(self._mesh.directory / f"events-{index}"), "--count", str(NODES_EACH))
        more = ("--max-jobs", str(MAX_JOBS), "--work-ms", "60", "--heartbeat-ms", str(HEARTBEAT_MS))
        return self._mesh.start_nodes(f"nodes-{index}", self._url, *options, *more)


class Speakers:
    """Sessions that translate until stopped, each opened again when its edge dies. Counts outcomes of utterances."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = asyncio.Event()
        self.ends: Counter[str] = Counter()

    async def run(self) -> None:
        await asyncio.gather(*(self._speak() for _ in range(SPEAKERS)))

    def stop(self) -> None:
        self._stop.set()

    async def _speak(self) -> None:
        while not self._stop.is_set():
            try:
                async with Session(self._url, src="en", tgt="es", open_timeout=5) as session:
                    while not self._stop.is_set():
                        await self._one(session)
            except Unreachable:
                await asyncio.sleep(0.05)  # no edge listens at this moment
            except SessionError as error:
                self.ends[error.code] += 1

    async def _one(self, session: Session) -> None:
        try:
            await session.translate(AUDIO)
            self.ends["result"] += 1
        except SessionError as error:
            self.ends[error.code] += 1
            if error.code in ("WS_DISCONNECTED", "SESSION_CLOSED"):
                raise


async def test_fifty_kills_leak_no_slot_and_sell_none_twice(redis_server, mesh_dir) -> None:
    port = free_port()
    url = f"ws://127.0.0.1:{port}"
    nodes = [f"nodes-{fleet}-{number}" for fleet in range(FLEETS) for number in range(NODES_EACH)]
    ledger = Ledger(redis_server, nodes)
    env = {**ENV, "LINGUA_EDGE_PORT": str(port)}
    with RunningMesh(mesh_dir, redis_server.url, edges=EDGES, selectors=SELECTORS, env=env) as mesh:
        killer, speakers = Killer(mesh, url), Speakers(url)
        for index in range(FLEETS):
            killer.start("nodes", index).wait_ready()
        with ledger.watched():
            speaking = asyncio.create_task(speakers.run())
            await killer.run()
            speakers.stop()
            await speaking
            ended_s = time.time()
            await until(lambda: heartbeats_since(mesh, ended_s, nodes) > 2, "all nodes sent two heartbeats")
        leases = ledger.look()
        invariants = await query(mesh.operator(), "invariants")
    story = f"kills {dict(killer.kills)}, utterances {dict(speakers.ends)}, invariants {invariants}"
    assert ledger.busy_looks > KILLS, f"too little was going on: {story}"
    assert speakers.ends["result"] > KILLS, story
    assert killer.kills.total() == KILLS
    assert ledger.oversold == [], story
    assert {node: count for node, count in leases.items() if count} == {}, story
    assert invariants["oversold"] == [], story
    assert invariants["ledger"]["drift"] == 0, story
    assert invariants["jobs"]["balanced"], story
    assert invariants["ok"], story
    ledger.close()


def heartbeats_since(mesh: RunningMesh, since_s: float, nodes: list[str]) -> int:
    """The fewest heartbeats that any node has begun since then. The one before the last was certainly sent."""
    counts = Counter(dict.fromkeys(nodes, 0))
    for index in range(FLEETS):
        for event in events_of(mesh.directory / f"events-{index}", "heartbeat"):
            counts[event["node"]] += event["at_s"] > since_s
    return min(counts.values())
