"""Socket: one WebSocket of either kind, as sessions.py and nodes.py see it: what it may send and when it was heard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from edge.metrics import EdgeMetrics
from edge.transport.send_buffer import SendBuffer, SendLimits
from mesh.clock import now_ms
from mesh.errors import ErrorCode, PeerError
from mesh.log import get_logger
from mesh.messages.base import Message, encode_utf8, error_of
from mesh.words import SocketKind

# A close code (docs/protocol.md).
CLOSE_GOING_AWAY: Final = 1001

log = get_logger()


class Socket:
    """One connection on /ws/session or /ws/node."""

    def __init__(
        self, connection: ServerConnection, peer: SocketKind, bounds: SendLimits, metrics: EdgeMetrics
    ) -> None:
        self.peer = peer
        self.heard_ms = now_ms()
        self.outbox = SendBuffer(connection, bounds, self._on_cut)
        self._connection = connection
        self._metrics = metrics

    async def messages(self, *, as_bytes: bool = False) -> AsyncIterator[str | bytes]:
        """Every message until the socket closes. Text as bytes, if asked: it is passed on as it came."""
        while True:
            try:
                message = await self._connection.recv(decode=False if as_bytes else None)
            except ConnectionClosed:
                return
            self.heard_ms = now_ms()
            yield message

    @property
    def close_reason(self) -> str:
        """Why the socket closed, for logs."""
        return f"{self._connection.close_code} {self._connection.close_reason or ''}".strip()

    def count_in(self, message: Message | None) -> None:
        """Count a message that came; None if it was malformed."""
        self._metrics.messages_total.labels(self.peer, "in", type_of(message)).inc()

    def count_binary(self) -> None:
        """Count a binary frame that came."""
        self._metrics.messages_total.labels(self.peer, "in", "binary").inc()

    @property
    def address(self) -> str:
        """Where the peer comes from."""
        peer = self._connection.remote_address
        return str(peer[0]) if peer else ""

    def tell(self, message: Message) -> bool:
        """Send a message; False if the socket takes nothing any more."""
        self._metrics.messages_total.labels(self.peer, "out", type_of(message)).inc()
        return self.outbox.put(encode_utf8(message))

    def tell_encoded(self, message_type: str, data: bytes) -> bool:
        """The same for a message that is encoded already."""
        self._metrics.messages_total.labels(self.peer, "out", message_type).inc()
        return self.outbox.put(data)

    def tell_error(self, error: PeerError) -> None:
        """Answer a peer's fault; the connection lives on."""
        self._metrics.errors_total.labels(self.peer, error.code.name).inc()
        self.tell(error_of(error))

    def _on_cut(self, reason: str) -> None:
        self._metrics.slow_consumers_total.labels(self.peer).inc()
        log.warning("socket_cut", peer=self.peer, reason=reason)


def internal_error() -> PeerError:
    """What a peer hears when our own code failed on its message."""
    return PeerError(ErrorCode.INTERNAL_ERROR, "the message could not be handled")


def type_of(message: Message | None) -> str:
    return "invalid" if message is None else str(message.__struct_config__.tag)
