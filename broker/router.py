"""One ROUTER of a broker: its packets in and out, and when to look for them.

The loop polls the descriptors of both sockets: zmq_poll would look into each socket before and after it waits. A
descriptor announces a message once, and a send may take that signal. So a socket that was used since it was found empty
must be asked (`has_unannounced`) before a wait.
"""

from __future__ import annotations

from typing import Any, Final, cast

import zmq

from broker.core.courier import Outcome
from broker.core.queues import Parts
from mesh.config.network import LinkConfig
from mesh.link.sockets import POLLIN, bind, drainer, events_reader, open_router, sender

_SENT: Final = Outcome.SENT


class RouterSocket:
    """A ROUTER that never waits."""

    __slots__ = ("_drain", "_drain_max", "_events", "_is_unchecked", "_send", "_socket", "fd")

    def __init__(self, context: zmq.Context[Any], link: LinkConfig) -> None:
        socket = self._socket = open_router(context, link)
        self.fd = cast(int, socket.getsockopt(zmq.FD))
        self._drain = drainer(socket, link.drain_max)
        self._drain_max = link.drain_max
        self._events = events_reader(socket)
        self._send = sender(socket)
        #: Packets may wait although the descriptor does not announce them.
        self._is_unchecked = True

    def bind(self, endpoint: str) -> str:
        """Listen; returns the endpoint in use. ConfigError if it cannot or must not be bound."""
        return bind(self._socket, endpoint)

    def close(self, linger_ms: int) -> None:
        """Close; packets in its pipes have `linger_ms` to leave."""
        self._socket.close(linger=linger_ms)

    def has_unannounced(self) -> bool:
        """True if packets wait that the descriptor may not announce: receive them without a wait."""
        if self._is_unchecked:
            self._is_unchecked = bool(self._events() & POLLIN)
        return self._is_unchecked

    def receive(self) -> list[Parts]:
        """The packets that have arrived, at most drain_max."""
        arrived = self._drain()
        self._is_unchecked = len(arrived) >= self._drain_max
        return arrived

    def try_send(self, identity: bytes, table: bytes, blobs: Parts) -> Outcome:
        """Send one packet to a peer."""
        self._is_unchecked = True
        try:
            self._send([identity, table, *blobs])
        except zmq.Again:
            return Outcome.PIPE_FULL
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return Outcome.UNREACHABLE
        return _SENT
