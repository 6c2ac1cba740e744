"""Sessions that stream in real time to one edge: what it costs, whether a chunk is lost; and what an idle one holds.

Beside it, in the same run, a bare server of the same library that only reads the same messages.
`python -m bench.streaming bare` is that server, `nodes URL` the node process.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from bench.servers import redis_at_hand
from bench.table import print_table
from linguamesh.node import Job, Node, Result
from mesh.config.network import EdgeConfig
from mesh.messages import audio_frames
from mesh.messages.audio_frames import AudioFrame
from tests.support.processes.running_mesh import RunningMesh

SESSIONS: Final = 500
SECONDS: Final = 20
CHUNK_S: Final = 0.1
#: 100 ms of PCM16 at 16 kHz.
PIECE: Final = bytes(range(256)) * 12 + bytes(128)
#: The client ends an utterance after so many chunks.
UTTERANCE_CHUNKS: Final = 40
IDLE: Final = 2_000
NODES: Final = 8
INIT: Final = {
    "type": "session_init",
    "client_version": "bench",
    "platform": "web",
    "src_lang": "en",
    "tgt_lang": "es",
    "audio_formats": ["pcm16"],
}


async def _answer(job: Job) -> Result:
    return Result(text_asr=str(len(job.audio)), text_translated="x")


async def _nodes(url: str) -> None:
    async with AsyncExitStack() as stack:
        for index in range(NODES):
            node = Node(url, _answer, asr=["en"], semantic=["es"], node_id=f"node-bench-{index}", max_jobs=32)
            await stack.enter_async_context(node)
        print("ready", flush=True)
        await asyncio.Event().wait()


async def _bare() -> None:
    """Reads and forgets, with the options of an edge; answers the first message of a connection, as an edge does."""

    async def forget(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send('{"type":"session_init_ack","session_id":"s-00000000000000000000"}')
        async for _ in connection:
            pass

    queue = EdgeConfig().receive_queue_max
    async with serve(forget, "127.0.0.1", 0, compression=None, ping_interval=None, max_queue=queue) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Event().wait()


@asynccontextmanager
async def _child(*arguments: str) -> AsyncIterator[tuple[int, str]]:
    """A process of this module: its pid, and its first line."""
    command = [sys.executable, "-m", "bench.streaming", *arguments]
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        yield child.pid, (await child.stdout.readline()).decode().strip()
    finally:
        child.kill()
        await child.wait()


class Client:
    """One session that streams, and adds up what its results say was heard."""

    def __init__(self, connection: ClientConnection, binary: bool) -> None:
        self.connection = connection
        self.binary = binary
        self.session_id = ""
        self.heard_bytes = 0
        self.ended = 0
        self._payload = base64.b64encode(PIECE).decode()

    async def open(self) -> None:
        await self.connection.send(json.dumps({**INIT, "binary_frames": self.binary}))
        self.session_id = json.loads(await self.connection.recv())["session_id"]

    async def listen(self) -> None:
        async for text in self.connection:
            message: dict[str, Any] = json.loads(text)
            if message["type"] == "translation_result":
                self.ended += 1
                self.heard_bytes += int(message["text_asr"])
            assert message["type"] not in ("error", "missing_result", "backpressure"), message

    def chunk(self, seq: int) -> str | bytes:
        is_final = seq % UTTERANCE_CHUNKS == UTTERANCE_CHUNKS - 1
        if self.binary:
            return audio_frames.encode(AudioFrame(self.session_id, seq, seq * 100, is_final, PIECE))
        return (
            f'{{"type":"audio_chunk","session_id":"{self.session_id}","seq":{seq},"is_final":{str(is_final).lower()},'
            f'"payload":"{self._payload}"}}'
        )

    async def stream(self, began_s: float, offset_s: float, chunks: int) -> None:
        for seq in range(chunks):
            await asyncio.sleep(began_s + offset_s + seq * CHUNK_S - time.perf_counter())
            await self.connection.send(self.chunk(seq))


@asynccontextmanager
async def _clients(url: str, count: int, binary: bool = False) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(count):
            connection = await stack.enter_async_context(connect(url, compression=None, ping_interval=None))
            clients.append(Client(connection, binary))
        await asyncio.gather(*(client.open() for client in clients))
        yield clients


async def _stream(url: str, pid: int, binary: bool, listening: bool) -> tuple[float, float, int, int]:
    """CPU of the process as a part of one core, seconds that the slowest client was late, bytes sent and heard."""
    chunks = int(SECONDS / CHUNK_S) // UTTERANCE_CHUNKS * UTTERANCE_CHUNKS
    async with _clients(url, SESSIONS, binary) as clients:
        readers = [asyncio.create_task(client.listen()) for client in clients if listening]
        process = psutil.Process(pid)
        before, began_s = process.cpu_times(), time.perf_counter()
        await asyncio.gather(
            *(client.stream(began_s, place * CHUNK_S / SESSIONS, chunks) for place, client in enumerate(clients))
        )
        took_s, after = time.perf_counter() - began_s, process.cpu_times()
        for _ in range(100):
            if not listening or all(client.ended == chunks // UTTERANCE_CHUNKS for client in clients):
                break
            await asyncio.sleep(0.1)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    used = after.user + after.system - before.user - before.system
    sent = SESSIONS * chunks * len(PIECE)
    return used / took_s, took_s - chunks * CHUNK_S, sent, sum(client.heard_bytes for client in clients)


async def _idle_bytes(url: str, pid: int) -> float:
    """Resident bytes per idle connection, of those beyond the first few."""
    process = psutil.Process(pid)
    async with _clients(url, 200):
        few = process.memory_info().rss
        async with _clients(url, IDLE):
            return (process.memory_info().rss - few) / IDLE


async def _measure(directory: Path, redis_url: str) -> None:
    rows = []
    async with _child("bare") as (pid, port):
        url = f"ws://127.0.0.1:{port}"
        bare_idle = await _idle_bytes(url, pid)
        bare = {binary: (await _stream(url, pid, binary, False))[0] for binary in (False, True)}
    with RunningMesh(directory, redis_url, brokers=1, edges=2, selectors=2) as mesh:
        edge, nodes_url = mesh.processes["edge-0"], mesh.url("edge-1")
        url = mesh.url("edge-0").replace("http", "ws", 1) + "/ws/session"
        idle = await _idle_bytes(url, edge.popen.pid)
        async with _child("nodes", nodes_url):
            for binary in (False, True):
                cpu, late_s, sent, heard = await _stream(url, edge.popen.pid, binary, True)
                kind = "binary frames" if binary else "JSON and base64"
                per_session = f"{cpu / SESSIONS * 100:.3f} %"
                lost = "nothing" if sent == heard else f"{sent - heard} bytes"
                ratio = f"{cpu / bare[binary]:.2f}"
                rows.append(
                    (
                        kind,
                        f"{cpu * 100:.0f} %",
                        per_session,
                        f"{bare[binary] * 100:.0f} %",
                        ratio,
                        lost,
                        f"{late_s:.2f} s",
                    )
                )
    print_table(
        f"{SESSIONS} sessions stream 100 ms chunks in real time to one edge",
        ("", "edge's core", "per session", "bare reader", "x bare", "lost", "late"),
        rows,
    )
    print_table(
        f"{IDLE} idle sessions",
        ("", "KiB each"),
        [
            ("bare connection of the library", f"{bare_idle / 1024:.1f}"),
            ("session at an edge", f"{idle / 1024:.1f}"),
            ("what the edge adds", f"{(idle - bare_idle) / 1024:.1f}"),
        ],
    )


def run() -> None:
    """Measure and print."""
    with redis_at_hand() as (directory, url):
        uvloop.run(_measure(directory, url))


if __name__ == "__main__":
    if sys.argv[1:2] == ["bare"]:
        uvloop.run(_bare())
    elif sys.argv[1:2] == ["nodes"]:
        uvloop.run(_nodes(sys.argv[2]))
    else:
        run()
