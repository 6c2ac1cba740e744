"""What a server spends on an echo: the library's own reading and writing, and that of the edge (mesh/websocket.py).

`python -m bench.hops.websocket KIND PORT` is the server of that kind.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Final

import psutil
import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from bench.table import print_table
from edge.transport.connection import EdgeConnection
from edge.transport.send_buffer import SendBuffer, SendLimits
from linguamesh.local.redis_server import free_port
from mesh.config.network import EdgeConfig
from mesh.websocket import Payload

KINDS: Final = ("library", "edge")
CONNECTIONS: Final = 64
MESSAGES: Final = 200
ROUNDS: Final = 3
#: As long as an utterance of 10 KB in base64.
MESSAGE: Final = "x" * 13_700


async def _echo(socket: ServerConnection) -> None:
    async for message in socket:
        await socket.send(message)


async def _echo_as_the_edge(socket: ServerConnection) -> None:
    assert isinstance(socket, EdgeConnection)
    outbox = SendBuffer(socket, SendLimits.of(EdgeConfig()), lambda reason: None)

    def on_message(data: Payload, is_text: bool) -> None:
        outbox.put(data, text=is_text)

    await socket.receive(on_message)


async def _serve(kind: str, port: int) -> None:
    echo, create = (_echo, ServerConnection) if kind == "library" else (_echo_as_the_edge, EdgeConnection)
    async with serve(echo, "127.0.0.1", port, compression=None, create_connection=create) as server:
        print("ready", flush=True)
        await server.serve_forever()


async def _load(port: int) -> None:
    async def speak(client: ClientConnection) -> None:
        for _ in range(MESSAGES):
            await client.send(MESSAGE)
            await client.recv()
        await client.close()

    clients = [await connect(f"ws://127.0.0.1:{port}", compression=None) for _ in range(CONNECTIONS)]
    await asyncio.gather(*map(speak, clients))


def _server_us(kind: str) -> float:
    """CPU of the server per message, in microseconds."""
    port = free_port()
    server = subprocess.Popen([sys.executable, "-m", "bench.hops.websocket", kind, str(port)], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        server.stdout.readline()
        process = psutil.Process(server.pid)
        before = sum(process.cpu_times()[:2])
        uvloop.run(_load(port))
        return float(sum(process.cpu_times()[:2]) - before) / (CONNECTIONS * MESSAGES) * 1e6
    finally:
        server.kill()
        server.wait()


def run() -> None:
    """Measure by turns, and print."""
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(ROUNDS):
        for kind in KINDS:
            taken[kind].append(_server_us(kind))
    means = {kind: sum(each) / ROUNDS for kind, each in taken.items()}
    rows = [(kind, f"{mean:.1f}", f"{mean / means['library']:.2f}") for kind, mean in means.items()]
    title = f"Echo of {len(MESSAGE):,} characters, {CONNECTIONS} connections: CPU of the server"
    print_table(title, ("", "us per message", "ratio"), rows)


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], int(sys.argv[2])))
