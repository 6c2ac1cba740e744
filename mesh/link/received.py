"""Frames as handlers receive them, and the reading of packets that a broker sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import zmq

from mesh.frames import BrokerBeat, Frame, Head
from mesh.frames.packets import open_payload, read_opened
from mesh.link.credit import LinkCredit

#: One part of a payload. To send: bytes, or a zmq.Frame, which goes by reference. Received: bytes below the sender's
#: link.inline_bytes_max, from there on a zmq.Frame. That has a length and the buffer protocol: msgspec decodes it and
#: `Link.send` passes it on without a copy; `bytes(part)` and `part.bytes` copy it.
Part: TypeAlias = bytes | zmq.Frame


def bytes_of(part: Part) -> bytes:
    """The part as bytes; copies a zmq.Frame."""
    return part if isinstance(part, bytes) else part.bytes


class Received(NamedTuple):
    """One frame. `broker` is the endpoint that it came from, for `Link.consumed`, `avoid` and `prefer`."""

    head: Head
    frame: Frame
    payload: list[Part]
    broker: str
    #: Work for any selector: must be released by `Link.consumed` when it is done.
    costs_credit: bool = False


class Lanes:
    """The frames of one read, by lane, each in order of arrival."""

    __slots__ = ("_control", "_work", "count", "malformed")

    def __init__(self) -> None:
        self._control: list[Received] = []
        self._work: list[Received] = []
        self.count = 0
        #: Frames whose entry could not be decoded or has no such blobs.
        self.malformed = 0

    def add_packet(
        self, parts: list[Any], endpoint: str, credit: LinkCredit, on_beat: Callable[[BrokerBeat], None]
    ) -> None:
        """Add the frames of a packet; work for any selector and beats are applied in order of arrival.

        Raises what `read_opened` raises.
        """
        entries, malformed = read_opened(parts[0])
        control, work = self._control, self._work
        received = 0
        for entry in entries:
            frame = entry.frame
            if type(frame) is BrokerBeat:
                on_beat(frame)
                continue
            payload: list[Any] | None = entry.payload and open_payload(entry, parts)
            if payload is None:
                malformed += 1
                continue
            received += 1
            if not entry.lane:
                control.append(Received(entry, frame, payload, endpoint))
            elif entry.to:
                work.append(Received(entry, frame, payload, endpoint))
            else:
                credit.on_work()
                work.append(Received(entry, frame, payload, endpoint, True))
        self.count += received
        self.malformed += malformed

    def in_order(self) -> list[Received]:
        """All frames, control first."""
        return self._control + self._work
