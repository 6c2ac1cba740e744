"""Link of an edge or selector to all brokers: one DEALER socket per broker, all connected at once.

Owns beats, the liveness of brokers, failover between them and credit (mesh/link/credit.py). Must not know the meaning
of frames. What one turn of the event loop sends by one broker is one packet, sent at the end of the turn (one callback
by `call_soon`) or when it reaches a bound. Nothing stays here longer: frames that no live broker takes then are the
callers' to retry.

ZeroMQ's file descriptor is edge-triggered: it may not become readable although messages wait, so the socket's EVENTS
are read after every wake-up and after every packet sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec
import zmq

from mesh import clock
from mesh.config.network import LinkConfig
from mesh.errors import ConfigError
from mesh.frames import BROKER, LANES, PAYLOAD_PARTS_MAX, BrokerBeat, Frame, Goodbye, Head, encode
from mesh.frames.packets import (
    ENTRY_BYTES,
    NO_PAYLOAD,
    UNREADABLE,
    OtherVersionError,
    Sealed,
    seal,
    seal_payload,
)
from mesh.link.broker_socket import BrokerSocket
from mesh.link.credit import LinkCredit
from mesh.link.outbox import FrameBatch
from mesh.link.received import Lanes, Part, Received, bytes_of
from mesh.link.sockets import POLLIN, POLLOUT, open_dealer
from mesh.log import get_logger
from mesh.metrics import LinkMetrics
from mesh.words import ProcessKind

__all__ = ["Link", "LinkCounts", "LinkError", "Part", "Received", "Send", "bytes_of"]


class LinkError(Exception):
    """No broker can be reached; the text names the endpoints."""


@dataclass(slots=True)
class LinkCounts:
    """Totals of a link in frames, read by mesh.metrics.LinkMetrics. Without the link's own frames."""

    sent: int = 0
    #: Frames that no live broker took.
    unsent: int = 0
    #: Frames sent by another broker than the first choice, whose pipe was full or closed.
    diverted: int = 0
    received: int = 0
    #: Frames that could not be decoded, and packets of which no frame could.
    garbage: int = 0
    brokers_lost: int = 0


class Send(Protocol):
    """`Link.send`, as handlers receive it."""

    def __call__(
        self,
        to: str,
        cell: int,
        frame: Frame,
        *payload: Part,
        deadline_ms: int = 0,
        avoid: str = "",
        prefer: str = "",
    ) -> str:
        """Send a frame by one live broker; returns its endpoint, or "" if there is none."""


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
        #: Called once at the end of each turn in which frames were sent, before the last packets of the turn leave:
        #: what it sends joins them. Must not wait; a failure is logged and stops no packet.
        self.before_flush: Callable[[], None] | None = None
        self._kind = kind
        self._endpoints = list(dict.fromkeys(endpoints))
        self._config = config
        self._window_each = max(1, window // max(1, len(self._endpoints))) if window else 0
        self._on_messages = on_messages
        self._log = get_logger()
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._brokers: dict[str, BrokerSocket] = {}
        self._live: list[BrokerSocket] = []
        self._draining = False
        self._timer: asyncio.TimerHandle | None = None
        self._tick_due_ms = 0
        self._any_live = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        #: `_end_turn` is scheduled.
        self._turn_open = False
        self._last_sent_us = 0
        #: Bytes of an entry without its frame, payload and destination.
        self._entry_bytes = ENTRY_BYTES + len(identity)
        if metrics is not None:
            metrics.watch(self)

    # --- lifecycle --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to all brokers and return at once."""
        assert self._context is None, "a link starts once"
        self._context = zmq.Context()
        loop = self._loop = asyncio.get_running_loop()
        for endpoint in self._endpoints:
            socket = open_dealer(self._context, self._config, self.identity)
            try:
                socket.connect(endpoint)
            except zmq.ZMQError as error:
                socket.close(linger=0)
                raise ConfigError(f"link: {endpoint!r} is no endpoint: {error.strerror}") from None
            credit = LinkCredit(kind=self._kind, window=self._window_each, dead_ms=self._config.dead_ms)
            broker = BrokerSocket(endpoint, socket, credit, self._config)
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
        self._end_turn()
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
        *payload: Part,
        deadline_ms: int = 0,
        avoid: str = "",
        prefer: str = "",
    ) -> str:
        """Send a frame by one live broker at the end of this turn; returns its endpoint, or "" if none is live.

        Never waits. `prefer` is for replies: the broker that delivered the request is live. `avoid` is tried last. If
        the broker's pipe turns out to be full, another live broker takes the frame, or it is counted as unsent.
        """
        live = self._live
        broker = live[0] if len(live) == 1 and live[0].writable else self._choose(to, cell, avoid, prefer)
        if broker is None:
            self.counts.unsent += 1
            return ""
        encoded = encode(frame)
        size = len(encoded) + len(to) + self._entry_bytes
        sealed, blobs = NO_PAYLOAD, None
        if payload:
            sealed, blobs = seal_payload(payload, self._config.inline_bytes_max)
            size += len(sealed)
        if not self._may_send(frame, size, payload):
            self.counts.unsent += 1
            return ""
        entry = Sealed(
            LANES[type(frame)],
            to,
            cell,
            self.identity,
            self._next_us(),
            deadline_ms,
            blob=0,
            blobs=len(blobs) if blobs else 0,
            frame=msgspec.Raw(encoded),
            payload=sealed,
        )
        self._add(broker, entry, size + sum(map(len, blobs)) if blobs else size, blobs)
        return broker.endpoint

    def _may_send(self, frame: Frame, size: int, payload: tuple[Part, ...]) -> bool:
        """False for what the broker would drop, or close the connection for, and again at each retry."""
        size_max = self._config.message_bytes_max
        if size <= size_max and len(payload) <= PAYLOAD_PARTS_MAX and all(len(part) <= size_max for part in payload):
            return True
        self._log.error("message_too_large", frame=type(frame).__name__)
        return False

    def _choose(self, to: str, cell: int, avoid: str, prefer: str) -> BrokerSocket | None:
        """The best live broker whose pipe is open. A destination keeps its broker while the live set is unchanged."""
        live = self._live
        if not live:
            return None
        first = (cell + hash(to)) % len(live)
        if not avoid and not prefer and live[first].writable:
            return live[first]
        order = live[first:] + live[:first]
        if avoid or prefer:
            order.sort(key=lambda broker: (broker.endpoint == avoid, broker.endpoint != prefer))
        for broker in order:
            if broker.writable:
                self.counts.diverted += broker is not order[0]
                return broker
        return None

    def _next_us(self) -> int:
        """Wall clock of this turn; each frame is at least a microsecond after the one before it."""
        self._last_sent_us += 1
        if not self._turn_open:
            self._last_sent_us = max(self._last_sent_us, clock.wall_us())
        return self._last_sent_us

    def _add(
        self, broker: BrokerSocket, entry: Sealed, size: int, blobs: list[Any] | None, *, own: bool = False
    ) -> None:
        """Add a frame to the packet of this turn."""
        if not self._turn_open:
            self._turn_open = True
            assert self._loop is not None, "only a started link has brokers"
            self._loop.call_soon(self._end_turn)
        if not broker.outbox.fits(size):
            self._flush(broker)
        if broker.outbox.add(entry, size, blobs, own=own):
            self._flush(broker)

    def _end_turn(self) -> None:
        """Send the packets of this turn."""
        if self.before_flush is not None and self._turn_open:
            try:
                self.before_flush()  # the turn is still open: what it sends schedules no second end
            except Exception:  # noqa: BLE001
                self._log.exception("before_flush_failed")
        self._turn_open = False
        for broker in self._brokers.values():
            if broker.outbox:
                self._flush(broker)

    def _flush(self, broker: BrokerSocket) -> None:
        """Send a broker's packet; if its pipe is full, by another live broker."""
        batch = broker.outbox.take()
        if self._try_send(broker, batch):
            self.counts.sent += len(batch.entries) - batch.own
            return
        batch = batch.diverted()
        count = len(batch.entries)
        if count and any(other.writable and self._try_send(other, batch) for other in self._live):
            self.counts.sent += count
            self.counts.diverted += count
        else:
            self.counts.unsent += count

    def _try_send(self, broker: BrokerSocket, batch: FrameBatch) -> bool:
        is_sent = broker.try_send(batch)
        if broker.needs_read():
            self._schedule_read(broker)
        return is_sent

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

    def _send_own(self, broker: BrokerSocket, frame: Frame) -> None:
        """Send a frame of the link itself to that broker at the end of this turn, unless its pipe is full."""
        head = Head(LANES[type(frame)], BROKER, 0, self.identity, self._next_us())
        entry = seal(head, frame)
        self._add(broker, entry, self._entry_bytes + len(BROKER) + len(entry.frame), None, own=True)

    def _beat(self, broker: BrokerSocket) -> None:
        self._send_own(broker, broker.credit.beat(draining=self._draining))

    # --- receiving --------------------------------------------------------------------------------

    def _schedule_read(self, broker: BrokerSocket) -> None:
        if broker.read_scheduled:
            return
        broker.read_scheduled = True
        asyncio.get_running_loop().call_soon(self._on_readable, broker)

    def _on_readable(self, broker: BrokerSocket) -> None:
        """Read up to link.drain_max packets and pass their frames on, control first."""
        broker.read_scheduled = False
        if broker.socket.closed:
            return
        events = broker.events()
        writable = bool(events & POLLOUT)
        if writable and not broker.writable:
            # A new connection: register with the broker now rather than at the next beat.
            self._beat(broker)
        broker.writable = writable
        if not events & POLLIN:
            return
        arrived = broker.drain()
        if len(arrived) == self._config.drain_max:
            self._schedule_read(broker)  # there may be more; other sockets and timers first
        lanes = Lanes()
        for parts in arrived:
            try:
                lanes.add_packet(parts, broker.endpoint, broker.credit, partial(self._on_broker_beat, broker))
            except OtherVersionError as other:
                self._refuse(broker, other)
            except UNREADABLE:
                self.counts.garbage += 1
        self.counts.received += lanes.count
        self.counts.garbage += lanes.malformed
        if lanes.count:
            self._on_messages(lanes.in_order())

    def _refuse(self, broker: BrokerSocket, other: OtherVersionError) -> None:
        self.counts.garbage += 1
        if not broker.is_refused:
            broker.is_refused = True
            self._log.warning("broker_refused", endpoint=broker.endpoint, reason=str(other))

    def _on_broker_beat(self, broker: BrokerSocket, frame: BrokerBeat) -> None:
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
