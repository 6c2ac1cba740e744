"""kill -9 of the edge of a session that speaks, again and again: the SDK resumes, and no word is lost or doubled."""

from __future__ import annotations

import asyncio
import random
import zlib
from contextlib import AsyncExitStack
from typing import Any

from redis import Redis

from linguamesh.local.redis_server import free_port
from linguamesh.node import Job, Node, Result
from linguamesh.session import Session, Translation
from mesh.cells import cell_of
from mesh.config.network import MeshConfig
from mesh.keys import Keys
from tests.support.processes.running_mesh import RunningMesh
from tests.support.processes.speakers import until

KILLS = 50
SPEAKERS = 4
EDGES = 3
#: 100 ms of sound in one chunk, and a pause between chunks that is shorter, so that much happens between two kills.
PIECE_BYTES = 3_200
PACE_S = 0.03
SEED = 4


async def name_it(job: Job) -> Result:
    """A node's work: says which audio it got, so that audio lost, doubled or moved would show."""
    await asyncio.sleep(0.02 + 0.08 * random.random())
    return Result(text_asr=f"{len(job.audio)} {zlib.crc32(job.audio)}", text_translated=str(job.utterance_index))


class Speaker:
    """Streams random sound in utterances of one to six chunks, and collects what comes back."""

    def __init__(self, url: str, number: int, **options: Any) -> None:
        self.session = Session(url, src="en", tgt="es", reconnect_for=60, close_timeout=30, **options)
        self.said = bytearray()
        self.ended: list[Translation] = []
        self.stop = asyncio.Event()
        self._chance = random.Random(SEED * 100 + number)

    async def speak(self) -> None:
        while not self.stop.is_set():
            for _ in range(self._chance.randint(1, 6)):
                piece = self._chance.randbytes(PIECE_BYTES)
                self.said += piece
                await self.session.speak(piece)
                await asyncio.sleep(PACE_S)
            await self.session.end_utterance()

    async def listen(self) -> None:
        async for translation in self.session.results():
            self.ended.append(translation)

    async def goes_on(self, heard: int) -> None:
        """Returns when it has another edge and new results."""
        before = self.session.reconnects
        await until(lambda: self.session.reconnects > before, "the session found another edge")
        await until(lambda: len(self.ended) > heard, "and goes on")

    def check(self) -> None:
        """Every index once and in order, every byte in exactly one of them."""
        assert [one.utterance_index for one in self.ended] == list(range(len(self.ended)))
        assert [one.error for one in self.ended if one.error] == []
        place = 0
        for one in self.ended:
            length, checksum = map(int, one.text_asr.split())
            assert zlib.crc32(self.said[place : place + length]) == checksum, f"utterance {one.utterance_index}"
            place += length
        assert place == len(self.said), "everything that was said was translated"
        assert not self.session.lost


def owner_of(redis: Redis, session: Session) -> str:
    """The name of the edge that owns the session."""
    key = Keys().session(cell_of(session.session_id, MeshConfig().cells), session.session_id)
    owner = redis.hget(key, "owner")
    return "" if owner is None else bytes(owner).decode().split(":")[1]


async def test_fifty_kills_of_the_edge_that_a_session_speaks_to(redis_server, mesh_dir) -> None:
    shared = free_port()
    env = {"LINGUA_EDGE_PORT": str(shared), "LINGUA_LINK_BEAT_MS": "300", "LINGUA_LINK_DEAD_MS": "1200"}
    url = f"ws://127.0.0.1:{shared}"
    with redis_server.client() as redis, RunningMesh(mesh_dir, redis_server.url, edges=EDGES, env=env) as mesh:
        async with AsyncExitStack() as stack:
            for number in range(4):
                node = Node(url, name_it, node_id=f"n-{number}", asr=["en"], semantic=["es"], max_jobs=16)
                await stack.enter_async_context(node)
            speakers = [Speaker(url, number) for number in range(SPEAKERS)]
            for speaker in speakers:
                await stack.enter_async_context(speaker.session)
            listening = [asyncio.create_task(speaker.listen()) for speaker in speakers]
            speaking = [asyncio.create_task(speaker.speak()) for speaker in speakers]
            for kill in range(KILLS):
                victim = speakers[kill % SPEAKERS]
                heard = len(victim.ended)
                restarted = mesh.restart("edge", int(owner_of(redis, victim.session)[-1]))
                await victim.goes_on(heard)
                await asyncio.to_thread(restarted.wait_ready)
            for speaker in speakers:
                speaker.stop.set()
            await asyncio.gather(*speaking)
            for speaker in speakers:
                await speaker.session.close()
            await asyncio.gather(*listening)
        assert sum(speaker.session.reconnects for speaker in speakers) >= KILLS
        for speaker in speakers:
            speaker.check()
