"""Link of an edge or selector to all brokers: one DEALER socket per broker, all connected at once.

Owns beats, the liveness of brokers, failover between them and credit (mesh/link/credit.py). Must not know the meaning
of frames. Nothing is buffered here: a message that no live broker takes at once is the caller's to retry.

ZeroMQ's file descriptor is edge-triggered: it may not become readable although messages wait, so the socket's EVENTS
are read after every wake-up and after every send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec
import zmq

from mesh import clock
from mesh.config.network import LinkConfig
from mesh.errors import ConfigError
from mesh.frames import (
    BROKER,
    FRAME_VERSION,
    BrokerBeat,
    Frame,
    Goodbye,
    Head,
    Lane,
    decode_frame,
    decode_head,
    encode,
)
from mesh.link.credit import LinkCredit
from mesh.link.sockets import drainer, open_dealer, sender
from mesh.log import get_logger
from mesh.metrics import LinkMetrics
from mesh.words import ProcessKind

#: Parts before the payload: head and frame.
_PAYLOAD: Final = 2
_LANE: Final = attrgetter("head.lane")
# Plain integers: looking up a member of an enum costs more than the comparison.
_WORK: Final = int(Lane.WORK)
_POLLOUT: Final = int(zmq.POLLOUT)


class LinkError(Exception):
    """No broker can be reached; the text names the endpoints."""


class Received(NamedTuple):
    """One message. `broker` is the endpoint that it came from, for `Link.consumed`, `avoid` and `prefer`."""

    head: Head
    frame: Frame
    payload: list[bytes]
    broker: str
    #: Work for any selector: must be released by `Link.consumed` when it is done.
    costs_credit: bool = False


@dataclass(slots=True)
class LinkCounts:
    """Totals of a link, read by mesh.metrics.LinkMetrics."""

    sent: int = 0
    #: Messages that no live broker took.
    unsent: int = 0
    #: Messages sent by another broker than the first choice, whose pipe was full or closed.
    diverted: int = 0
    received: int = 0
    #: Messages that could not be decoded.
    garbage: int = 0
    brokers_lost: int = 0


class _BrokerSocket:
    """The socket of one broker, with its liveness and credit."""

    __slots__ = ("credit", "drain", "endpoint", "fd", "read_scheduled", "send", "socket", "writable")

    def __init__(self, endpoint: str, socket: zmq.Socket[bytes], credit: LinkCredit, drain_max: int) -> None:
        self.endpoint = endpoint
        self.socket = socket
        self.fd = cast(int, socket.getsockopt(zmq.FD))
        self.drain = drainer(socket, drain_max)
        self.send = sender(socket, copy=True)
        self.credit = credit
        #: The socket was writable when last checked; becoming writable means a new connection.
        self.writable = False
        #: A read of the socket is scheduled already.
        self.read_scheduled = False


class Send(Protocol):
    """`Link.send`, as handlers receive it."""

    def __call__(
        self,
        to: str,
        cell: int,
        frame: Frame,
        *payload: bytes,
        deadline_ms: int = 0,
        avoid: str = "",
        prefer: str = "",
    ) -> str:
        """Send a message by one live broker; returns its endpoint, or "" if none took it."""


class Link:
    """The link of one process to all brokers. Must be used from the event loop only."""

    def __init__(
        self,
        *,
        identity: str,
        kind: ProcessKind,
        endpoints: list[str],
        config: LinkConfig,
        window: int,
        on_messages: Callable[[list[Received]], None],
        metrics: LinkMetrics | None = None,
    ) -> None:
        """`window`: work messages that all brokers together may have outstanding here; 0 for edges."""
        self.identity = identity
        self.counts = LinkCounts()
        self._kind = kind
        self._endpoints = list(dict.fromkeys(endpoints))
        self._config = config
        self._window_each = max(1, window // max(1, len(self._endpoints))) if window else 0
        self._on_messages = on_messages
        self._log = get_logger()
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._brokers: dict[str, _BrokerSocket] = {}
        self._live: list[_BrokerSocket] = []
        self._draining = False
        self._timer: asyncio.TimerHandle | None = None
        self._tick_due_ms = 0
        self._any_live = asyncio.Event()
        if metrics is not None:
            metrics.watch(self)

    # --- lifecycle --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to all brokers and return at once."""
        assert self._context is None, "a link starts once"
        self._context = zmq.Context()
        loop = asyncio.get_running_loop()
        for endpoint in self._endpoints:
            socket = open_dealer(self._context, self._config, self.identity)
            try:
                socket.connect(endpoint)
            except zmq.ZMQError as error:
                socket.close(linger=0)
                raise ConfigError(f"link: {endpoint!r} is no endpoint: {error.strerror}") from None
            credit = LinkCredit(kind=self._kind, window=self._window_each, dead_ms=self._config.dead_ms)
            broker = _BrokerSocket(endpoint, socket, credit, self._config.drain_max)
            self._brokers[endpoint] = broker
            loop.add_reader(broker.fd, self._on_readable, broker)
            self._schedule_read(broker)
        self._schedule_tick(clock.now_ms())

    async def ready(self, timeout_ms: int) -> None:
        """Wait until one broker is live; LinkError after `timeout_ms`."""
        try:
            await asyncio.wait_for(self._any_live.wait(), timeout_ms / 1_000)
        except TimeoutError:
            tried = ", ".join(self._endpoints) or "none configured"
            raise LinkError(f"no broker answered within {timeout_ms} ms (tried: {tried})") from None

    async def close(self) -> None:
        """Send Goodbye and close all sockets."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        for broker in self._brokers.values():
            self._send_own(broker, Goodbye())
        # The I/O thread needs a moment to write it. Otherwise brokers detect the end by link.dead_ms.
        await asyncio.sleep(0.01)
        for broker in self._brokers.values():
            loop.remove_reader(broker.fd)
            broker.socket.close(linger=0)
        self._brokers.clear()
        self._live.clear()
        if self._context is not None:
            self._context.term()

    # --- sending ----------------------------------------------------------------------------------

    def send(
        self,
        to: str,
        cell: int,
        frame: Frame,
        *payload: bytes,
        deadline_ms: int = 0,
        avoid: str = "",
        prefer: str = "",
    ) -> str:
        """Send a message by one live broker; returns its endpoint, or "" if none took it. Never waits.

        `prefer` is for replies: the broker that delivered the request is live. `avoid` is tried last.
        """
        if any(len(part) > self._config.message_bytes_max for part in payload):
            # The broker would close the connection, and again at each retry.
            self._log.error("message_too_large", frame=type(frame).__name__)
        else:
            head = Head(FRAME_VERSION, frame.lane, to, cell, self.identity, clock.wall_us(), deadline_ms)
            parts = (encode(head), encode(frame), *payload)
            live = self._live
            for step, broker in enumerate(live if len(live) < 2 else self._in_order(to, cell, avoid, prefer)):
                try:
                    broker.send(parts)
                except zmq.Again:
                    self._schedule_read(broker)  # a failed send may take the signal of an arrived message too
                    continue
                if broker.socket.getsockopt(zmq.EVENTS) != _POLLOUT or not broker.writable:
                    self._schedule_read(broker)
                self.counts.sent += 1
                self.counts.diverted += step > 0
                return broker.endpoint
        self.counts.unsent += 1
        return ""

    def _in_order(self, to: str, cell: int, avoid: str, prefer: str) -> list[_BrokerSocket]:
        """The live brokers, best first. A destination keeps its broker while the live set is unchanged: keeps order."""
        live = self._live
        first = (cell + hash(to)) % len(live)
        order = live[first:] + live[:first]
        if avoid or prefer:
            order.sort(key=lambda broker: (broker.endpoint == avoid, broker.endpoint != prefer))
        return order

    def consumed(self, count_by_broker: Mapping[str, int]) -> None:
        """Selectors: release credit for `count` finished work messages of each broker."""
        for endpoint, count in count_by_broker.items():
            broker = self._brokers.get(endpoint)
            if broker is not None and count > 0 and broker.credit.release(count):
                # If the pipe is full, the next beat carries the same counter.
                self._send_own(broker, broker.credit.credit())

    def drain(self) -> None:
        """Selectors: ask all brokers for no more work; messages in flight still arrive."""
        self._draining = True
        for broker in self._brokers.values():
            self._beat(broker)

    def brokers_live(self) -> int:
        """Number of live brokers."""
        return len(self._live)

    def selectors_live(self) -> int:
        """Number of live selectors: the maximum over the live brokers."""
        return max((broker.credit.selectors_live for broker in self._live), default=0)

    def held(self) -> int:
        """Work messages received and not released by `consumed`."""
        return sum(broker.credit.outstanding for broker in self._brokers.values())

    def _send_own(self, broker: _BrokerSocket, frame: Frame) -> None:
        """Send a frame of the link itself to that broker, unless its pipe is full."""
        head = Head(FRAME_VERSION, frame.lane, BROKER, 0, self.identity, clock.wall_us())
        try:
            broker.send((encode(head), encode(frame)))
        except zmq.Again:
            pass
        self._schedule_read(broker)

    def _beat(self, broker: _BrokerSocket) -> None:
        self._send_own(broker, broker.credit.beat(draining=self._draining))

    # --- receiving --------------------------------------------------------------------------------

    def _schedule_read(self, broker: _BrokerSocket) -> None:
        if broker.read_scheduled:
            return
        broker.read_scheduled = True
        asyncio.get_running_loop().call_soon(self._on_readable, broker)

    def _on_readable(self, broker: _BrokerSocket) -> None:
        """Read up to link.drain_max messages and pass them on, control first."""
        broker.read_scheduled = False
        if broker.socket.closed:
            return
        events = cast(int, broker.socket.getsockopt(zmq.EVENTS))
        writable = bool(events & zmq.POLLOUT)
        if writable and not broker.writable:
            # A new connection: register with the broker now rather than at the next beat.
            self._beat(broker)
        broker.writable = writable
        if not events & zmq.POLLIN:
            return
        arrived = broker.drain()
        if len(arrived) == self._config.drain_max:
            self._schedule_read(broker)  # there may be more; other sockets and timers first
        batch = [received for parts in arrived if (received := self._decode(broker, parts)) is not None]
        if batch:
            batch.sort(key=_LANE)  # stable: order of arrival within a lane
            self._on_messages(batch)

    def _decode(self, broker: _BrokerSocket, parts: list[Any]) -> Received | None:
        """The message, charged to the credit in order of arrival; None for beats and malformed messages."""
        try:
            head, frame = decode_head(parts[0]), decode_frame(parts[1])
        except (msgspec.DecodeError, UnicodeDecodeError, IndexError):
            self.counts.garbage += 1
            return None
        if type(frame) is BrokerBeat:
            self._on_broker_beat(broker, frame)
            return None
        self.counts.received += 1
        costs_credit = head.to == "" and head.lane == _WORK
        if costs_credit:
            broker.credit.on_work()
        return Received(head, frame, [part.bytes for part in parts[_PAYLOAD:]], broker.endpoint, costs_credit)

    def _on_broker_beat(self, broker: _BrokerSocket, frame: BrokerBeat) -> None:
        was_live = broker.credit.live
        if broker.credit.on_beat(frame, clock.now_ms()):
            self._beat(broker)
        if not was_live:
            self._log.info("broker_live", endpoint=broker.endpoint, broker=frame.broker_id, boot=frame.boot_id)
            self._refresh_live()

    # --- liveness ---------------------------------------------------------------------------------

    def _schedule_tick(self, now_ms: int) -> None:
        self._tick_due_ms = now_ms + self._config.beat_ms
        self._timer = asyncio.get_running_loop().call_later(self._config.beat_ms / 1_000, self._tick)

    def _tick(self) -> None:
        now_ms = clock.now_ms()
        late_ms = now_ms - self._tick_due_ms
        for broker in self._brokers.values():
            # If this process was stalled, the broker's beats may still be unread in the socket.
            if broker.credit.expire(now_ms, late_ms if late_ms >= self._config.beat_ms else 0):
                self.counts.brokers_lost += 1
                self._log.warning("broker_dead", endpoint=broker.endpoint)
                broker.writable = False
            self._beat(broker)
            self._schedule_read(broker)
        self._refresh_live()
        self._schedule_tick(now_ms)

    def _refresh_live(self) -> None:
        self._live = [broker for broker in self._brokers.values() if broker.credit.live]
        if self._live:
            self._any_live.set()
