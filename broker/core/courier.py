"""Sends the envelopes of the switch and reports failed sends back to it.

Pure except for the function it is given, which passes a message to a socket and returns the outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final

from broker.core.credit import Peer
from broker.core.queues import Envelope
from broker.core.switch import Switch


class Outcome(IntEnum):
    """Outcome of one send."""

    SENT = 0
    PIPE_FULL = 1  # the pipe is full
    UNREACHABLE = 2  # no such peer


_PIPE_FULL: Final = Outcome.PIPE_FULL
_UNREACHABLE: Final = Outcome.UNREACHABLE

#: Passes a message to its receiver's socket, without blocking.
TrySend = Callable[[Envelope], Outcome]


class Courier:
    """Sends envelopes in order. A failed send may yield more envelopes; they follow the ones already waiting."""

    def __init__(self, switch: Switch, try_send: TrySend) -> None:
        self._switch = switch
        self._try_send = try_send

    def send_all(self, out: Iterable[Envelope]) -> None:
        """Send all envelopes or redirect them. Terminates: a receiver that failed is blocked or removed."""
        todo = deque(out)
        while todo:
            envelope = todo.popleft()
            peer = envelope.receiver
            assert peer is not None, "only envelopes with a receiver are sent"
            if not peer.is_known:
                todo.extend(self._switch.on_unreachable(envelope))
            elif peer.blocked:
                # It must not overtake queued messages.
                todo.extend(self._switch.on_pipe_full(envelope))
            else:
                outcome = self._try_send(envelope)
                if outcome is _PIPE_FULL:
                    todo.extend(self._switch.on_pipe_full(envelope))
                elif outcome is _UNREACHABLE:
                    todo.extend(self._switch.on_unreachable(envelope))

    def flush(self, wall_us: int) -> None:
        """Retry the queued messages of blocked peers."""
        for peer in list(self._switch.directory.blocked.values()):
            self._flush_peer(peer, wall_us)

    def _flush_peer(self, peer: Peer, wall_us: int) -> None:
        for envelope in self._switch.flush(peer, wall_us):
            if envelope.receiver is not peer:
                self.send_all([envelope])
                continue
            outcome = self._try_send(envelope)
            if outcome is _PIPE_FULL:
                self._switch.put_back(envelope)
                return
            if outcome is _UNREACHABLE:
                self.send_all(self._switch.on_unreachable(envelope))
                return
