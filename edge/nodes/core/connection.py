"""Node connection: the state machine of one socket on /ws/node. Pure: messages and frames in, effects out.

    UNREGISTERED -> REGISTERING -> REGISTERED -> CLOSED
                         ^              |
                         +--- its record expired: registered again with the latest capabilities

The epoch is the fencing token of the connection. A node that reconnects gets a higher one at any edge; the connection
with the lower one is superseded and closed. Its frames carry its own epoch only, so they cannot affect the new one.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from edge.core.record import Record
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Failed, NodeCaps, NodeLoad, NodeRegistered
from mesh.words import CloseCode, StaleReason

#: Capabilities are sent with every n-th heartbeat even if unchanged.
CAPS_EVERY_BEATS: Final = 8
#: A retried registration is settled after this many heartbeats without NodeStale.
UNSETTLED_BEATS: Final = 3


class ConnectionState(Enum):
    """States of a connection."""

    UNREGISTERED = auto()
    REGISTERING = auto()
    REGISTERED = auto()
    CLOSED = auto()


#: Read for every message; a member of an enum costs as much as a call.
_UNREGISTERED: Final = ConnectionState.UNREGISTERED


class SendRegister(Record, frozen=True):
    """Call a selector to register the node."""

    node_id: str
    caps: NodeCaps


class SendHeartbeat(Record, frozen=True):
    """Send the load; `caps` only if they changed or are due."""

    node_id: str
    epoch: int
    load: NodeLoad
    caps: NodeCaps | None


class SendOffline(Record, frozen=True):
    """The connection of that epoch closed."""

    node_id: str
    epoch: int
    reason: str


class Acknowledge(Record, frozen=True):
    """Acknowledge the registration to the node."""

    node_id: str
    status: str


class Refuse(Record, frozen=True):
    """Refuse the registration to the node."""

    code: ErrorCode
    message: str


class Close(Record, frozen=True):
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
        #: The node asked for acknowledgements of its results.
        self.wants_result_ack = False
        #: The node's latest capabilities.
        self.caps: NodeCaps | None = None
        #: Service id -> type, as the node last reported them.
        self.service_types: dict[str, str] = {}
        #: The jobs of its last heartbeat; None: it does not name its jobs.
        self.jobs_named: list[tuple[str, int]] | None = None
        self._caps_sent: NodeCaps | None = None
        self._load = NodeLoad()
        #: The node has sent a heartbeat on this connection.
        self._had_heartbeat = False
        self._beats = 1
        #: Throttle: of heartbeats that arrive faster than this, the latest is sent on.
        self._heartbeat_min_ms = heartbeat_min_ms
        self._next_beat_ms = 0
        #: When `send_due_heartbeat` has a throttled heartbeat to send; None if there is none.
        self.heartbeat_due_ms: int | None = None
        #: Heartbeats during which a retry of our own registration may look like a newer connection: see on_stale.
        self._unsettled_beats = 0
        #: The node waits for an acknowledgement (not if the edge registers it again by itself).
        self._awaits_ack = False

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
        self.caps, self._awaits_ack = caps, True
        if self.state is ConnectionState.REGISTERING:
            return []  # the pending call suffices; changed capabilities go with the next heartbeat
        self.state = ConnectionState.REGISTERING
        self._caps_sent = caps
        return [SendRegister(self.node_id, caps)]

    def on_heartbeat(self, node_id: str, load: NodeLoad, caps: NodeCaps | None, now_ms: int) -> list[Effect]:
        """node_heartbeat; `caps` is None if the message has none."""
        self.check_owns(node_id)
        self._load, self._had_heartbeat = load, True
        if caps is not None:
            self.caps = caps
        if self.state is not ConnectionState.REGISTERED:
            return []  # the load follows the registration
        self.heartbeat_due_ms = self._next_beat_ms
        return self.send_due_heartbeat(now_ms)

    def send_due_heartbeat(self, now_ms: int) -> list[Effect]:
        """Send the node's latest load, if a heartbeat is due."""
        due_ms = self.heartbeat_due_ms
        if self.state is not ConnectionState.REGISTERED or due_ms is None or now_ms < due_ms:
            return []
        self._next_beat_ms = now_ms + self._heartbeat_min_ms
        return [self._heartbeat()]

    def check_owns(self, node_id: str) -> None:
        """PeerError unless the message is about this connection's own node, and that node is registered."""
        if self.state is _UNREGISTERED:
            raise PeerError(ErrorCode.NOT_REGISTERED, "the node is not registered")
        if node_id != self.node_id:
            raise PeerError(ErrorCode.ID_MISMATCH, f"this connection belongs to {self.node_id}, not {node_id[:64]}")

    # --- frames of the mesh -------------------------------------------------------------------

    def on_registered(self, reply: NodeRegistered) -> list[Effect]:
        """The selector registered the node. If the socket closed meanwhile, that registration is cancelled.

        A retried call may have more than one reply: the highest epoch is the current one.
        """
        if self.state is ConnectionState.CLOSED:
            return [SendOffline(self.node_id, reply.epoch, "closed")] if reply.epoch > self.epoch else []
        ours = self.state is ConnectionState.REGISTERING and not self._awaits_ack
        # A new record is ready only with its first heartbeat. The node sends one when its registration is acknowledged;
        # if that was long ago, or the heartbeat came first, the latest load counts for the new record.
        must_beat = reply.epoch > self.epoch and (ours or self._had_heartbeat)
        if reply.epoch > self.epoch:
            self._next_beat_ms = 0  # a new record needs its first heartbeat at once
        self.state = ConnectionState.REGISTERED
        self.epoch, self.status = max(self.epoch, reply.epoch), reply.status
        effects: list[Effect] = []
        if self._awaits_ack:
            effects.append(Acknowledge(self.node_id, reply.status))
            self._awaits_ack = False
        if must_beat or self.caps != self._caps_sent:
            effects.append(self._heartbeat())
        return effects

    def registration_retried(self) -> None:
        """The call was retried: it had no reply in time."""
        self._unsettled_beats = UNSETTLED_BEATS

    def on_refused(self, failed: Failed | None) -> list[Effect]:
        """The selector refused, or (None) did not reply in time. The connection stays open and may register again."""
        if self.state is not ConnectionState.REGISTERING:
            return []
        awaits_ack, self._awaits_ack = self._awaits_ack, False
        # A registration of the edge's own is retried with the next heartbeat, whose reply is NodeStale "unknown".
        self.state = ConnectionState.REGISTERED if self.epoch else ConnectionState.UNREGISTERED
        if not awaits_ack:
            return []
        if failed is None:
            return [Refuse(ErrorCode.SCHEDULER_DEPENDENCY_DOWN, "the mesh did not answer in time")]
        return [Refuse(ErrorCode.__members__.get(failed.code, ErrorCode.INTERNAL_ERROR), failed.message)]

    def on_stale(self, epoch: int, reason: str) -> list[Effect]:
        """The selector does not know this epoch: another connection owns the node, or the record expired."""
        if self.state is not ConnectionState.REGISTERED or epoch != self.epoch:
            return []
        if reason == StaleReason.SUPERSEDED and not self._unsettled_beats:
            return self.supersede()
        # The record expired; or this connection was superseded by a retry of its own registration whose reply was lost.
        self._unsettled_beats = 0
        assert self.caps is not None
        self.state = ConnectionState.REGISTERING
        self._caps_sent = self.caps
        return [SendRegister(self.node_id, self.caps)]

    def heartbeat_undelivered(self, carried_caps: bool) -> None:
        """A heartbeat was not delivered; if it carried capabilities, the next one carries them too."""
        if carried_caps:
            self._caps_sent = None

    # --- the end ------------------------------------------------------------------------------

    def supersede(self) -> list[Effect]:
        """The node has a newer connection. No SendOffline: the epoch of this one is no longer current."""
        self.state = ConnectionState.CLOSED
        return [Close(CloseCode.SUPERSEDED, "superseded by a newer connection of this node")]

    def on_closed(self, reason: str) -> list[Effect]:
        """The socket closed."""
        known = self.state is not ConnectionState.CLOSED and self.epoch > 0
        self.state = ConnectionState.CLOSED
        return [SendOffline(self.node_id, self.epoch, reason)] if known else []

    def _heartbeat(self) -> SendHeartbeat:
        # A heartbeat may be lost unnoticed, so capabilities are sent again at intervals.
        due = self.caps != self._caps_sent or self._beats % CAPS_EVERY_BEATS == 0
        caps = self.caps if due else None
        self._beats += 1
        self.heartbeat_due_ms = None
        self._unsettled_beats = max(0, self._unsettled_beats - 1)
        self._caps_sent = self.caps
        return SendHeartbeat(self.node_id, self.epoch, self._load, caps)
