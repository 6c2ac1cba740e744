"""One room of a load test: members in several languages at several edges, who speak in turn."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from loadtest.delivery import Metric, Sample
from loadtest.session import LoadSession, Speech


class LoadRoom:
    """One member per language. Every utterance must reach each other member once, in order, in its language."""

    def __init__(
        self, edges: Sequence[str], languages: Sequence[str], timeout_s: float, generator: random.Random
    ) -> None:
        self.members = [
            LoadSession(edges, Speech(language, languages[0], timeout_s=timeout_s), generator) for language in languages
        ]
        self._timeout_s = timeout_s
        self._turn = 0

    async def open(self) -> None:
        """Open all sessions; the first creates the room, the others join it."""
        first = self.members[0]
        for number, member in enumerate(self.members, start=1):
            await member.open()
            await member.enter_room(first.room_code, member.speech.src, number)

    async def say(self, audio: bytes) -> None:
        """The next member speaks; waits until every other member has the translation."""
        speaker = self.members[self._turn % len(self.members)]
        self._turn += 1
        others = [member for member in self.members if member is not speaker]
        index, sent_s = speaker.next_index, time.perf_counter()
        waiting = [asyncio.create_task(self._hear(member, speaker.session_id, index, sent_s)) for member in others]
        await speaker.say(audio)
        await asyncio.gather(*waiting)

    async def _hear(self, member: LoadSession, speaker: str, index: int, sent_s: float) -> None:
        try:
            failure = await asyncio.wait_for(member.expect(speaker, index), self._timeout_s)
        except TimeoutError:
            failure = f"no result within {self._timeout_s:g} s"
        member.heard.pop((speaker, index), None)
        member.samples.append(Sample(Metric.ROOM, (time.perf_counter() - sent_s) * 1_000, failure=failure))

    async def close(self) -> None:
        """Close all sessions."""
        for member in self.members:
            await member.close()
