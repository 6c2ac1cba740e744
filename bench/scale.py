"""Does a dispatch cost more in a large fleet? The selector's way from Dispatch to Assign, with a real Redis.

100, 1,000 and 10,000 nodes take turns, round after round, so that a noisy moment of the machine hits all alike. While a
fleet is measured its heartbeats flow as in life, 15 s apart per node, from a process of its own (`python -m bench.scale
beats URL PREFIX COUNT`), and its snapshot is kept up to date. Waiting for Redis is part of the figure.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from prometheus_client import CollectorRegistry

from bench.table import ms, percentile, print_table
from linguamesh.local.redis_server import RedisServer
from lua.engine.runner import Runner
from lua.store import Store
from lua.store.types.nodes import Heartbeat
from mesh.config import Config
from mesh.config.network import MeshConfig, RedisConfig
from mesh.frames import Assign, Dispatch, Frame, Head, Lane, NodeCaps, NodeLoad
from mesh.keys import Keys
from mesh.link.link import Received
from mesh.random_ids import new_session_id
from selector.context import SelectorContext
from selector.core.node_table import NodeTable
from selector.fleet.snapshot import Snapshot
from selector.metrics import SelectorMetrics
from selector.operators.decision_log import DecisionLog
from selector.placement.placer import Placer
from selector.placement.weights import CurrentWeights

FLEETS = (100, 1_000, 10_000)
BATCHES = (1, 64)
ROUNDS = 5
#: Batches of each size in one round of one fleet.
SAMPLES = {1: 200, 64: 20}
HEARTBEAT_S = 15.0
#: How often the heartbeats that are due go out.
BEATS_PER_S = 20
#: What a dispatch may cost at most, beside the smallest fleet.
BAR = 1.5
EDGE = "edge:bench:1"
LANGUAGES = ["en", "es", "zh", "ja"]
SERVICES = ["asr", "nmt", "tts"]
CAPS = NodeCaps("1", "linux", 8, 16.0, 1, 8.0, SERVICES, SERVICES, LANGUAGES, LANGUAGES, [], True, 1_000)


def _config(url: str, prefix: str) -> Config:
    return Config(redis=RedisConfig(url=url), mesh=MeshConfig(key_prefix=prefix))


# --- the process of heartbeats ----------------------------------------------------------------------


async def _beats(url: str, prefix: str, count: int) -> None:
    """Register the fleet; then each line on stdin turns its heartbeats on or off."""
    config = _config(url, prefix)
    runner = await Runner.connect(config.redis)
    store = Store(runner, Keys(prefix), config)
    names = [f"node-{index}" for index in range(count)]
    beats: list[Heartbeat] = []
    for start in range(0, count, 500):
        part = names[start : start + 500]
        registered = await asyncio.gather(*(store.nodes.register(name, EDGE, CAPS, []) for name in part))
        beats += [
            Heartbeat(name, EDGE, node.epoch, NodeLoad(), True) for name, node in zip(part, registered, strict=True)
        ]
        await store.nodes.heartbeat_many(beats[start:])
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        flowing = asyncio.create_task(_flow(store, beats))
        await asyncio.to_thread(sys.stdin.readline)
        flowing.cancel()
        await asyncio.wait({flowing})
    await runner.close()


async def _flow(store: Store, beats: list[Heartbeat]) -> None:
    per_turn = len(beats) / HEARTBEAT_S / BEATS_PER_S
    place = 0.0
    while True:
        due = beats[int(place) : int(place + per_turn)]
        if due:
            await store.nodes.heartbeat_many(due)
        place = place + per_turn if place + per_turn < len(beats) else 0.0
        await asyncio.sleep(1 / BEATS_PER_S)


# --- what is measured -------------------------------------------------------------------------------


@dataclass
class Fleet:
    """One fleet and a selector's placer for it."""

    count: int
    runner: Runner
    snapshot: Snapshot
    placer: Placer
    beats: asyncio.subprocess.Process
    assigned: list[Assign]
    #: Batch size -> seconds per dispatch, one for each batch.
    seconds: dict[int, list[float]] = field(default_factory=lambda: {size: [] for size in BATCHES})

    @classmethod
    async def start(cls, url: str, count: int) -> Fleet:
        prefix = f"bench{count}"
        command = [sys.executable, "-m", "bench.scale", "beats", url, prefix, str(count)]
        beats = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert beats.stdout is not None
        await beats.stdout.readline()
        config = _config(url, prefix)
        runner = await Runner.connect(config.redis)
        store, metrics = Store(runner, Keys(prefix), config), SelectorMetrics(CollectorRegistry())
        table = NodeTable(config.selector.nodes_max, SERVICES)
        snapshot = Snapshot(store, table, config, metrics, lambda node_id, facts: None)
        while len(table) < count:
            await snapshot.refresh()
        assigned: list[Assign] = []

        def send(to: str, cell: int, frame: Frame, *payload: bytes, **options: object) -> str:
            assert isinstance(frame, Assign), frame
            assigned.append(frame)
            return "sent"

        context = SelectorContext.of(store, config, metrics, send, table, snapshot)
        placer = Placer(context, CurrentWeights(store, config, metrics), DecisionLog(config))
        return cls(count, runner, snapshot, placer, beats, assigned)

    async def measure(self, *, keep: bool = True) -> None:
        """One round: every batch size, while heartbeats flow and the snapshot follows."""
        self._toggle()
        following = asyncio.create_task(self.snapshot.run())
        for size in BATCHES:
            for _ in range(SAMPLES[size]):
                batch = [_dispatch() for _ in range(size)]
                before = len(self.assigned)
                began = time.perf_counter()
                await self.placer.place(batch)
                took = time.perf_counter() - began
                assert len(self.assigned) == before + size, "not every utterance found a node"
                if keep:
                    self.seconds[size].append(took / size)
                # In life other tasks have their turn between two batches as well.
                await asyncio.sleep(0)
        self._toggle()
        following.cancel()
        await asyncio.wait({following})

    def _toggle(self) -> None:
        assert self.beats.stdin is not None
        self.beats.stdin.write(b"\n")

    async def stop(self) -> None:
        self.beats.kill()
        await self.beats.wait()
        await self.runner.close()


def _dispatch() -> Received:
    session_id = new_session_id()
    frame = Dispatch(
        request_id=f"r-{session_id}",
        attempt=1,
        session_id=session_id,
        utterance_index=0,
        edge=EDGE,
        tenant_id="",
        src_lang="en",
        tgt_lang="es",
        lang_a="",
        lang_b="",
        services=SERVICES,
        public=True,
        audio_ms=1_000,
        deadline_ms=0,
        trace_id="trace",
    )
    head = Head(int(Lane.WORK), "", 0, EDGE, 0)
    return Received(head, frame, [b"", b""], "broker")


async def _measure(url: str) -> None:
    fleets = [await Fleet.start(url, count) for count in FLEETS]
    try:
        for fleet in fleets:
            await fleet.measure(keep=False)
        for _ in range(ROUNDS):
            for fleet in fleets:
                await fleet.measure()
    finally:
        for fleet in fleets:
            await fleet.stop()
    _print(fleets)


def _print(fleets: list[Fleet]) -> None:
    for size in BATCHES:
        base = [percentile(fleets[0].seconds[size], 0.5), _mean(fleets[0].seconds[size])]
        rows = []
        for fleet in fleets:
            middle, mean = percentile(fleet.seconds[size], 0.5), _mean(fleet.seconds[size])
            rows.append(
                (
                    f"{fleet.count} nodes",
                    ms(middle),
                    f"{middle / base[0]:.2f}",
                    ms(mean),
                    f"{mean / base[1]:.2f}",
                    f"{BAR:g}",
                )
            )
        title = "Dispatch to Assign, one at a time" if size == 1 else f"Dispatch to Assign, in batches of {size}"
        print_table(title, ("", "p50 ms each", "ratio", "mean ms each", "ratio", "bar"), rows)


def _mean(seconds: list[float]) -> float:
    return sum(seconds) / len(seconds)


def run() -> None:
    """Measure and print."""
    with TemporaryDirectory(prefix="lm-") as directory:
        server = RedisServer.start(Path(directory))
        try:
            uvloop.run(_measure(server.url))
        finally:
            server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["beats"]:
        uvloop.run(_beats(sys.argv[2], sys.argv[3], int(sys.argv[4])))
    else:
        run()
