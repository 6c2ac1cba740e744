"""The broker's sockets: a plain poll loop around broker/core/switch.py. Decides nothing.

Two ROUTERs, no threads, no asyncio: each pass takes at most drain_max packets from each socket and sends what the core
has for each peer as one packet. Every send is DONTWAIT; failures are reported to the core.
"""

from __future__ import annotations

import select
from typing import Any, Final

import zmq

from broker.core.courier import Courier, Outcome
from broker.core.credit import Peer, Side
from broker.core.queues import Parts
from broker.core.switch import Switch
from broker.router import RouterSocket
from mesh import clock
from mesh.config.network import BrokerConfig, LinkConfig
from mesh.log import get_logger

#: Passes of the loop after a stop, at most: draining must end even if the clock does not.
_PASSES_AT_STOP_MAX: Final = 1_000


class BrokerLoop:
    """The rim of one broker. `run` returns once `stop` was called (from a signal handler) and queues have drained."""

    def __init__(self, switch: Switch, link: LinkConfig, config: BrokerConfig, *, wake_fd: int = -1) -> None:
        """`wake_fd`: a descriptor that becomes readable when a signal arrives."""
        self.switch = switch
        self._config = config
        self._log = get_logger()
        self._context: zmq.Context[Any] = zmq.Context()
        #: By side.
        self._routers = (RouterSocket(self._context, link), RouterSocket(self._context, link))
        self._courier = Courier(switch, self._try_send)
        self._poll = select.poll()
        for router in self._routers:
            self._poll.register(router.fd, select.POLLIN)
        self._wake_fd = wake_fd
        if wake_fd >= 0:
            self._poll.register(wake_fd, select.POLLIN)
        self._stopping = False

    def bind(self, frontend: str, backend: str) -> tuple[str, str]:
        """Listen; returns the endpoints in use. ConfigError if an endpoint cannot or must not be bound."""
        return self._routers[Side.FRONT].bind(frontend), self._routers[Side.BACK].bind(backend)

    def stop(self) -> None:
        """Ask `run` to return; safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Serve until stopped."""
        wait_ms = 0
        while not self._stopping:
            self.run_once(wait_ms)
            wait_ms = max(0, self.switch.next_due_ms - clock.now_ms())
            if self.switch.directory.blocked:
                wait_ms = min(wait_ms, self._config.flush_ms)
        self._finish()

    def close(self) -> None:
        """Close the sockets; messages in their pipes have drain_ms to leave."""
        for router in self._routers:
            router.close(self._config.drain_ms)
        self._context.term()

    def run_once(self, timeout_ms: int) -> bool:
        """One pass: wait for packets or the next timer, then send everything that can be sent. True if any arrived."""
        front, back = self._receive(timeout_ms)
        now_ms, wall_us = clock.now_ms(), clock.wall_us()
        if front or back:
            self._courier.send_all(self.switch.receive(front, back, now_ms, wall_us))
        if self.switch.directory.blocked:
            self._courier.flush(wall_us)
        if now_ms >= self.switch.next_due_ms:
            self._courier.send_all(self.switch.tick(now_ms))
            self._log_changes()
        return bool(front or back)

    def _receive(self, timeout_ms: int) -> tuple[list[Parts], list[Parts]]:
        """Wait for packets; those of the two sockets."""
        front, back = self._routers
        from_front, from_back = front.has_unannounced(), back.has_unannounced()
        for fd, _ in self._poll.poll(0 if from_front or from_back else timeout_ms):
            from_front |= fd == front.fd
            from_back |= fd == back.fd
        return front.receive() if from_front else [], back.receive() if from_back else []

    def _try_send(self, peer: Peer, table: bytes, blobs: Parts) -> Outcome:
        return self._routers[peer.side].try_send(peer.identity, table, blobs)

    def _finish(self) -> None:
        """Drain: send arrived and queued frames, for at most drain_ms."""
        if self._wake_fd >= 0:
            self._poll.unregister(self._wake_fd)  # it stays readable and would keep the poll from waiting
        end_ms = clock.now_ms() + self._config.drain_ms
        for _ in range(_PASSES_AT_STOP_MAX):
            moved = self.run_once(self._config.flush_ms)
            if clock.now_ms() >= end_ms or not (moved or self.switch.directory.blocked):
                break
        self._log_changes()

    def _log_changes(self) -> None:
        changes = self.switch.directory.changes
        for event, name, reason in changes:
            log = self._log.warning if event == "peer_refused" else self._log.info
            log(event, peer=name, reason=reason)
        changes.clear()
