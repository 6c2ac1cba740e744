"""Bare round trips with the same libraries: what a WebSocket, ZeroMQ and Redis hop costs before we add anything.

`python -m bench.hops.bare websocket PORT` and `python -m bench.hops.bare zeromq ENDPOINT` are the echo servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import redis.asyncio
import uvloop
import zmq
import zmq.asyncio
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

SAMPLES = 500
WARM_UP = 50


async def _serve_websocket(port: int) -> None:
    async def echo(socket: ServerConnection) -> None:
        async for message in socket:
            await socket.send(message)

    async with serve(echo, "127.0.0.1", port, compression=None) as server:
        print("ready", flush=True)
        await server.serve_forever()


def _serve_zeromq(endpoint: str) -> None:
    socket = zmq.Context.instance().socket(zmq.ROUTER)
    socket.bind(endpoint)
    print("ready", flush=True)
    while True:
        socket.send_multipart(socket.recv_multipart())


@contextlib.asynccontextmanager
async def echo_server(kind: str, address: str) -> AsyncIterator[None]:
    """One of the two echo servers as a process of its own."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.hops.bare", kind, address, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    await child.stdout.readline()
    try:
        yield
    finally:
        child.kill()
        await child.wait()


async def websocket_seconds(port: int, payload: bytes) -> list[float]:
    """Echo round trips over one WebSocket."""
    seconds = []
    async with echo_server("websocket", str(port)), connect(f"ws://127.0.0.1:{port}", compression=None) as socket:
        for _ in range(SAMPLES + WARM_UP):
            start = time.perf_counter()
            await socket.send(payload)
            await socket.recv()
            seconds.append(time.perf_counter() - start)
    return seconds[WARM_UP:]


async def zeromq_seconds(directory: Path, payload: bytes) -> list[float]:
    """Echo round trips DEALER -> ROUTER -> DEALER."""
    endpoint = f"ipc://{directory}/bare"
    seconds = []
    async with echo_server("zeromq", endpoint):
        socket = zmq.asyncio.Context.instance().socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(endpoint)
        for _ in range(SAMPLES + WARM_UP):
            start = time.perf_counter()
            await socket.send(payload)
            await socket.recv()
            seconds.append(time.perf_counter() - start)
        socket.close()
    return seconds[WARM_UP:]


async def redis_seconds(url: str) -> list[float]:
    """Round trips of one EVALSHA that reads one key."""
    client = redis.asyncio.Redis.from_url(url)
    digest = await client.script_load("return redis.call('GET', KEYS[1])")
    seconds = []
    for _ in range(SAMPLES + WARM_UP):
        start = time.perf_counter()
        await client.evalsha(digest, 1, "bare")
        seconds.append(time.perf_counter() - start)
    await client.aclose()
    return seconds[WARM_UP:]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        if sys.argv[1] == "websocket":
            uvloop.run(_serve_websocket(int(sys.argv[2])))
        else:
            _serve_zeromq(sys.argv[2])
