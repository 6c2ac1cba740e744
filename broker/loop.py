"""The broker's sockets: a plain poll loop around broker/core/switch.py. Decides nothing.

Two ROUTERs, no threads, no asyncio: at most drain_max messages are taken from each socket, then the core says what to
send. Every send is DONTWAIT; what fails goes back to the core.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import zmq

from broker.core.credit import Peer, Side
from broker.core.queues import Parts, Send
from broker.core.switch import Switch
from mesh import clock
from mesh.config import BrokerConfig, LinkConfig
from mesh.sockets import bind, open_router

_PASSES_AT_STOP_MAX: Final = 1_000


class BrokerLoop:
    """The rim of one broker. `run` returns once `stop` was called (from a signal handler) and queues have drained."""

    def __init__(self, switch: Switch, link: LinkConfig, config: BrokerConfig, *, wake_fd: int = -1) -> None:
        """`wake_fd`: a descriptor that becomes readable when a signal came."""
        self.switch = switch
        self._link = link
        self._config = config
        self._context: zmq.Context[Any] = zmq.Context()
        self._sockets = [open_router(self._context, link), open_router(self._context, link)]
        self._poller = zmq.Poller()
        for socket in self._sockets:
            self._poller.register(socket, zmq.POLLIN)
        if wake_fd >= 0:
            self._poller.register(wake_fd, zmq.POLLIN)
        self._stopping = False

    def bind(self, frontend: str, backend: str) -> tuple[str, str]:
        """Listen; the endpoints in use. ConfigError if that cannot or must not be."""
        return bind(self._sockets[Side.FRONT], frontend), bind(self._sockets[Side.BACK], backend)

    def stop(self) -> None:
        """Ask `run` to return; safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Serve until stopped."""
        while not self._stopping:
            self.turn(self._timeout_ms())
        self._finish()

    def close(self) -> None:
        """Close the sockets; nothing lingers."""
        for socket in self._sockets:
            socket.close(linger=0)
        self._context.term()

    def turn(self, timeout_ms: int) -> None:
        """One pass: wait for messages or the next timer, then move everything that can move."""
        ready = dict(self._poller.poll(timeout_ms))
        front, back = (self._drain(socket) if socket in ready else [] for socket in self._sockets)
        now_ms, wall_us = clock.now_ms(), clock.wall_us()
        self._perform(self.switch.receive(front, back, now_ms, wall_us))
        for peer in self.switch.blocked():
            self._flush(peer, wall_us)
        self._perform(self.switch.tick(now_ms))

    def _timeout_ms(self) -> int:
        wait_ms = max(0, self.switch.next_due_ms() - clock.now_ms())
        return min(wait_ms, self._config.flush_ms) if self.switch.blocked() else wait_ms

    def _drain(self, socket: zmq.Socket[bytes]) -> list[Parts]:
        batch: list[Parts] = []
        try:
            for _ in range(self._link.drain_max):
                batch.append(socket.recv_multipart(zmq.DONTWAIT))
        except zmq.Again:
            pass
        return batch

    def _perform(self, effects: list[Send]) -> None:
        todo = deque(effects)
        while todo:
            send = todo.popleft()
            if not send.peer.present:
                todo.extend(self.switch.gone(send))
            elif send.peer.blocked:
                todo.extend(self.switch.stuck(send))
            else:
                self._try(send, todo)

    def _try(self, send: Send, todo: deque[Send]) -> None:
        try:
            self._sockets[send.peer.side].send_multipart(send.mail.parts, zmq.DONTWAIT)
        except zmq.Again:
            todo.extend(self.switch.stuck(send))
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            todo.extend(self.switch.gone(send))

    def _flush(self, peer: Peer, wall_us: int) -> None:
        for send in self.switch.flush_next(peer, wall_us):
            if send.peer is not peer:
                self._perform([send])
                continue
            try:
                self._sockets[peer.side].send_multipart(send.mail.parts, zmq.DONTWAIT)
            except zmq.Again:
                self.switch.put_back(send)
                return
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                self._perform(self.switch.gone(send))
                return

    def _finish(self) -> None:
        """Give what is queued a moment to leave."""
        end_ms = clock.now_ms() + self._config.drain_ms
        for _ in range(_PASSES_AT_STOP_MAX):
            if not self.switch.blocked() or clock.now_ms() >= end_ms:
                return
            self.turn(self._config.flush_ms)
