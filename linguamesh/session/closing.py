"""How a session ends: everything that was said goes out first, and the last results come in."""

from __future__ import annotations

import asyncio
from typing import Final

from linguamesh.session.messages import heartbeat, session_close
from linguamesh.session.receiver import Receiver
from linguamesh.session.send_buffer import SendBuffer
from linguamesh.session.sender import Sender

#: How long a session that does not wait takes to say goodbye, and how long a heartbeat's answer is waited for.
PATIENCE_S: Final = 2.0


class Goodbye:
    """The last words of one session."""

    def __init__(self, sender: Sender, speech: SendBuffer, hearing: Receiver) -> None:
        self._sender = sender
        self._speech = speech
        self._hearing = hearing

    async def say(self, timeout: float) -> None:
        """Close the session, and wait so long for its last results; 0 = not at all. TimeoutError if they do not come.

        A connection that is lost meanwhile is replaced, and goodbye is said again.
        """
        if not timeout:
            self._hearing.closing = True
            async with asyncio.timeout(PATIENCE_S):
                await self._sender.try_tell(session_close)
            return
        async with asyncio.timeout(timeout):
            while not self._hearing.close_ack.is_set():
                await self._sender.flush()
                if not await self._is_taken():
                    continue
                self._hearing.closing = True
                if await self._sender.try_tell(session_close):
                    await self._hearing.closed_or_lost()

    async def _is_taken(self) -> bool:
        """False if the mesh was too busy for the last of what was sent. It says so before it answers a heartbeat."""
        if not self._speech.kept_bytes:
            return True
        self._hearing.beat.clear()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._sender.try_tell(heartbeat)
                await self._hearing.beat_or_lost()
        except TimeoutError:
            return True
        return self._speech.is_said
