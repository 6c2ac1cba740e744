"""The nodes of a load test: SDK nodes with a service time, whose results describe the audio that they heard."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from linguamesh.node import Job, Node, Result
from loadtest.delivery import Metric, Sample, describe_audio
from loadtest.service_time import ServiceTime

#: Speech in a result.
TTS_BYTES: Final = 1_024


class LoadNode:
    """One node that may leave and return under the same id."""

    def __init__(
        self,
        edges: Sequence[str],
        node_id: str,
        languages: Sequence[str],
        slots: int,
        service_time: ServiceTime,
        generator: random.Random,
    ) -> None:
        self.samples: deque[Sample] = deque()
        self._edges = edges
        self._node_id = node_id
        self._languages = languages
        self._slots = slots
        self._service_time = service_time
        self._random = generator
        self._node: Node | None = None

    async def join(self) -> None:
        """Register at one of the edges."""
        started_s = time.perf_counter()
        self._node = Node(
            self._random.choice(self._edges),
            self._serve,
            asr=self._languages,
            semantic=self._languages,
            node_id=self._node_id,
            max_jobs=self._slots,
        )
        await self._node.__aenter__()
        self.samples.append(Sample(Metric.NODE, (time.perf_counter() - started_s) * 1_000))

    async def leave(self) -> None:
        """Finish the running jobs and disconnect. Idempotent."""
        node, self._node = self._node, None
        if node:
            await node.close()

    async def _serve(self, job: Job) -> Result:
        # Drawn before the first await: the order of jobs alone decides which job gets which time.
        service_s = self._service_time.sample_s(self._random)
        await job.partial("...")
        await asyncio.sleep(service_s)
        return Result(
            text_asr=describe_audio(job.audio), text_translated=f"{job.src}-{job.tgt}", tts_audio=bytes(TTS_BYTES)
        )
