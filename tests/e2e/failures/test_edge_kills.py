"""kill -9 of the edge of a streaming session, again and again: the SDK resumes, and no audio is lost or doubled."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from redis import Redis

from linguamesh.local.redis_server import free_port
from linguamesh.node import Node
from linguamesh.session import Session
from mesh.cells import cell_of
from mesh.config.network import MeshConfig
from mesh.keys import Keys
from tests.support.clients.stream import StreamingClient, checksum
from tests.support.processes.running_mesh import PATIENT, RunningMesh

KILLS = 50
CLIENTS = 4
EDGES = 3


def owner_of(redis: Redis, session: Session) -> str:
    """The name of the edge that owns the session."""
    key = Keys().session(cell_of(session.session_id, MeshConfig().cells), session.session_id)
    owner = redis.hget(key, "owner")
    return "" if owner is None else bytes(owner).decode().split(":")[1]


async def test_streaming_sessions_resume_after_fifty_kills_of_their_edges(redis_server, mesh_dir) -> None:
    shared = free_port()
    env = {**PATIENT, "LINGUA_EDGE_PORT": str(shared), "LINGUA_LINK_BEAT_MS": "300", "LINGUA_LINK_DEAD_MS": "1200"}
    url = f"ws://127.0.0.1:{shared}"
    with redis_server.client() as redis, RunningMesh(mesh_dir, redis_server.url, edges=EDGES, env=env) as mesh:
        async with AsyncExitStack() as stack:
            for number in range(4):
                node = Node(url, checksum, node_id=f"n-{number}", asr=["en"], semantic=["es"], max_jobs=16)
                await stack.enter_async_context(node)
            clients = [StreamingClient(url, number) for number in range(CLIENTS)]
            for client in clients:
                await stack.enter_async_context(client.session)
            collecting = [asyncio.create_task(client.collect()) for client in clients]
            streaming = [asyncio.create_task(client.stream()) for client in clients]
            for kill in range(KILLS):
                victim = clients[kill % CLIENTS]
                results = len(victim.results)
                restarted = mesh.restart("edge", int(owner_of(redis, victim.session)[-1]))
                await victim.resumes(results)
                await asyncio.to_thread(restarted.wait_ready)
            for client in clients:
                client.stop.set()
            await asyncio.gather(*streaming)
            for client in clients:
                await client.session.close()
            await asyncio.gather(*collecting)
        assert sum(client.session.reconnects for client in clients) >= KILLS
        for client in clients:
            client.check()
