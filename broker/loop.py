"""The broker's sockets: a plain poll loop around broker/core/switch.py. Decides nothing.

Two ROUTERs, no threads, no asyncio: each pass takes at most drain_max packets from each socket and sends what the core
has for each peer as one packet. Every send is DONTWAIT; failures are reported to the core.

The loop polls the sockets' descriptors: zmq_poll would look into both sockets before and after it waits. A descriptor
announces a message once. A send may take that signal, so a socket that was used since it was empty is checked first.
"""

from __future__ import annotations

import select
from typing import Any, Final, cast

import zmq

from broker.core.courier import Courier, Outcome
from broker.core.credit import Peer, Side
from broker.core.switch import Switch
from mesh import clock
from mesh.config.network import BrokerConfig, LinkConfig
from mesh.link.sockets import POLLIN, bind, drainer, events_reader, open_router, sender
from mesh.log import get_logger

#: Passes of the loop after a stop, at most: draining must end even if the clock does not.
_PASSES_AT_STOP_MAX: Final = 1_000

_SENT: Final = Outcome.SENT
_SIDES: Final = tuple(Side)


class BrokerLoop:
    """The rim of one broker. `run` returns once `stop` was called (from a signal handler) and queues have drained."""

    def __init__(self, switch: Switch, link: LinkConfig, config: BrokerConfig, *, wake_fd: int = -1) -> None:
        """`wake_fd`: a descriptor that becomes readable when a signal arrives."""
        self.switch = switch
        self._config = config
        self._log = get_logger()
        self._context: zmq.Context[Any] = zmq.Context()
        self._sockets = [open_router(self._context, link), open_router(self._context, link)]
        self._drain = [drainer(socket, link.drain_max) for socket in self._sockets]
        self._send = [sender(socket) for socket in self._sockets]
        self._courier = Courier(switch, self._try_send)
        self._events = [events_reader(socket) for socket in self._sockets]
        self._drain_max = link.drain_max
        #: By side: messages may wait in the socket although its descriptor does not say so.
        self._unchecked = [True, True]
        self._fds = [cast(int, socket.getsockopt(zmq.FD)) for socket in self._sockets]
        self._poll = select.poll()
        for fd in self._fds:
            self._poll.register(fd, select.POLLIN)
        self._wake_fd = wake_fd
        if wake_fd >= 0:
            self._poll.register(wake_fd, select.POLLIN)
        self._stopping = False

    def bind(self, frontend: str, backend: str) -> tuple[str, str]:
        """Listen; returns the endpoints in use. ConfigError if an endpoint cannot or must not be bound."""
        return bind(self._sockets[Side.FRONT], frontend), bind(self._sockets[Side.BACK], backend)

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
        for socket in self._sockets:
            socket.close(linger=self._config.drain_ms)
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

    def _receive(self, timeout_ms: int) -> list[list[list[Any]]]:
        """Wait for packets; those of the two sockets."""
        waiting = [self._unchecked[side] and self._events[side]() & POLLIN for side in _SIDES]
        readable = [fd for fd, _ in self._poll.poll(0 if any(waiting) else timeout_ms)]
        arrived: list[list[list[Any]]] = [[], []]
        for side in _SIDES:
            if waiting[side] or self._fds[side] in readable:
                arrived[side] = self._drain[side]()
            self._unchecked[side] = len(arrived[side]) >= self._drain_max
        return arrived

    def _try_send(self, peer: Peer, table: bytes, blobs: list[Any]) -> Outcome:
        self._unchecked[peer.side] = True
        try:
            self._send[peer.side]([peer.identity, table, *blobs])
        except zmq.Again:
            return Outcome.PIPE_FULL
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return Outcome.UNREACHABLE
        return _SENT

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
