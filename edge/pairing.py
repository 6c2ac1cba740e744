"""Pairing: codes by which a client chooses a node. Nodes ask for them, clients present them."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from collections.abc import Callable
from typing import Any, Final

from edge.jobs.runner import NodeSocket
from edge.link.core.rpc import Reply
from edge.link.link import EdgeLink
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Failed, Paired, PairingAsk, PairingUse
from mesh.frames import PairingCode as CodeFrame
from mesh.messages.base import Message
from mesh.messages.node import PairingCodeMessage, PairingCodeRequest

#: A home or an office has so many bits of an IPv6 address; the rest it may choose for each attempt.
IPV6_PREFIX: Final = 64


class PairingClient:
    """Asks the mesh about pairing codes. `handlers` are for messages of nodes."""

    def __init__(self, link: EdgeLink) -> None:
        self.handlers: dict[type[Message], Callable[[NodeSocket, Any, bytes], None]] = {
            PairingCodeRequest: self._on_request,
        }
        self._link = link
        #: Nodes that wait for a code.
        self._waiting: set[NodeSocket] = set()

    async def use(self, code: str, client: str) -> str:
        """The node that the code stands for. PeerError if it stands for none, or the client was wrong too often.

        `client` is from client_digest.
        """
        use = secrets.token_hex(16)

        def question(ref: str) -> PairingUse:
            return PairingUse(ref=ref, edge=self._link.identity, code=code, client=client, use=use)

        answer = await self._link.answer_to(question, code)
        if isinstance(answer, Paired):
            return answer.node_id
        raise _refusal(answer)

    def _on_request(self, socket: NodeSocket, message: PairingCodeRequest, text: bytes) -> None:
        socket.node.own(message.node_id)
        if not socket.node.is_open:
            return  # its newer connection may have a code, which this would end
        if socket in self._waiting:
            raise PeerError(ErrorCode.SLOW_DOWN, "wait for the code that you asked for")

        def question(ref: str) -> PairingAsk:
            return PairingAsk(ref=ref, edge=self._link.identity, node_id=message.node_id)

        def on_answer(answer: Reply | None) -> None:
            self._waiting.discard(socket)
            if isinstance(answer, CodeFrame):
                code = PairingCodeMessage(node_id=answer.node_id, code=answer.code, expires_in_ms=answer.expires_in_ms)
                socket.tell(code)
            else:
                socket.tell_error(_refusal(answer))

        self._waiting.add(socket)
        self._link.ask(question, message.node_id, on_answer, lambda: socket.node.is_open)


def client_digest(address: str) -> str:
    """A name for where a client comes from, by which its wrong codes are counted."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        place = address
    else:
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else found
        place = str(mapped or ipaddress.ip_network((found, IPV6_PREFIX), strict=False))
    return hashlib.blake2s(place.encode(), digest_size=16).hexdigest()


def _refusal(answer: Reply | None) -> PeerError:
    if answer is None:
        return PeerError(ErrorCode.SCHEDULER_DEPENDENCY_DOWN, "the mesh did not answer in time")
    assert isinstance(answer, Failed), "nothing else answers this"
    return PeerError(ErrorCode.__members__.get(answer.code, ErrorCode.INTERNAL_ERROR), answer.message)
