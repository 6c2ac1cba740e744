"""Node endpoint: the rim of /ws/node. Receives nodes' messages, runs the connections' effects, replies.

Owns the table of current connections. Jobs are in edge/jobs; the state of one connection is in core/connection.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, cast, get_args

from edge.core.timers import Schedule, Timers
from edge.jobs.core.job import key_of
from edge.jobs.messages import JobMessages, Parts
from edge.jobs.runner import JobRunner
from edge.link.core.rpc import Reply
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.nodes.core import connection
from edge.nodes.core.capabilities import caps_after, caps_from, load_from, service_types
from edge.nodes.pairing import NodePairing
from edge.nodes.socket import NodeSocket
from edge.transport.connection import EdgeConnection
from edge.transport.send_buffer import SendLimits
from edge.transport.websocket import internal_error
from mesh.clock import now_ms, wall_ms
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Failed, NodeRegistered, NodeStale, StatusChanged
from mesh.frames import NodeHeartbeat as HeartbeatFrame
from mesh.frames import NodeOffline as OfflineFrame
from mesh.frames import NodeRegister as RegisterFrame
from mesh.ids import is_id
from mesh.log import get_logger
from mesh.messages import binary
from mesh.messages.base import Message
from mesh.messages.node import (
    JobResult,
    NodeHeartbeatMessage,
    NodeMessage,
    NodeRegisterAck,
    NodeRegisterMessage,
    NodeStatus,
    decode_from_node,
)
from mesh.random_ids import new_node_id
from mesh.words import ConnectionRefusal

#: Service ids of one node whose type is stored.
SERVICE_TYPES_MAX: Final = 1_024

log = get_logger()


class NodeEndpoint:
    """All nodes of this edge, their jobs and their results."""

    def __init__(self, config: Config, link: EdgeLink, metrics: EdgeMetrics, schedule: Schedule) -> None:
        self.sockets: set[NodeSocket] = set()
        #: The current connection of each node: the one with the highest epoch.
        self._current: dict[str, NodeSocket] = {}
        #: Throttled heartbeats: they arrived faster than the mesh needs them.
        self._throttled_beats: Timers[NodeSocket] = Timers(schedule.waker(self.tick))
        self.jobs = JobRunner(config, link, metrics, schedule, self._current.get)
        self.tracker = self.jobs.tracker
        self._job_messages = JobMessages(config, link, metrics, schedule, self.jobs)
        self._config = config
        self._send_limits = SendLimits.of(config.edge)
        self._link = link
        self._metrics = metrics
        self._on_message: dict[type[Message], Callable[[NodeSocket, Any, Parts], None]] = {
            NodeRegisterMessage: self._on_register,
            NodeHeartbeatMessage: self._on_heartbeat,
            **self._job_messages.handlers,
            **NodePairing(link).handlers,
        }
        assert set(self._on_message) == set(get_args(NodeMessage)), "every message of a node has a handler"
        self._run_for_node: dict[type, Callable[[NodeSocket, Any], None]] = {
            connection.SendRegister: self._send_register,
            connection.SendHeartbeat: self._send_heartbeat,
            connection.SendOffline: self._send_offline,
            connection.Acknowledge: self._acknowledge,
            connection.Refuse: self._refuse,
            connection.Close: self._close,
        }
        assert set(self._run_for_node) == set(get_args(connection.Effect)), "every effect has a runner"

    def __len__(self) -> int:
        return len(self._current)

    # --- sockets ------------------------------------------------------------------------------

    async def serve(self, connection: EdgeConnection) -> None:
        """One node, from its first message to its last."""
        socket = NodeSocket(connection, self._send_limits, self._metrics, self._config.edge)
        self.sockets.add(socket)
        try:
            await socket.receive(partial(self._on_data, socket))
        finally:
            self.sockets.discard(socket)
            self._throttled_beats.drop(socket)
            self._detach(socket)

    def _on_data(self, socket: NodeSocket, data: bytes, is_text: bool) -> Awaitable[None] | None:
        self._on_message_of(socket, data, is_text)
        if not socket.read_delay_ms:
            return None
        # Throttled: it sends too many errors.
        delay_ms, socket.read_delay_ms = socket.read_delay_ms, 0.0
        return asyncio.sleep(delay_ms / 1_000)

    def _on_message_of(self, socket: NodeSocket, data: bytes, is_text: bool) -> None:
        message: NodeMessage | None = None
        try:
            if is_text or data[:1] == b"{":
                parts: Parts = (data,)
                message = decode_from_node(data)
            else:
                message, parts = read_binary(socket.uses_binary_messages, data)
            self._on_message[type(message)](socket, message, parts)
        except PeerError as error:
            socket.count_error()
            socket.send_error(error)
        except Exception:
            # The gateway from nodes: our own bug must fail this one message, not the socket.
            log.exception("node_message_failed", type=type(message).__name__, node_id=socket.node.node_id)
            socket.send_error(internal_error())
        finally:
            socket.received[type(message)].value += 1

    def _detach(self, socket: NodeSocket) -> None:
        self._run_node(socket, socket.node.on_closed(socket.close_reason or "closed"))
        node_id = socket.node.node_id
        if self._current.get(node_id) is socket:
            del self._current[node_id]
            self.tracker.node_detached(node_id, socket.node.epoch, now_ms())
            log.info("node_detached", node_id=node_id, reason=socket.close_reason)

    # --- time ---------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Send the throttled heartbeats that are due."""
        for socket in self._throttled_beats.pop_due(now):
            self._run_node(socket, socket.node.send_due_heartbeat(now))

    # --- messages -----------------------------------------------------------------------------

    def _on_register(self, socket: NodeSocket, message: NodeRegisterMessage, parts: Parts) -> None:
        if message.node_id and not is_id(message.node_id):
            raise PeerError(ErrorCode.INVALID_ID, "`node_id` is not an id")
        caps = caps_from(message, self._config.node)
        effects = socket.node.on_register(message.node_id, new_node_id(), caps, bool(message.result_ack))
        socket.uses_binary_messages = bool(message.binary_messages)
        self._store_services(socket, message)
        self._run_node(socket, effects)

    def _on_heartbeat(self, socket: NodeSocket, message: NodeHeartbeatMessage, parts: Parts) -> None:
        socket.node.check_owns(message.node_id)
        assert socket.node.caps is not None
        caps = caps_after(socket.node.caps, message)
        if message.installed_services is not None or message.capability_by_type is not None:
            self._store_services(socket, message)
        named = self._job_messages.named(message.node_id, message.jobs)
        socket.node.jobs_named = None if message.jobs is None else named
        if self._current.get(message.node_id) is socket:
            # First, so that a lost job is not reported as running.
            has = None if message.jobs is None else {key_of(message.node_id, *job) for job in named}
            self.jobs.run(self.tracker.on_jobs_reported(message.node_id, has, socket.heard_ms))
        self._run_node(socket, socket.node.on_heartbeat(message.node_id, load_from(message), caps, socket.heard_ms))
        if socket.node.heartbeat_due_ms is not None:
            self._throttled_beats.set(socket, socket.node.heartbeat_due_ms)

    def _store_services(self, socket: NodeSocket, message: NodeRegisterMessage | NodeHeartbeatMessage) -> None:
        services, capabilities = message.installed_services, message.capability_by_type
        types = service_types(services, capabilities, self._config.models)
        known = {**socket.node.service_types, **types}
        # A service that is left out is unchanged; of a node that invents new names only the latest are stored.
        socket.node.service_types = known if len(known) <= SERVICE_TYPES_MAX else types

    # --- frames -------------------------------------------------------------------------------

    def on_stale(self, stale: NodeStale, payload: list[bytes], now: int) -> None:
        """A selector does not know the node's connection of that epoch."""
        socket = self._current.get(stale.node_id)
        if socket is not None:
            self._run_node(socket, socket.node.on_stale(stale.epoch, stale.reason))

    def on_status(self, changed: StatusChanged, payload: list[bytes], now: int) -> None:
        """The node's status in the mesh changed: notify the node."""
        socket = self._current.get(changed.node_id)
        if socket is None or socket.node.epoch != changed.epoch:
            return  # about an earlier connection, or one to another edge
        log.info("node_status", node_id=changed.node_id, status=changed.status, reason=changed.reason)
        socket.node.status = changed.status
        socket.send(
            NodeStatus(
                node_id=changed.node_id,
                status=changed.status,
                reason=changed.reason or None,
                timestamp=wall_ms() // 1_000,
            )
        )

    def on_heartbeat_back(self, heartbeat: HeartbeatFrame, retry_after_ms: int, now: int) -> None:
        """A broker returned a heartbeat. It is not retried: the next one is newer."""
        socket = self._current.get(heartbeat.node_id)
        if socket is not None:
            socket.node.heartbeat_undelivered(heartbeat.caps is not None)

    # --- effects of one node ------------------------------------------------------------------

    def _run_node(self, socket: NodeSocket, effects: Iterable[connection.Effect]) -> None:
        for effect in effects:
            self._run_for_node[type(effect)](socket, effect)

    def _send_register(self, socket: NodeSocket, effect: connection.SendRegister) -> None:
        def on_reply(reply: Reply | None) -> None:
            if isinstance(reply, NodeRegistered):
                self._on_registered(socket, reply)
            else:
                assert reply is None or isinstance(reply, Failed)
                self._run_node(socket, socket.node.on_refused(reply))

        def call(ref: str) -> RegisterFrame:
            return RegisterFrame(ref=ref, node_id=effect.node_id, edge=self._link.identity, caps=effect.caps)

        def may_retry() -> bool:
            socket.node.registration_retried()
            return socket.node.is_open

        self._link.ask(call, effect.node_id, on_reply, may_retry)

    def _on_registered(self, socket: NodeSocket, reply: NodeRegistered) -> None:
        """The connection with the higher epoch becomes current; the other one is superseded and closed."""
        effects = socket.node.on_registered(reply)
        if not socket.node.is_open:
            self._run_node(socket, effects)
            return
        old = self._current.get(reply.node_id)
        if old is not None and old is not socket and old.node.epoch > socket.node.epoch:
            self._run_node(socket, socket.node.supersede())
            return
        self._current[reply.node_id] = socket
        if old is not None and old is not socket:
            self._run_node(old, old.node.supersede())
        self._run_node(socket, effects)
        if old is not socket:
            # After its acknowledgement: before that a node accepts no job.
            self.jobs.run(self.tracker.node_reattached(reply.node_id, now_ms()))

    def _send_heartbeat(self, socket: NodeSocket, effect: connection.SendHeartbeat) -> None:
        frame = HeartbeatFrame(
            node_id=effect.node_id,
            edge=self._link.identity,
            epoch=effect.epoch,
            load=effect.load,
            caps=effect.caps,
            jobs=self._running_at(socket),
        )
        if not self._link.to_node_cell(effect.node_id, frame):
            socket.node.heartbeat_undelivered(effect.caps is not None)

    def _running_at(self, socket: NodeSocket) -> list[str] | None:
        """The node's running jobs; None if unknown: a node that names none may run a job that another edge gave it."""
        named = socket.node.jobs_named
        if named is None and now_ms() - socket.opened_ms < self._config.job.lease_ms:
            return None
        return self.tracker.running_at(socket.node.node_id, named or [])

    def _send_offline(self, socket: NodeSocket, effect: connection.SendOffline) -> None:
        frame = OfflineFrame(node_id=effect.node_id, edge=self._link.identity, epoch=effect.epoch, reason=effect.reason)
        self._link.to_node_cell(effect.node_id, frame)

    def _acknowledge(self, socket: NodeSocket, effect: connection.Acknowledge) -> None:
        log.info("node_registered", node_id=effect.node_id, epoch=socket.node.epoch, status=effect.status)
        binary = socket.uses_binary_messages or None
        socket.send(NodeRegisterAck(node_id=effect.node_id, status=effect.status, binary_messages=binary))

    def _refuse(self, socket: NodeSocket, effect: connection.Refuse) -> None:
        socket.send_error(PeerError(effect.code, effect.message))

    def _close(self, socket: NodeSocket, effect: connection.Close) -> None:
        self._metrics.refused_total.labels(ConnectionRefusal.SUPERSEDED).inc()
        log.info("node_superseded", node_id=socket.node.node_id, epoch=socket.node.epoch)
        socket.send_error(PeerError(ErrorCode.NODE_SUPERSEDED, effect.reason))
        socket.outbox.close(effect.code, effect.reason)


def read_binary(is_agreed: bool, data: bytes) -> tuple[JobResult, Parts]:
    """The job_result of a binary message, and its parts: the head, and a view of the audio in the frame."""
    number, head, audio = binary.split(data)
    if number != binary.JOB_RESULT:
        raise PeerError(ErrorCode.INVALID_MESSAGE, "a node sends no binary message but job_result")
    if not is_agreed:
        text = "binary messages were not negotiated: set `binary_messages` in node_register, or send JSON text"
        raise PeerError(ErrorCode.UNSUPPORTED_FEATURE, text)
    result: JobResult = binary.decode_parts(number, head, audio)
    # A view is sent like bytes, and nobody changes it.
    return result, (bytes(head), cast("bytes", audio))
