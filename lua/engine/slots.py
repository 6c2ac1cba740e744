"""Redis Cluster's map: which slot a key is in, which server has a slot. Pure."""

from __future__ import annotations

from binascii import crc_hqx
from typing import Any, Final

SLOTS: Final = 16_384
Address = tuple[str, int]


def slot_of(key: str) -> int:
    """The slot of a key: CRC-16 of what is between its first braces, or of all of it."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS


class SlotMap:
    """Who has which slot, as far as we know."""

    def __init__(self) -> None:
        self._owner: list[Address | None] = [None] * SLOTS

    def owner(self, slot: int) -> Address | None:
        """The server that has `slot`, if any is known."""
        return self._owner[slot]

    def owners(self) -> list[Address]:
        """All servers that have a slot."""
        return sorted({address for address in self._owner if address})

    def note_move(self, slot: int, address: Address) -> None:
        """A MOVED reply said so."""
        self._owner[slot] = address

    def replace(self, reply: list[Any], asked: str) -> None:
        """Take over a CLUSTER SLOTS reply. A server that does not know its own name is at the host we `asked`."""
        owner: list[Address | None] = [None] * SLOTS
        for first, last, (host, port, *_), *_ in reply:
            address = (host.decode() if host else asked, int(port))
            owner[first : last + 1] = [address] * (last + 1 - first)
        self._owner = owner
