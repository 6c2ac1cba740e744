"""Node pairing: nodes' requests for pairing codes. A client redeems a code in edge/pairing.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edge.link.core.rpc import Reply
from edge.link.link import EdgeLink
from edge.nodes.socket import NodeSocket
from edge.pairing import refusal_of
from mesh.errors import ErrorCode, PeerError
from mesh.frames import PairingAsk, PairingCode
from mesh.messages.base import Message
from mesh.messages.node import PairingCodeMessage, PairingCodeRequest


class NodePairing:
    """Gets pairing codes for nodes: one pending request per connection. `handlers` are for messages of nodes."""

    def __init__(self, link: EdgeLink) -> None:
        self.handlers: dict[type[Message], Callable[[NodeSocket, Any, tuple[bytes, ...]], None]] = {
            PairingCodeRequest: self._on_request,
        }
        self._link = link
        #: Connections with a pending request.
        self._pending: set[NodeSocket] = set()

    def _on_request(self, socket: NodeSocket, message: PairingCodeRequest, parts: tuple[bytes, ...]) -> None:
        socket.node.check_owns(message.node_id)
        if not socket.node.is_open:
            return  # the node's newer connection may have a code, which a new one would revoke
        if socket in self._pending:
            raise PeerError(ErrorCode.SLOW_DOWN, "a request for a code is pending; wait for its reply")

        def call(ref: str) -> PairingAsk:
            return PairingAsk(ref=ref, edge=self._link.identity, node_id=message.node_id)

        def on_reply(reply: Reply | None) -> None:
            self._pending.discard(socket)
            if isinstance(reply, PairingCode):
                code = PairingCodeMessage(node_id=reply.node_id, code=reply.code, expires_in_ms=reply.expires_in_ms)
                socket.send(code)
            else:
                socket.send_error(refusal_of(reply))

        self._pending.add(socket)
        self._link.ask(call, message.node_id, on_reply, lambda: socket.node.is_open)
