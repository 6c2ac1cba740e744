"""Frames of one turn of the event loop for one broker, which become one packet. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from mesh.frames import BROKER
from mesh.frames.packets import Sealed, encode_table


class FrameBatch(NamedTuple):
    """The frames of one packet, in the order in which they were sent."""

    entries: list[Sealed]
    #: Large payload parts, in the order of the entries.
    blobs: list[Any]
    #: Frames of the link itself, for that broker alone.
    own: int

    def parts(self) -> list[Any]:
        """The packet."""
        return [encode_table(self.entries), *self.blobs]

    def diverted(self) -> FrameBatch:
        """What another broker may take: all but the frames of the link itself, which have no blobs."""
        return FrameBatch([entry for entry in self.entries if entry.to != BROKER], self.blobs, 0) if self.own else self


class Outbox:
    """Collects frames within the bounds of a packet. Must be emptied by `take` whenever `add` or `fits` demands it."""

    __slots__ = ("_blobs", "_bytes", "_bytes_max", "_entries", "_frames_max", "_own")

    def __init__(self, frames_max: int, bytes_max: int) -> None:
        self._frames_max = frames_max
        self._bytes_max = bytes_max
        self._entries: list[Sealed] = []
        self._blobs: list[Any] = []
        self._bytes = 0
        self._own = 0

    def __len__(self) -> int:
        return len(self._entries)

    def fits(self, size: int) -> bool:
        """False if the packet must be sent before a frame of `size` bytes is added."""
        return self._bytes + size <= self._bytes_max or not self._entries

    def add(self, entry: Sealed, size: int, blobs: list[Any] | None = None, *, own: bool = False) -> bool:
        """Add one frame of `size` bytes, blobs included; True if the packet has reached a bound: send it now."""
        if blobs:
            entry.blob = len(self._blobs)
            self._blobs += blobs
        self._entries.append(entry)
        self._bytes += size
        self._own += own
        return self._bytes >= self._bytes_max or len(self._entries) >= self._frames_max

    def take(self) -> FrameBatch:
        """Empty the outbox."""
        batch = FrameBatch(self._entries, self._blobs, self._own)
        self._entries, self._blobs, self._bytes, self._own = [], [], 0, 0
        return batch
