"""Routes of frames for any selector: rendezvous hashing of their cell over the live selectors.

Every broker computes the same order from the same names, so one selector normally sees all traffic of a cell; when a
selector is added or removed, only its own cells move.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from broker.core.credit import Peer


def rank(cell: int, name: str) -> bytes:
    """The weight of a selector for a cell. Highest wins; equal on every broker, independent of its hash seed."""
    return blake2b(f"{cell}|{name}".encode(), digest_size=8).digest()


class Routes:
    """The order of live selectors per cell, computed once per cell and live set."""

    def __init__(self, cells: int) -> None:
        self._cells = cells
        self._selectors: list[Peer] = []
        #: The orders that are computed, by cell.
        self.orders: dict[int, list[Peer]] = {}

    def replace(self, selectors: Iterable[Peer]) -> None:
        """Set the live selectors: all that accept work, or, if none does, the draining ones."""
        live = list(selectors)
        self._selectors = [peer for peer in live if not peer.draining] or live
        self.orders = {}

    def order(self, cell: int) -> list[Peer]:
        """Live selectors for a cell, best first; empty when there is none. Computed once: look into `orders` first."""
        cell %= self._cells  # a peer may send any number, and the cache must stay bounded
        found = self.orders.get(cell)
        if found is None:
            found = sorted(self._selectors, key=lambda peer: rank(cell, peer.name), reverse=True)
            self.orders[cell] = found
        return found

    def check(self, expected: Iterable[Peer]) -> None:
        """Assert that every cached order has exactly the live selectors."""
        live = list(expected)
        wanted = {peer.name for peer in live if not peer.draining} or {peer.name for peer in live}
        for cell, found in self.orders.items():
            assert {peer.name for peer in found} == wanted, f"the order of cell {cell} is out of date"
