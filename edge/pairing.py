"""Pairing: redeems the codes by which a client selects a node. Nodes get their codes in edge/nodes/pairing.py."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from typing import Final

from edge.link.core.rpc import Reply
from edge.link.link import EdgeLink
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Failed, Paired, PairingUse

#: Prefix length of an IPv6 network that is one site; a client may choose the remaining bits anew for each attempt.
IPV6_PREFIX: Final = 64


class PairingClient:
    """Redeems pairing codes of clients."""

    def __init__(self, link: EdgeLink) -> None:
        self._link = link

    async def use(self, code: str, client: str) -> str:
        """The node of the code. PeerError if it has none, or the client tried too many wrong codes.

        `client` is from client_digest.
        """
        use = secrets.token_hex(16)

        def call(ref: str) -> PairingUse:
            return PairingUse(ref=ref, edge=self._link.identity, code=code, client=client, use=use)

        reply = await self._link.answer_to(call, code)
        if isinstance(reply, Paired):
            return reply.node_id
        raise refusal_of(reply)


def client_digest(address: str) -> str:
    """A digest of the client's network, under which its wrong codes are counted."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        network = address
    else:
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else found
        network = str(mapped or ipaddress.ip_network((found, IPV6_PREFIX), strict=False))
    return hashlib.blake2s(network.encode(), digest_size=16).hexdigest()


def refusal_of(reply: Reply | None) -> PeerError:
    """The error for a peer whose pairing request failed; None: no selector replied in time."""
    if reply is None:
        return PeerError(ErrorCode.SCHEDULER_DEPENDENCY_DOWN, "the mesh did not answer in time")
    assert isinstance(reply, Failed), "a pairing call has no other reply"
    return PeerError(ErrorCode.__members__.get(reply.code, ErrorCode.INTERNAL_ERROR), reply.message)
