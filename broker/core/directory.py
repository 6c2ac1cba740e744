"""Who this broker knows: peers by identity and by name, which selectors are live, and who cannot take mail now."""

from __future__ import annotations

from typing import NamedTuple

from broker.core.credit import Peer, Side
from broker.core.routes import Routes


class PeerChange(NamedTuple):
    """A peer came or went; for the log."""

    event: str  # "peer_met" | "peer_lost"
    name: str
    reason: str


class Directory:
    """All peers. Both indexes, the routes and the list of blocked peers change together, only here."""

    def __init__(self, *, cells: int, peers_max: int, queue_max: int, acquaintances: int) -> None:
        self.peers: dict[bytes, Peer] = {}
        self.by_name: dict[str, Peer] = {}
        self.routes = Routes(cells)
        #: What happened since the rim last looked.
        self.news: list[PeerChange] = []
        self._peers_max = peers_max
        self._queue_max = queue_max
        self._acquaintances = acquaintances
        #: In the order in which they got stuck.
        self._blocked: dict[bytes, Peer] = {}

    def is_full(self) -> bool:
        """True if no more peers can be met."""
        return len(self.peers) >= self._peers_max

    def meet(self, identity: bytes, side: Side, now_ms: int) -> Peer:
        """A peer that was not known."""
        self._acquaintances += 1
        peer = Peer(identity, side, queue_max=self._queue_max, acquaintance=self._acquaintances, now_ms=now_ms)
        self.peers[identity] = self.by_name[peer.name] = peer
        if side is Side.BACK:
            self.refresh_routes()
        self.news.append(PeerChange("peer_met", peer.name, ""))
        return peer

    def forget(self, peer: Peer, reason: str) -> None:
        """Remove a peer; what waits for it stays with the caller's reference."""
        peer.present = False
        self.unblock(peer)
        del self.peers[peer.identity]
        del self.by_name[peer.name]
        if peer.side is Side.BACK:
            self.refresh_routes()
        self.news.append(PeerChange("peer_lost", peer.name, reason))

    def selectors(self) -> list[Peer]:
        """Live selectors, draining ones too."""
        return [peer for peer in self.peers.values() if peer.side is Side.BACK]

    def refresh_routes(self) -> None:
        """Call it when a selector begins or ends to drain."""
        self.routes.replace(self.selectors())

    def block(self, peer: Peer) -> None:
        """Its pipe is full: mail for it queues from now on."""
        peer.blocked = True
        self._blocked[peer.identity] = peer

    def unblock(self, peer: Peer) -> None:
        """Its queues are empty again."""
        peer.blocked = False
        self._blocked.pop(peer.identity, None)

    def blocked(self) -> list[Peer]:
        """Peers whose mail waits."""
        return list(self._blocked.values())

    def check(self) -> None:
        """Assert that all indexes agree."""
        assert len(self.peers) <= self._peers_max, "more peers than allowed"
        assert {peer.name for peer in self.peers.values()} == set(self.by_name), "the two indexes differ"
        assert self._blocked.keys() <= self.peers.keys(), "a forgotten peer is still listed as blocked"
        for peer in self.peers.values():
            peer.check()
            assert peer.blocked == (peer.identity in self._blocked), f"{peer.name}: blocked flag and list differ"
        self.routes.check(self.selectors())
