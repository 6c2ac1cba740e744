"""Directory of the known peers: by identity and name, live selectors, blocked peers."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from broker.core.credit import Peer, Side
from broker.core.queues import LaneQueues
from broker.core.routes import Routes


class RemovalReason(StrEnum):
    """Why a peer was removed; for the log."""

    GOODBYE = "goodbye"
    SILENT = "silent"  # for link.dead_ms
    UNREACHABLE = "unreachable"
    WRONG_SIDE = "wrong_side"  # an edge on the selectors' socket, or the reverse


class PeerChange(NamedTuple):
    """A peer was added, removed or refused; for the log."""

    event: str  # "peer_connected" | "peer_lost" | "peer_refused"
    name: str
    reason: str


class Directory:
    """All peers. Both indexes, the routes and the list of blocked peers change together, only here."""

    def __init__(
        self, *, cells: int, peers_max: int, queue_max: int, queue_bytes_max: int, connection_start: int
    ) -> None:
        self.peers: dict[bytes, Peer] = {}
        self.by_name: dict[str, Peer] = {}
        self.routes = Routes(cells)
        #: Changes since the rim last logged them.
        self.changes: list[PeerChange] = []
        self._peers_max = peers_max
        self._queue_max = queue_max
        self._queue_bytes_max = queue_bytes_max
        #: Identities whose refusal is noted in `changes`, at most as many as peers; the oldest is evicted.
        self._refused: dict[bytes, None] = {}
        self._last_connection = connection_start
        #: Peers with queued messages, in the order in which their pipes became full.
        self.blocked: dict[bytes, Peer] = {}

    def is_full(self) -> bool:
        """True if no more peers can be added."""
        return len(self.peers) >= self._peers_max

    def add(self, identity: bytes, side: Side, now_ms: int) -> Peer:
        """Add a new peer, with the next connection number."""
        self._last_connection += 1
        queues = LaneQueues(self._queue_max, self._queue_bytes_max)
        peer = Peer(identity, side, queues=queues, connection=self._last_connection, now_ms=now_ms)
        self.peers[identity] = self.by_name[peer.name] = peer
        if side is Side.BACK:
            self.refresh_routes()
        self.changes.append(PeerChange("peer_connected", peer.name, ""))
        return peer

    def remove(self, peer: Peer, reason: RemovalReason) -> None:
        """Remove a peer; its queued messages stay with the caller's reference."""
        peer.is_known = False
        self.unblock(peer)
        del self.peers[peer.identity]
        del self.by_name[peer.name]
        if peer.side is Side.BACK:
            self.refresh_routes()
        self.changes.append(PeerChange("peer_lost", peer.name, reason))

    def refuse(self, identity: bytes, reason: str) -> None:
        """Note, once for each identity, that its packets are refused."""
        if identity in self._refused:
            return
        if len(self._refused) >= self._peers_max:
            del self._refused[next(iter(self._refused))]
        self._refused[identity] = None
        if len(self.changes) < self._peers_max:
            self.changes.append(PeerChange("peer_refused", identity.decode(errors="replace"), reason))

    def selectors(self) -> list[Peer]:
        """Live selectors, draining ones too."""
        return [peer for peer in self.peers.values() if peer.side is Side.BACK]

    def refresh_routes(self) -> None:
        """Recompute the routes; call it when a selector starts or stops draining."""
        self.routes.replace(self.selectors())

    def block(self, peer: Peer) -> None:
        """Its pipe is full: queue messages for it from now on."""
        peer.blocked = True
        self.blocked[peer.identity] = peer

    def unblock(self, peer: Peer) -> None:
        """Its queues are empty again."""
        peer.blocked = False
        self.blocked.pop(peer.identity, None)

    def check(self) -> None:
        """Assert that all indexes agree."""
        assert len(self.peers) <= self._peers_max, "more peers than allowed"
        assert {peer.name for peer in self.peers.values()} == set(self.by_name), "the two indexes differ"
        assert self.blocked.keys() <= self.peers.keys(), "a removed peer is still listed as blocked"
        for peer in self.peers.values():
            peer.check()
            assert peer.blocked == (peer.identity in self.blocked), f"{peer.name}: blocked flag and list differ"
        self.routes.check(self.selectors())
