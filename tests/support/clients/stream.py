"""An SDK session that streams random audio, and a job handler that returns its checksum: no byte is lost or doubled."""

from __future__ import annotations

import asyncio
import random
import zlib
from typing import Any

from linguamesh.node import Job, Result
from linguamesh.session import Session, Translation
from tests.support.conditions import DEADLINE_S, until

#: 100 ms of audio in one chunk, and a shorter interval between chunks, so that much happens between two failures.
CHUNK_BYTES = 3_200
INTERVAL_S = 0.03
SEED = 4


async def checksum(job: Job) -> Result:
    """A job handler whose result names the length and the checksum of its audio."""
    await asyncio.sleep(0.02 + 0.08 * random.random())
    return Result(text_asr=f"{len(job.audio)} {zlib.crc32(job.audio)}", text_translated=str(job.utterance_index))


class StreamingClient:
    """Streams utterances of one to six chunks and collects their results."""

    def __init__(self, url: str, number: int, **options: Any) -> None:
        limits = {"open_timeout": DEADLINE_S, "reconnect_for": DEADLINE_S, "close_timeout": DEADLINE_S}
        self.session = Session(url, src="en", tgt="es", **limits, **options)
        self.sent = bytearray()
        self.results: list[Translation] = []
        self.stop = asyncio.Event()
        self._random = random.Random(SEED * 100 + number)

    async def send(self, chunk: bytes) -> None:
        """Send one chunk as soon as flow control allows."""
        self.sent += chunk
        await self.session.speak(chunk)

    async def stream(self) -> None:
        """Send utterances until `stop`."""
        while not self.stop.is_set():
            for _ in range(self._random.randint(1, 6)):
                await self.send(self._random.randbytes(CHUNK_BYTES))
                await asyncio.sleep(INTERVAL_S)
            await self.session.end_utterance()

    async def collect(self) -> None:
        """Read results until the session ends."""
        async for translation in self.session.results():
            self.results.append(translation)

    async def resumes(self, results: int) -> None:
        """Returns when it is connected to another edge and has more than `results` results."""
        before = self.session.reconnects
        await until(lambda: self.session.reconnects > before, "the session is connected to another edge")
        await until(lambda: len(self.results) > results, "it receives results there")

    def check(self) -> None:
        """Every index once and in order, every byte in exactly one of them."""
        assert [one.utterance_index for one in self.results] == list(range(len(self.results)))
        assert [one.error for one in self.results if one.error] == []
        position = 0
        for one in self.results:
            length, crc = map(int, one.text_asr.split())
            assert zlib.crc32(self.sent[position : position + length]) == crc, f"utterance {one.utterance_index}"
            position += length
        assert position == len(self.sent), "all audio was translated"
        assert not self.session.lost
