"""Frame base: the head that brokers read, the two lanes, and the class that every frame derives from."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

#: Bumped only for a change that an older peer would misread.
FRAME_VERSION: Final = 1


class Lane(IntEnum):
    """Which queue a message waits in. Control is always served first and needs no credit."""

    CONTROL = 0
    WORK = 1


class Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The first part of every message: all that a broker reads."""

    version: int
    lane: int
    #: "" = any selector, by cell; BROKER = the broker itself; otherwise a peer's identity.
    to: str
    cell: int
    #: The sender's identity. A broker drops a message whose source is not the socket's own.
    source: str
    #: Sender's wall clock in microseconds: for the hop-time histogram, and to tell which of its frames is later.
    sent_us: int
    #: Wall clock ms after which nobody wants this message any more; 0 = never.
    deadline_ms: int = 0


BROKER: Final = "@broker"
#: Parts behind head and frame that a message may have. Brokers drop what has more.
PAYLOAD_PARTS_MAX: Final = 12


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of all frames; the class name is the tag."""
