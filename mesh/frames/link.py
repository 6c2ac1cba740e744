"""Frames of the links themselves: liveness and credit, messages that a broker could not deliver, refused calls."""

from __future__ import annotations

from mesh.frames.base import Frame, Lane, Role


class Beat(Frame, frozen=True, to=Role.BROKER, lane=Lane.CONTROL):
    """Peer -> broker, every link.beat_ms: liveness and credit. The first one registers the peer."""

    kind: str  # mesh.words.ProcessKind: EDGE or SELECTOR
    #: Work messages that the broker may have outstanding at this peer (selectors; 0 for edges).
    window: int
    #: Total of work messages consumed since the link began: a counter, so that the next beat repairs lost credit.
    consumed: int
    draining: bool = False


class BrokerBeat(Frame, frozen=True, to=Role.LINK, lane=Lane.CONTROL):
    """Broker -> peer, every link.beat_ms: liveness. A new boot id means a restarted broker: counters begin anew."""

    broker_id: str
    boot_id: str
    selectors_live: int
    #: Total of work messages written to this peer's pipe, from a base of the broker's choice (mesh/link/credit.py).
    sent: int = 0


class Credit(Frame, frozen=True, to=Role.BROKER, lane=Lane.CONTROL):
    """Selector -> broker, between beats: total of work messages consumed, which grants as much new credit."""

    consumed: int


class Busy(Frame, frozen=True, to=Role.EDGE, lane=Lane.CONTROL):
    """Broker -> sender: no selector has credit; retry after that time. Payload: the original head and frame."""

    retry_after_ms: int


class Bounce(Frame, frozen=True, to=Role.EDGE | Role.SELECTOR, lane=Lane.CONTROL):
    """Broker -> sender: the message was not delivered. Payload: the original head and frame."""

    reason: str  # mesh.words.BounceReason


class Goodbye(Frame, frozen=True, to=Role.BROKER, lane=Lane.CONTROL):
    """Peer -> broker: the peer disconnects. The broker sends it nothing more."""


class Failed(Frame, frozen=True, to=Role.EDGE, lane=Lane.WORK):
    """Selector -> edge: the call `ref` is refused; `code` is a name of mesh.errors."""

    ref: str
    code: str
    message: str
