"""Frame base: the head that brokers read, the two lanes, the roles, and the base class of all frames."""

from __future__ import annotations

from enum import Flag, IntEnum, auto
from typing import Annotated, Any, ClassVar, Final

import msgspec

#: Bumped only for a change that an older peer would misread.
FRAME_VERSION: Final = 2


class Lane(IntEnum):
    """The queue of a message. Control is always served first and needs no credit."""

    CONTROL = 0
    WORK = 1


class Role(Flag):
    """The receiver of a frame. A frame may have more than one."""

    BROKER = auto()
    EDGE = auto()
    SELECTOR = auto()
    #: The link of an edge or selector itself, below its handlers.
    LINK = auto()


class Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Address of one frame: what a broker reads of an entry (mesh/frames/packets.py), beside the numbers of its blobs.

    A field added here changes the place of the other fields of an entry: it needs another FRAME_VERSION.
    """

    lane: Annotated[int, msgspec.Meta(ge=0, le=1)]
    #: "" = any selector, by cell; BROKER = the broker itself; otherwise a peer's identity.
    to: str
    cell: int
    #: The sender's identity. A broker drops a frame whose source is not the socket's own.
    source: str
    #: Sender's wall clock in microseconds: for the hop-time histogram, and to order frames of one sender. No two frames
    #: of a sender have the same.
    sent_us: int
    #: Wall clock in milliseconds after which the frame is returned to its sender; 0 = never.
    deadline_ms: int = 0


BROKER: Final = "@broker"
#: Upper bound of the payload parts of one frame. Links refuse to send more, and drop a received frame with more.
PAYLOAD_PARTS_MAX: Final = 12
#: Upper bound of the frames of one packet. A packet with more is dropped as a whole.
PACKET_FRAMES_MAX: Final = 4_096


class FrameMeta(msgspec.StructMeta):
    """Takes the class arguments `to` (receivers) and `lane`, which msgspec would refuse as unknown."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **arguments: Any) -> FrameMeta:
        own = {key: arguments.pop(key) for key in ("to", "lane") if key in arguments}
        if any(isinstance(base, FrameMeta) for base in bases) and len(own) < 2:
            raise TypeError(f"frame {name} needs to= and lane=")
        cls = super().__new__(mcls, name, bases, namespace, **arguments)
        for key, value in own.items():
            setattr(cls, key, value)
        return cls


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False, metaclass=FrameMeta):
    """Base of all frames; the class name is the tag."""

    to: ClassVar[Role]
    lane: ClassVar[Lane]
