"""Pairing codes of a node: asks the mesh for one and waits for it. Knows no connection, only how to send a text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from linguamesh.errors import NodeRefused, Unreachable
from mesh.messages import node as wire

ANSWER_TIMEOUT_S: Final = 10.0


class PairingRequests:
    """One request at a time: the mesh's answer does not say which it is for."""

    def __init__(self, send: Callable[[str], Awaitable[bool]]) -> None:
        self._send = send
        self._turn = asyncio.Lock()
        self._answer: asyncio.Future[wire.PairingCodeMessage] | None = None

    async def code(self, node_id: str) -> tuple[str, float]:
        """A fresh code and the seconds that it is good for; NodeRefused or Unreachable if there is none."""
        async with self._turn:
            self._answer = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    if not await self._send(wire.encode(wire.PairingCodeRequest(node_id=node_id))):
                        raise Unreachable("no pairing code: the node has no connection now")
                    answer = await self._answer
            except TimeoutError:
                raise Unreachable(f"no pairing code within {ANSWER_TIMEOUT_S:g} s") from None
            finally:
                self._answer = None
            return answer.code, answer.expires_in_ms / 1_000

    def on_code(self, message: wire.PairingCodeMessage) -> None:
        """The mesh has one."""
        if self._answer and not self._answer.done():
            self._answer.set_result(message)

    def on_error(self, error: NodeRefused) -> None:
        """The mesh refused something; while a code is awaited, that."""
        if self._answer and not self._answer.done():
            self._answer.set_exception(error)
            self._answer.exception()  # whoever asked may have been cancelled

    def on_lost(self) -> None:
        """The connection is gone, and the answer with it."""
        if self._answer and not self._answer.done():
            self._answer.set_exception(Unreachable("no pairing code: the connection is lost"))
            self._answer.exception()
