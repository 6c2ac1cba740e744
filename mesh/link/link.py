"""The DEALER rim that edges and selectors share: one socket per broker, all brokers at once.

Owns beats, the liveness of brokers, the choice of a broker and the counting of credit (by mesh/link/credit.py). Knows
nothing of what the frames mean. Nothing is buffered here: what no live broker takes at once is the caller's to send
again.

ZeroMQ's file descriptor is edge-triggered: it may stay silent although messages wait, so the socket's EVENTS are looked
at after every wake-up and after every send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    lane_of,
)
from mesh.link.credit import LinkCredit
from mesh.link.sockets import open_dealer, receiver, sender
from mesh.log import get_logger
from mesh.metrics import LinkMetrics
from mesh.words import ProcessKind

#: Parts before the payload: head and frame.
_PAYLOAD: Final = 2


class LinkError(Exception):
    """No broker can be reached; the text says which were tried."""


class Received(NamedTuple):
    """One message. `broker` is the endpoint it came by, as `Link.consumed` and `avoid` want it."""

    head: Head
    frame: Frame
    payload: list[bytes]
    broker: str

    @property
    def costs_credit(self) -> bool:
        """True for work for any selector: give it back with `Link.consumed` when it is done."""
        return self.head.to == "" and self.head.lane == Lane.WORK


@dataclass(slots=True)
class LinkCounts:
    """What a link counts; read by whoever shows metrics."""

    sent: int = 0
    #: No live broker took it.
    unsent: int = 0
    #: Sent by another than the first choice, because that one's pipe was full or gone.
    diverted: int = 0
    received: int = 0
    #: Could not be decoded.
    garbage: int = 0
    brokers_lost: int = 0


class _BrokerSocket:
    """One broker's socket and the state of its link."""

    __slots__ = ("draining", "endpoint", "fd", "peering", "receive", "send", "socket", "writable")

    def __init__(self, endpoint: str, socket: zmq.Socket[bytes], peering: LinkCredit) -> None:
        self.endpoint = endpoint
        self.socket = socket
        self.fd = cast(int, socket.getsockopt(zmq.FD))
        self.receive = receiver(socket)
        self.send = sender(socket, copy=True)
        self.peering = peering
        #: The socket took messages when last looked at; becoming so means a connection was made.
        self.writable = False
        #: A look at the socket is already scheduled.
        self.draining = False


class Send(Protocol):
    """`Link.send`, as handlers get it."""

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
        """Hand a message to one live broker; its endpoint, or "" when none took it."""


class Link:
    """The links of one process to all brokers. Use it from the event loop only."""

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
        self._wires: dict[str, _BrokerSocket] = {}
        self._live: list[_BrokerSocket] = []
        self._draining = False
        self._timer: asyncio.TimerHandle | None = None
        self._tick_due_ms = 0
        self._someone_lives = asyncio.Event()
        if metrics is not None:
            metrics.watch(self)

    # --- life -------------------------------------------------------------------------------------

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
            peering = LinkCredit(kind=self._kind, window=self._window_each, dead_ms=self._config.dead_ms)
            wire = _BrokerSocket(endpoint, socket, peering)
            self._wires[endpoint] = wire
            loop.add_reader(wire.fd, self._look, wire)
            self._look_soon(wire)
        self._schedule_tick(clock.now_ms())

    async def ready(self, timeout_ms: int) -> None:
        """Wait until one broker has answered; LinkError when none does in time."""
        try:
            await asyncio.wait_for(self._someone_lives.wait(), timeout_ms / 1_000)
        except TimeoutError:
            tried = ", ".join(self._endpoints) or "none configured"
            raise LinkError(f"no broker answered within {timeout_ms} ms (tried: {tried})") from None

    async def close(self) -> None:
        """Say goodbye and close; nothing lingers."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        for wire in self._wires.values():
            self._put(wire, BROKER, 0, Goodbye(), (), 0)
        # The I/O thread needs a moment to write it. If it gets none, the brokers notice by our silence.
        await asyncio.sleep(0.01)
        for wire in self._wires.values():
            loop.remove_reader(wire.fd)
            wire.socket.close(linger=0)
        self._wires.clear()
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
        """Hand a message to one live broker; its endpoint, or "" when none took it. Never waits.

        `prefer` is for answers: the broker that brought the question is alive. `avoid` is the last resort.
        """
        if any(len(part) > self._config.message_bytes_max for part in payload):
            # The broker would cut the connection, and a repeat would cut it again.
            self._log.error("message_too_large", frame=type(frame).__name__)
        else:
            for step, wire in enumerate(self._in_order(to, cell, avoid, prefer)):
                if self._put(wire, to, cell, frame, payload, deadline_ms):
                    self.counts.sent += 1
                    self.counts.diverted += step > 0
                    return wire.endpoint
        self.counts.unsent += 1
        return ""

    def _in_order(self, to: str, cell: int, avoid: str, prefer: str) -> list[_BrokerSocket]:
        """The live brokers, best first. One destination keeps to one while the live set stays, so order is kept."""
        live = self._live
        if len(live) < 2:
            return live
        first = (cell + hash(to)) % len(live)
        order = live[first:] + live[:first]
        if avoid or prefer:
            order.sort(key=lambda wire: (wire.endpoint == avoid, wire.endpoint != prefer))
        return order

    def consumed(self, count_by_broker: Mapping[str, int]) -> None:
        """Selectors: so many work messages of each broker are done; it may send as many more."""
        for endpoint, count in count_by_broker.items():
            wire = self._wires.get(endpoint)
            if wire is not None and count > 0 and wire.peering.gave_back(count):
                # If the pipe is full the next beat says the same.
                self._put(wire, BROKER, 0, wire.peering.credit(), (), 0)

    def drain(self) -> None:
        """Selectors: ask all brokers for no more work; what is here or on its way still comes."""
        self._draining = True
        for wire in self._wires.values():
            self._beat(wire)

    def brokers_live(self) -> int:
        """How many brokers have been heard lately."""
        return len(self._live)

    def selectors_live(self) -> int:
        """The most selectors that any live broker sees."""
        return max((wire.peering.selectors_live for wire in self._live), default=0)

    def held(self) -> int:
        """Work messages taken and not given back."""
        return sum(wire.peering.held for wire in self._wires.values())

    def _put(
        self, wire: _BrokerSocket, to: str, cell: int, frame: Frame, payload: tuple[bytes, ...], deadline_ms: int
    ) -> bool:
        head = Head(FRAME_VERSION, lane_of(frame), to, cell, self.identity, clock.wall_us(), deadline_ms)
        try:
            wire.send((encode(head), encode(frame), *payload))
        except zmq.Again:
            return False
        self._look_soon(wire)
        return True

    def _beat(self, wire: _BrokerSocket) -> None:
        self._put(wire, BROKER, 0, wire.peering.beat(draining=self._draining), (), 0)

    # --- receiving --------------------------------------------------------------------------------

    def _look_soon(self, wire: _BrokerSocket) -> None:
        if not wire.draining:
            wire.draining = True
            asyncio.get_running_loop().call_soon(self._look, wire)

    def _look(self, wire: _BrokerSocket) -> None:
        """Take what waits, at most drain_max, and hand it over, control first."""
        wire.draining = False
        if wire.socket.closed:
            return
        events = cast(int, wire.socket.getsockopt(zmq.EVENTS))
        writable = bool(events & zmq.POLLOUT)
        if writable and not wire.writable:
            # A connection was (re)made: introduce ourselves now rather than at the next beat.
            self._beat(wire)
        wire.writable = writable
        batch = self._drain(wire) if events & zmq.POLLIN else []
        if batch:
            # sorted() is stable: within a lane the order of arrival stays.
            self._on_messages(sorted(batch, key=_lane))

    def _drain(self, wire: _BrokerSocket) -> list[Received]:
        batch: list[Received] = []
        for _ in range(self._config.drain_max):
            try:
                parts = wire.receive()
            except zmq.Again:
                return batch
            received = self._decode(wire, parts)
            if received is not None:
                batch.append(received)
        self._look_soon(wire)  # there may be more; others get a turn first
        return batch

    def _decode(self, wire: _BrokerSocket, parts: list[Any]) -> Received | None:
        """The message, counted against our credit in order of arrival; None for beats and garbage."""
        try:
            head, frame = decode_head(parts[0]), decode_frame(parts[1])
        except (msgspec.DecodeError, UnicodeDecodeError, IndexError):
            self.counts.garbage += 1
            return None
        if type(frame) is BrokerBeat:
            self._on_broker_beat(wire, frame)
            return None
        self.counts.received += 1
        received = Received(head, frame, [part.bytes for part in parts[_PAYLOAD:]], wire.endpoint)
        if received.costs_credit:
            wire.peering.took()
        return received

    def _on_broker_beat(self, wire: _BrokerSocket, frame: BrokerBeat) -> None:
        was_live = wire.peering.live
        if wire.peering.heard(frame, clock.now_ms()):
            self._beat(wire)
        if not was_live:
            self._log.info("broker_found", endpoint=wire.endpoint, broker=frame.broker_id, boot=frame.boot_id)
            self._refresh_live()

    # --- time -------------------------------------------------------------------------------------

    def _schedule_tick(self, now_ms: int) -> None:
        self._tick_due_ms = now_ms + self._config.beat_ms
        self._timer = asyncio.get_running_loop().call_later(self._config.beat_ms / 1_000, self._tick)

    def _tick(self) -> None:
        now_ms = clock.now_ms()
        late_ms = now_ms - self._tick_due_ms
        for wire in self._wires.values():
            # If we were held up ourselves, the broker's beats may still be waiting in the socket.
            if wire.peering.lapse(now_ms, late_ms if late_ms >= self._config.beat_ms else 0):
                self.counts.brokers_lost += 1
                self._log.warning("broker_silent", endpoint=wire.endpoint)
                wire.writable = False
            self._beat(wire)
            self._look_soon(wire)
        self._refresh_live()
        self._schedule_tick(now_ms)

    def _refresh_live(self) -> None:
        self._live = [wire for wire in self._wires.values() if wire.peering.live]
        if self._live:
            self._someone_lives.set()


def _lane(received: Received) -> int:
    return received.head.lane
