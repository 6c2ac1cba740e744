"""A mesh that takes little at a time: a client that does as it is told loses nothing."""

from __future__ import annotations

import asyncio
from collections import Counter

from linguamesh.node import Node
from mesh.messages.client import Backpressure
from tests.e2e.test_edge_kills import Speaker, name_it
from tests.support.processes.running_mesh import RunningMesh

UTTERANCES = 30


async def test_client_that_does_as_it_is_told_loses_nothing(redis_server, mesh_dir) -> None:
    env = {"LINGUA_SPEECH_EVENTS_MAX": "8", "LINGUA_EDGE_UTTERANCES_PER_SESSION_MAX": "1"}
    with RunningMesh(mesh_dir, redis_server.url, edges=1, env=env) as mesh:
        url = mesh.url("edge-0")
        async with Node(url, name_it, asr=["en"], semantic=["es"], max_jobs=4):
            told: Counter[str] = Counter()

            def on_event(event: object) -> None:
                if isinstance(event, Backpressure):
                    told[event.action] += 1

            speaker = Speaker(url, 1, on_event=on_event)
            async with speaker.session as session:
                listening = asyncio.create_task(speaker.listen())
                for number in range(UTTERANCES):
                    for place in range(3):
                        piece = bytes([number, place + 1]) * 1_600
                        speaker.said += piece
                        await session.speak(piece)  # as fast as it may
                    await session.end_utterance()
                await session.close()
                await listening
            speaker.check()
            assert len(speaker.ended) == UTTERANCES
            assert told["SLOW_DOWN"] and told["PAUSE"], "the mesh really was full"
