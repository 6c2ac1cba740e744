"""Node: one node's connection, from its first message to its end. Pure: messages in, effects out.

    UNREGISTERED -> REGISTERING -> REGISTERED -> CLOSED
                         ^              |
                         +--- the mesh forgot the record: registered again from what we know

The epoch names the connection. A node that connects again gets a higher one, wherever it connects; the connection
with the lower one is superseded and closed, and what it says while it closes carries its own epoch only, so it
cannot take the new one down.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from mesh.errors import ErrorCode, PeerError
from mesh.frames import Failed, NodeCaps, NodeLoad, NodeRegistered
from mesh.words import CloseCode, StaleReason

#: Capabilities travel with every so many heartbeats even when nothing changed.
CAPS_EVERY_BEATS: Final = 8
#: After so many heartbeats without a complaint a registration stands.
DOUBTFUL_BEATS: Final = 3


class ConnectionState(Enum):
    """How far the connection has come."""

    UNREGISTERED = auto()
    REGISTERING = auto()
    REGISTERED = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class SendRegister:
    """Ask a selector to register the node, with a `ref` of the rim's choice."""

    node_id: str
    caps: NodeCaps


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Pass the load on; `caps` only when they changed."""

    node_id: str
    epoch: int
    load: NodeLoad
    caps: NodeCaps | None


@dataclass(frozen=True, slots=True)
class SendOffline:
    """The connection of that epoch is gone."""

    node_id: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Tell the node that it is registered."""

    node_id: str
    status: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell the node that it is not."""

    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class Close:
    """Close the socket."""

    code: int
    reason: str


Effect = SendRegister | SendHeartbeat | SendOffline | Acknowledge | Refuse | Close


class NodeConnection:
    """The state of one socket on /ws/node."""

    def __init__(self, heartbeat_min_ms: int) -> None:
        self.state = ConnectionState.UNREGISTERED
        self.node_id = ""
        #: 0 until the first registration.
        self.epoch = 0
        self.status = ""
        #: The node asked to be told when its results are in good hands.
        self.wants_result_ack = False
        #: What the node can do, by its last word.
        self.caps: NodeCaps | None = None
        #: Service id -> type, and the jobs it named in its last heartbeat (None: it names none), also by its last word.
        self.service_types: dict[str, str] = {}
        self.jobs_named: list[tuple[str, int]] | None = None
        self._caps_sent: NodeCaps | None = None
        self._load = NodeLoad()
        #: The node has sent a heartbeat on this connection.
        self._heard = False
        self._beats = 1
        #: A node may send heartbeats as fast as it likes; the mesh hears the latest of them once per so much time.
        self._heartbeat_min_ms = heartbeat_min_ms
        self._next_beat_ms = 0
        #: When `beat` has a heartbeat to pass on that was held back; None if there is none.
        self.beat_due_ms: int | None = None
        #: Heartbeats during which a repeat of our own registration may pass for a newer connection: see on_stale.
        self._doubtful_beats = 0
        #: The node itself waits for an acknowledgement (not so when we register it again).
        self._asked = False

    @property
    def is_open(self) -> bool:
        """False once the socket closed or was superseded."""
        return self.state is not ConnectionState.CLOSED

    # --- messages of the node -----------------------------------------------------------------

    def on_register(self, node_id: str | None, fresh_id: str, caps: NodeCaps, wants_result_ack: bool) -> list[Effect]:
        """node_register. Without an id it gets `fresh_id`; a second one on the same socket keeps the first id."""
        if self.node_id and node_id not in (None, "", self.node_id):
            raise PeerError(ErrorCode.ID_MISMATCH, f"this connection belongs to {self.node_id}")
        self.node_id = self.node_id or node_id or fresh_id
        self.wants_result_ack = wants_result_ack
        self.caps, self._asked = caps, True
        if self.state is ConnectionState.REGISTERING:
            return []  # the answer under way will do; what changed goes with the next heartbeat
        self.state = ConnectionState.REGISTERING
        self._caps_sent = caps
        return [SendRegister(self.node_id, caps)]

    def on_heartbeat(self, node_id: str, load: NodeLoad, caps: NodeCaps | None, now_ms: int) -> list[Effect]:
        """node_heartbeat; `caps` is None if the message said nothing of them."""
        self.own(node_id)
        self._load, self._heard = load, True
        if caps is not None:
            self.caps = caps
        if self.state is not ConnectionState.REGISTERED:
            return []  # its load follows the registration
        self.beat_due_ms = self._next_beat_ms
        return self.beat(now_ms)

    def beat(self, now_ms: int) -> list[Effect]:
        """Pass on the node's latest load, if it has one to tell and the time has come."""
        if self.state is not ConnectionState.REGISTERED or self.beat_due_ms is None or now_ms < self.beat_due_ms:
            return []
        self._next_beat_ms = now_ms + self._heartbeat_min_ms
        return [self._heartbeat()]

    def own(self, node_id: str) -> None:
        """PeerError unless the message is about this connection's own node, and that is registered."""
        if self.state is ConnectionState.UNREGISTERED:
            raise PeerError(ErrorCode.NOT_REGISTERED, "the node is not registered")
        if node_id != self.node_id:
            raise PeerError(ErrorCode.ID_MISMATCH, f"this connection belongs to {self.node_id}, not {node_id[:64]}")

    # --- frames of the mesh -------------------------------------------------------------------

    def on_registered(self, answer: NodeRegistered) -> list[Effect]:
        """The selector registered it. If the socket closed meanwhile, that registration is undone.

        A question that was repeated may be answered more than once: the highest epoch is the one in force.
        """
        if self.state is ConnectionState.CLOSED:
            return [SendOffline(self.node_id, answer.epoch, "closed")] if answer.epoch > self.epoch else []
        ours = self.state is ConnectionState.REGISTERING and not self._asked
        # A new record is ready only with its first heartbeat. The node sends that when it hears that it is registered;
        # if it heard so long ago, or was faster, its last word counts for the new record.
        must_beat = answer.epoch > self.epoch and (ours or self._heard)
        if answer.epoch > self.epoch:
            self._next_beat_ms = 0  # a new record waits for its first heartbeat
        self.state = ConnectionState.REGISTERED
        self.epoch, self.status = max(self.epoch, answer.epoch), answer.status
        effects: list[Effect] = []
        if self._asked:
            effects.append(Acknowledge(self.node_id, answer.status))
            self._asked = False
        if must_beat or self.caps != self._caps_sent:
            effects.append(self._heartbeat())
        return effects

    def registration_repeated(self) -> None:
        """The rim asked a second time for want of an answer."""
        self._doubtful_beats = DOUBTFUL_BEATS

    def on_refused(self, failed: Failed | None) -> list[Effect]:
        """The selector said no, or (None) said nothing in time. The connection lives on and may register again."""
        if self.state is not ConnectionState.REGISTERING:
            return []
        asked, self._asked = self._asked, False
        # A registration of ours that failed is tried again with the next heartbeat, which is answered "unknown".
        self.state = ConnectionState.REGISTERED if self.epoch else ConnectionState.UNREGISTERED
        if not asked:
            return []
        if failed is None:
            return [Refuse(ErrorCode.SCHEDULER_DEPENDENCY_DOWN, "the mesh did not answer in time")]
        return [Refuse(ErrorCode.__members__.get(failed.code, ErrorCode.INTERNAL_ERROR), failed.message)]

    def on_stale(self, epoch: int, reason: str) -> list[Effect]:
        """The selector does not know this epoch: somebody else owns the node, or the record is gone."""
        if self.state is not ConnectionState.REGISTERED or epoch != self.epoch:
            return []
        if reason == StaleReason.SUPERSEDED and not self._doubtful_beats:
            return self.supersede()
        # The record is gone; or what superseded us may be a repeat of our own registration whose answer was lost.
        self._doubtful_beats = 0
        assert self.caps is not None
        self.state = ConnectionState.REGISTERING
        self._caps_sent = self.caps
        return [SendRegister(self.node_id, self.caps)]

    def heartbeat_lost(self, carried_caps: bool) -> None:
        """A heartbeat came back undelivered; if it told of new capabilities, the next one tells again."""
        if carried_caps:
            self._caps_sent = None

    # --- the end ------------------------------------------------------------------------------

    def supersede(self) -> list[Effect]:
        """The node has a newer connection. Nothing is said of this one: its epoch is no longer in force."""
        self.state = ConnectionState.CLOSED
        return [Close(CloseCode.SUPERSEDED, "superseded by a newer connection of this node")]

    def on_closed(self, reason: str) -> list[Effect]:
        """The socket is gone."""
        known = self.state is not ConnectionState.CLOSED and self.epoch > 0
        self.state = ConnectionState.CLOSED
        return [SendOffline(self.node_id, self.epoch, reason)] if known else []

    def _heartbeat(self) -> SendHeartbeat:
        # A heartbeat may be lost without a word, so capabilities are told again now and then.
        due = self.caps != self._caps_sent or self._beats % CAPS_EVERY_BEATS == 0
        caps = self.caps if due else None
        self._beats += 1
        self.beat_due_ms = None
        self._doubtful_beats = max(0, self._doubtful_beats - 1)
        self._caps_sent = self.caps
        return SendHeartbeat(self.node_id, self.epoch, self._load, caps)
