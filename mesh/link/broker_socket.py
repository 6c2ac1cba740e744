"""The socket of a link to one broker, with what the link knows of that broker."""

from __future__ import annotations

from typing import cast

import zmq

from mesh.config.network import LinkConfig
from mesh.link.credit import LinkCredit
from mesh.link.outbox import FrameBatch, Outbox
from mesh.link.sockets import POLLOUT, drainer, events_reader, sender


class BrokerSocket:
    """One DEALER, the packet that it sends next, and the broker's liveness and credit."""

    __slots__ = (
        "credit",
        "drain",
        "endpoint",
        "events",
        "fd",
        "is_refused",
        "outbox",
        "read_scheduled",
        "send",
        "socket",
        "writable",
    )

    def __init__(self, endpoint: str, socket: zmq.Socket[bytes], credit: LinkCredit, config: LinkConfig) -> None:
        self.endpoint = endpoint
        self.socket = socket
        self.fd = cast(int, socket.getsockopt(zmq.FD))
        self.events = events_reader(socket)
        self.drain = drainer(socket, config.drain_max)
        self.send = sender(socket)
        self.credit = credit
        self.outbox = Outbox(config.batch_frames_max, min(config.batch_bytes_max, config.message_bytes_max))
        #: The socket took the last packet, or was writable when last checked since. Becoming writable means a new
        #: connection, or a pipe that was full.
        self.writable = False
        #: A read of the socket is scheduled already.
        self.read_scheduled = False
        #: Packets of another version came from it, which the log says once.
        self.is_refused = False

    def try_send(self, batch: FrameBatch) -> bool:
        """Send one packet; False if the pipe is full or closed."""
        try:
            self.send(batch.parts())
        except zmq.Again:
            self.writable = False
            return False
        return True

    def needs_read(self) -> bool:
        """True if the socket must be read after a send, which may have taken the signal of an arrived message."""
        return not self.writable or self.events() != POLLOUT
