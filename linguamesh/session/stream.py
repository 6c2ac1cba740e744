"""Speaking in a stream: sound from a source or from hand becomes pieces for the sender."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final

from linguamesh.session.send_buffer import Piece
from linguamesh.session.sender import Sender
from linguamesh.session.source import Cutter, Packet, Sound, Source, cutter_of, is_recorded, sounds
from mesh.clock import now_ms, wall_ms

CHUNK_MS: Final = 100


class Streamer:
    """The voice of one session."""

    def __init__(self, sender: Sender, sample_rate: int) -> None:
        self._sender = sender
        self._sample_rate = sample_rate
        self._is_speaking = False  # something was said since the last end of an utterance
        self._by_hand: Cutter | None = None  # holds half a sample, at most

    async def stream(self, source: Source, codec: str, chunk_ms: int, realtime: bool) -> None:
        """Say all that the source gives; None in it ends an utterance."""
        cutter = cutter_of(codec, self._sample_rate, chunk_ms)
        began_ms, began_wall_ms, said_ms = now_ms(), wall_ms(), 0
        recorded = realtime or is_recorded(source)

        async def say(packets: list[Packet]) -> None:
            nonlocal said_ms
            for packet in packets:
                if realtime:
                    await asyncio.sleep(max(0, began_ms + said_ms - now_ms()) / 1_000)
                # A recording that waits for the mesh has no pauses but its own.
                await self._say(packet, began_wall_ms + said_ms if recorded else wall_ms())
                said_ms += packet.ms

        async with aclosing(sounds(source, self._sample_rate)) as pieces:
            async for sound in pieces:
                self._sender.check()  # silence is not sent, and must not go on when the session is over
                if sound is None:
                    await say(cutter.rest())
                    await self.end()
                else:
                    await say(cutter.put(sound))
        await say(cutter.rest())

    async def speak(self, sound: Sound, codec: str) -> None:
        """Say a piece of sound at once; half a sample waits for its other half."""
        cutter = self._by_hand = self._by_hand or cutter_of(codec, self._sample_rate, CHUNK_MS)
        for packet in [*cutter.put(sound), *cutter.rest()]:
            await self._say(packet, wall_ms())

    async def end(self) -> None:
        """End the utterance, if anything was said."""
        self._by_hand = None
        if self._is_speaking:
            self._is_speaking = False
            await self._sender.say(Piece(b"", 0, True, wall_ms()))

    async def _say(self, packet: Packet, timestamp_ms: int) -> None:
        self._is_speaking = True
        await self._sender.say(Piece(packet.audio, packet.ms, False, timestamp_ms))
