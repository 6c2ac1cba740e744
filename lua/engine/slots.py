"""Hash slots of Redis Cluster: the slot of a key, the server of a slot. Pure."""

from __future__ import annotations

from binascii import crc_hqx
from typing import Any, Final

SLOTS: Final = 16_384
Address = tuple[str, int]


def slot_of(key: str) -> int:
    """The slot of a key: CRC-16 of its hash tag (the text in the first braces), or of the whole key."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS


class SlotMap:
    """The known owner of each slot."""

    def __init__(self) -> None:
        self._owner: list[Address | None] = [None] * SLOTS

    def owner(self, slot: int) -> Address | None:
        """The server that owns `slot`, None if unknown."""
        return self._owner[slot]

    def owners(self) -> list[Address]:
        """All servers that own a slot."""
        return sorted({address for address in self._owner if address})

    def on_moved(self, slot: int, address: Address) -> None:
        """Apply a MOVED reply."""
        self._owner[slot] = address

    def replace(self, reply: list[Any], default_host: str) -> None:
        """Apply a CLUSTER SLOTS reply. A server without a host name in it is at `default_host`."""
        owner: list[Address | None] = [None] * SLOTS
        for first, last, (host, port, *_), *_ in reply:
            address = (host.decode() if host else default_host, int(port))
            owner[first : last + 1] = [address] * (last + 1 - first)
        self._owner = owner
