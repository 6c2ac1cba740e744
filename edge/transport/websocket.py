"""Socket: one WebSocket of a client, node or operator. Counts its messages, and knows when it last received one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from edge.metrics import EdgeMetrics
from edge.transport.connection import EdgeConnection
from edge.transport.send_buffer import SendBuffer, SendLimits
from mesh.clock import now_ms
from mesh.errors import ErrorCode, PeerError
from mesh.log import get_logger
from mesh.messages.base import Message, encode_utf8, error_of
from mesh.messages.binary import AudioMessage, encode_parts, json_of
from mesh.websocket import Payload
from mesh.words import SocketKind

#: Close code of a server that shuts down (docs/protocol.md).
CLOSE_GOING_AWAY: Final = 1001

log = get_logger()


class Socket:
    """One connection on /ws/session, /ws/node or /ws/control."""

    def __init__(self, connection: EdgeConnection, peer: SocketKind, limits: SendLimits, metrics: EdgeMetrics) -> None:
        self.peer = peer
        #: When the last message arrived.
        self.heard_ms = now_ms()
        self.outbox = SendBuffer(connection, limits, self._on_aborted)
        #: Counters of received messages by class; NoneType: the message was malformed.
        self.received = metrics.received[peer]
        self._sent = metrics.sent[peer]
        #: The peer agreed to binary messages.
        self.uses_binary_messages = False
        self._connection = connection
        self._metrics = metrics

    async def receive(self, handle: Callable[[bytes, bool], Awaitable[None] | None]) -> None:
        """Pass every message, and whether it is text, to `handle` until the socket closes.

        It is called in the turn in which the message arrives. An awaitable that it returns must end before the next
        message is handled; meanwhile messages are queued, and beyond `edge.receive_queue_max` the socket is not read.
        Text is UTF-8, and not decoded: a peer whose text is not is closed with 1007.
        """

        def on_message(data: Payload, is_text: bool) -> Awaitable[None] | None:
            self.heard_ms = now_ms()
            assert type(data) is bytes, "a server unmasks every message"
            return handle(data, is_text)

        await self._connection.receive(on_message)

    @property
    def close_reason(self) -> str:
        """Why the socket closed, for logs."""
        return f"{self._connection.close_code} {self._connection.close_reason or ''}".strip()

    def count_binary(self) -> None:
        """Count a received binary frame."""
        self._metrics.messages_total.labels(self.peer, "in", "binary").inc()

    @property
    def address(self) -> str:
        """The peer's address."""
        peer = self._connection.remote_address
        return str(peer[0]) if peer else ""

    def send(self, message: Message) -> bool:
        """Send a message; False if the socket is closed."""
        self._sent[type(message)].value += 1
        return self.outbox.put(encode_utf8(message))

    def send_all(self, messages: list[Message]) -> bool:
        """Send several messages; False if the socket is closed."""
        sent, texts = self._sent, []
        for message in messages:
            sent[type(message)].value += 1
            texts.append(encode_utf8(message))
        return self.outbox.put_texts(texts)

    def send_encoded(self, message_type: str, data: bytes) -> bool:
        """The same for an encoded message."""
        self._metrics.messages_total.labels(self.peer, "out", message_type).inc()
        return self.outbox.put(data)

    def send_with_audio(self, message_class: type[AudioMessage], head: bytes, audio: Payload) -> bool:
        """Send a message whose audio is apart, binary if that was agreed, otherwise as JSON."""
        self._sent[message_class].inc()
        if self.uses_binary_messages:
            return self.outbox.put(*encode_parts(message_class, head, audio), text=False)
        return self.outbox.put(json_of(message_class, head, audio))

    def send_error(self, error: PeerError) -> None:
        """Reply with an error; the connection stays open."""
        self._metrics.errors_total.labels(self.peer, error.code.name).inc()
        self.send(error_of(error))

    def _on_aborted(self, reason: str) -> None:
        self._metrics.slow_consumers_total.labels(self.peer).inc()
        log.warning("socket_aborted", peer=self.peer, reason=reason)


def internal_error() -> PeerError:
    """The error for a peer whose message failed because of our own bug."""
    return PeerError(ErrorCode.INTERNAL_ERROR, "the message could not be handled")
