"""A mesh with small queues: a client that obeys its flow control loses nothing."""

from __future__ import annotations

import asyncio
from collections import Counter

from linguamesh.node import Node
from mesh.messages.client import Backpressure
from tests.support.clients.stream import StreamingClient, checksum
from tests.support.processes.running_mesh import PATIENT, RunningMesh

UTTERANCES = 30
ENV = {**PATIENT, "LINGUA_SPEECH_EVENTS_MAX": "8", "LINGUA_EDGE_UTTERANCES_PER_SESSION_MAX": "1"}


async def test_client_that_obeys_backpressure_loses_nothing(redis_server, mesh_dir) -> None:
    with RunningMesh(mesh_dir, redis_server.url, edges=1, env=ENV) as mesh:
        url = mesh.url("edge-0")
        async with Node(url, checksum, asr=["en"], semantic=["es"], max_jobs=4):
            actions: Counter[str] = Counter()

            def on_event(event: object) -> None:
                if isinstance(event, Backpressure):
                    actions[event.action] += 1

            client = StreamingClient(url, 1, on_event=on_event)
            async with client.session as session:
                collecting = asyncio.create_task(client.collect())
                for number in range(UTTERANCES):
                    for place in range(3):
                        await client.send(bytes([number, place + 1]) * 1_600)
                    await session.end_utterance()
                await session.close()
                await collecting
            client.check()
            assert len(client.results) == UTTERANCES
            assert actions["SLOW_DOWN"] and actions["PAUSE"], "the mesh really was full"
