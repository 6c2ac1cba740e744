"""The mesh's messages about a node itself: its status, an operator's commands, pairing codes.

Knows no connection, only a function that sends a text.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from linguamesh.errors import LinguaError, NodeRefused, Unreachable
from mesh.messages import node as wire
from mesh.messages.base import encode_utf8
from mesh.words import NodeCommand

PAIRING_TIMEOUT_S: Final = 10.0

_log = logging.getLogger("linguamesh.node")


@dataclass(frozen=True, slots=True)
class Control:
    """An operator's command: "drain" or "resume"."""

    command: str
    reason: str | None
    #: Time left for the node's running jobs; unfinished jobs then fail over to other nodes.
    deadline_ms: int | None


class ControlState:
    """The node's status as the mesh reports it. `on_control` is the user's; it is called once per command."""

    def __init__(self, on_control: Callable[[Control], None] | None) -> None:
        #: "registering", "ready", "degraded", "draining" or "offline"; "" before the first registration.
        self.status = ""
        #: The mesh assigns no new jobs; jobs that arrive nevertheless are run.
        self.draining = False
        self._on_control = on_control

    def on_registered(self, ack: wire.NodeRegisterAck) -> None:
        """A connection is registered. If the node is still drained, a command follows."""
        self.status = ack.status
        self.draining = ack.status == "draining"

    def on_status(self, message: wire.NodeStatus) -> None:
        """node_status: the status has changed."""
        _log.info("%s is %s%s", message.node_id, message.status, f": {message.reason}" if message.reason else "")
        self.status = message.status
        if message.status in ("ready", "draining"):
            self.draining = message.status == "draining"

    def on_control(self, message: wire.NodeControl) -> None:
        """node_control: an operator's command."""
        _log.info("command: %s%s", message.command, f": {message.reason}" if message.reason else "")
        if message.command in frozenset(NodeCommand):
            self.draining = message.command == NodeCommand.DRAIN
        if self._on_control:
            try:
                self._on_control(Control(message.command, message.reason, message.deadline_ms))
            except Exception:  # noqa: BLE001 - the user's code; the node continues
                _log.exception("the on_control callback failed")


class PairingRequests:
    """Requests pairing codes, one at a time: the mesh's reply does not name its request."""

    def __init__(self, send: Callable[[bytes], Awaitable[bool]]) -> None:
        self._send = send
        self._lock = asyncio.Lock()
        self._reply: asyncio.Future[wire.PairingCodeMessage] | None = None

    async def code(self, node_id: str) -> tuple[str, float]:
        """A new code and the seconds until it expires; NodeRefused or Unreachable if there is none."""
        async with self._lock:
            self._reply = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(PAIRING_TIMEOUT_S):
                    if not await self._send(encode_utf8(wire.PairingCodeRequest(node_id=node_id))):
                        raise Unreachable("no pairing code: the node has no connection now")
                    reply = await self._reply
            except TimeoutError:
                raise Unreachable(f"no pairing code within {PAIRING_TIMEOUT_S:g} s") from None
            finally:
                self._reply = None
            return reply.code, reply.expires_in_ms / 1_000

    def on_code(self, message: wire.PairingCodeMessage) -> None:
        """pairing_code."""
        if self._reply and not self._reply.done():
            self._reply.set_result(message)

    def on_error(self, error: NodeRefused) -> None:
        """The mesh refused a message; while a code is requested, that request."""
        self._fail(error)

    def on_disconnected(self) -> None:
        """The connection is lost, and the reply with it."""
        self._fail(Unreachable("no pairing code: the connection is lost"))

    def _fail(self, error: LinguaError) -> None:
        if self._reply and not self._reply.done():
            self._reply.set_exception(error)
            self._reply.exception()  # the caller may have been cancelled
