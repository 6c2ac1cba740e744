"""Messages and peers for tests of the broker's core."""

from __future__ import annotations

from broker.core.credit import Peer
from broker.core.queues import Envelope, Parts
from broker.core.routes import rank
from broker.core.switch import Switch, SwitchLimits
from mesh.frames import (
    BROKER,
    Beat,
    Cancel,
    Frame,
    Head,
    Push,
    SessionClaim,
    decode_frame,
    lane_of,
)
from mesh.frames.packets import encode_table, read_sealed, seal, seal_payload

#: Payload parts of this size are blobs.
INLINE_BYTES_MAX = 1_024
LIMITS = SwitchLimits(
    cells=16,
    beat_ms=1_000,
    dead_ms=3_000,
    queue_max=4,
    queue_bytes_max=100_000,
    peers_max=8,
    busy_retry_ms=50,
    batch_frames_max=32,
    batch_bytes_max=50_000,
    inline_bytes_max=INLINE_BYTES_MAX,
)
NOW_MS = 10_000
WALL_US = 1_700_000_000_000_000
WALL_MS = WALL_US // 1_000
EDGE = "edge:a:1"
EDGE_B = "edge:b:1"
SELECTOR = "selector:a:1"

WORK = SessionClaim("r-1", "s-1", EDGE, 0, "", "en", "es")
CONTROL = Cancel("r-1", "", 1, "", "s-1", "gone")
PUSH = Push("job-00-x", 1, "n", EDGE_B, "r-1", "s-1", 0)


def message(source: str, to: str, frame: Frame, *payload: bytes, cell: int = 3, deadline_ms: int = 0) -> Parts:
    """A packet of one frame as a ROUTER would give it."""
    head = Head(lane_of(frame), to, cell, source, WALL_US, deadline_ms)
    sealed, blobs = seal_payload(payload, INLINE_BYTES_MAX)
    return [source.encode(), encode_table([seal(head, frame, sealed, len(blobs))]), *blobs]


def packet(*messages: Parts) -> Parts:
    """The frames of several packets of one source as one packet."""
    entries, blobs = [], []
    for _, table, *more in messages:
        for entry in read_sealed(table)[0]:
            entry.blob += len(blobs)
            entries.append(entry)
        blobs += more
    return [messages[0][0], encode_table(entries), *blobs]


class Bench:
    """A switch with helpers to introduce peers and to look at what it sends."""

    def __init__(self, limits: SwitchLimits = LIMITS) -> None:
        self.switch = Switch(broker_id="b1", boot_id="x", limits=limits, connection_start=7, now_ms=NOW_MS)
        self.now_ms = NOW_MS
        self.wall_us = WALL_US

    def front(self, *batch: Parts) -> list[Envelope]:
        return self._checked(self.switch.receive(batch, [], self.now_ms, self.wall_us))

    def back(self, *batch: Parts) -> list[Envelope]:
        return self._checked(self.switch.receive([], batch, self.now_ms, self.wall_us))

    def edge(self, name: str = EDGE) -> Peer:
        self.front(message(name, BROKER, Beat("edge", 0, 0)))
        return self.peer(name)

    def selector(self, name: str = SELECTOR, window: int = 2, *, draining: bool = False) -> Peer:
        """A selector that has replied in its counters, so that it has its whole window."""
        self.back(message(name, BROKER, Beat("selector", window, 0)))
        self.beat(name, window, draining=draining)
        return self.peer(name)

    def beat(self, name: str, window: int, consumed: int = 0, *, draining: bool = False) -> None:
        """`consumed` counts from the base of this connection."""
        base = self.peer(name).window.sent - self.peer(name).window.outstanding()
        self.back(message(name, BROKER, Beat("selector", window, base + consumed, draining)))

    def peer(self, name: str) -> Peer:
        return self.switch.directory.by_name[name]

    def _checked(self, out: list[Envelope]) -> list[Envelope]:
        self.switch.check()
        return out


def frames_to(out: list[Envelope]) -> list[tuple[str, Frame]]:
    """Receiver and frame of each envelope."""
    return [(one.receiver.name, decode_frame(one.entry.frame)) for one in out if one.receiver is not None]


def names(out: list[Envelope]) -> list[str]:
    """Receiver of each envelope."""
    return [name for name, _ in frames_to(out)]


def two_selectors(bench: Bench, window: int = 2) -> tuple[str, str]:
    """Two selectors, in the order of the sample's cell."""
    pair = sorted(["selector:a:1", "selector:b:1"], key=lambda name: rank(3, name), reverse=True)
    for name in pair:
        bench.selector(name, window)
    return pair[0], pair[1]
