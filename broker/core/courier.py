"""Carries out what the switch decided: tries each send, and tells the switch of those that failed.

Pure but for the one function it is given, which hands a message to a socket and says what came of it.
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
    """What came of one send."""

    SENT = 0
    STUCK = 1  # the pipe is full
    GONE = 2  # there is no such peer


_STUCK: Final = Outcome.STUCK
_GONE: Final = Outcome.GONE

#: Hands a message to its receiver's socket, without waiting.
Attempt = Callable[[Envelope], Outcome]


class Courier:
    """Performs effects in order. A failed send may yield more effects; they come after those already waiting."""

    def __init__(self, switch: Switch, attempt: Attempt) -> None:
        self._switch = switch
        self._attempt = attempt

    def perform(self, out: Iterable[Envelope]) -> None:
        """Send all of it, or find another way. Ends, because a receiver that failed is blocked or forgotten."""
        todo = deque(out)
        while todo:
            mail = todo.popleft()
            peer = mail.receiver
            assert peer is not None, "only mail with a receiver is sent"
            if not peer.present:
                todo.extend(self._switch.gone(mail))
            elif peer.blocked:
                # It must not overtake what waits already.
                todo.extend(self._switch.stuck(mail))
            else:
                outcome = self._attempt(mail)
                if outcome is _STUCK:
                    todo.extend(self._switch.stuck(mail))
                elif outcome is _GONE:
                    todo.extend(self._switch.gone(mail))

    def flush(self, wall_us: int) -> None:
        """Try again to send what waits for peers whose pipe was full."""
        for peer in self._switch.directory.blocked():
            self._flush_peer(peer, wall_us)

    def _flush_peer(self, peer: Peer, wall_us: int) -> None:
        for mail in self._switch.flush(peer, wall_us):
            if mail.receiver is not peer:
                self.perform([mail])
                continue
            outcome = self._attempt(mail)
            if outcome is _STUCK:
                self._switch.put_back(mail)
                return
            if outcome is _GONE:
                self.perform(self._switch.gone(mail))
                return
