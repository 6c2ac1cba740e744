"""Nodes: the rim of /ws/node. Reads nodes' messages, runs the node core, answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_args

from websockets.asyncio.server import ServerConnection

from edge.core import node
from edge.core.asks import Answer
from edge.core.assignment import Report, key_of
from edge.core.timers import Timers, earliest
from edge.jobs import Jobs, NodeSocket
from edge.link import EdgeLink
from edge.outbox import Bounds
from edge.socket import internal_error
from mesh.capabilities import caps_after, caps_from, load_from
from mesh.cells import cell_of_job
from mesh.clock import now_ms
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Failed, Frame, NodeRegistered, NodeStale
from mesh.frames import NodeHeartbeat as HeartbeatFrame
from mesh.frames import NodeOffline as OfflineFrame
from mesh.frames import NodeRegister as RegisterFrame
from mesh.ids import is_id, new_node_id
from mesh.jobs import Event
from mesh.link import Received
from mesh.log import get_logger
from mesh.metrics import EdgeMetrics
from mesh.node_wire import (
    AsrPartial,
    JobAck,
    JobResult,
    JobStarted,
    NodeError,
    NodeHeartbeat,
    NodeMessage,
    NodeRegister,
    NodeRegisterAck,
    decode_from_node,
)
from mesh.wire import Message

log = get_logger()


class Nodes:
    """All nodes of this edge, their jobs and their results."""

    def __init__(self, config: Config, link: EdgeLink, metrics: EdgeMetrics) -> None:
        self.sockets: set[NodeSocket] = set()
        #: The connection in force of each node: the one with the highest epoch.
        self._current: dict[str, NodeSocket] = {}
        #: Heartbeats that came faster than the mesh needs them.
        self._held_beats: Timers[NodeSocket] = Timers()
        self.jobs = Jobs(config, link, metrics, self._current.get)
        self.deliveries = self.jobs.deliveries
        self._config = config
        self._bounds = Bounds.of(config.edge)
        self._link = link
        self._metrics = metrics
        self._on_message: dict[type[Message], Callable[[NodeSocket, Any, bytes], None]] = {
            NodeRegister: self._on_register,
            NodeHeartbeat: self._on_heartbeat,
            JobAck: self._on_ack,
            JobStarted: self._on_started,
            AsrPartial: self._on_partial,
            JobResult: self._on_result,
            NodeError: self._on_error,
        }
        assert set(self._on_message) == set(get_args(NodeMessage)), "every message of a node has a handler"
        self._run_for_node: dict[type, Callable[[NodeSocket, Any], None]] = {
            node.SendRegister: self._send_register,
            node.SendHeartbeat: self._send_heartbeat,
            node.SendOffline: self._send_offline,
            node.Acknowledge: self._acknowledge,
            node.Refuse: self._refuse,
            node.Close: self._close,
        }
        assert set(self._run_for_node) == set(get_args(node.Effect)), "every effect is carried out"
        link.handle({NodeStale: self._on_stale}, {HeartbeatFrame: self._on_heartbeat_back})

    def __len__(self) -> int:
        return len(self._current)

    # --- sockets ------------------------------------------------------------------------------

    async def serve(self, connection: ServerConnection) -> None:
        """One node, from its first message to its last."""
        socket = NodeSocket(connection, self._bounds, self._metrics, self._config.edge)
        self.sockets.add(socket)
        try:
            async for text in socket.messages(as_bytes=True):
                assert isinstance(text, bytes)
                self._on_text(socket, text)
        finally:
            self.sockets.discard(socket)
            self._held_beats.drop(socket)
            self._leave(socket)

    def _on_text(self, socket: NodeSocket, text: bytes) -> None:
        message: NodeMessage | None = None
        try:
            message = decode_from_node(text)
            self._on_message[type(message)](socket, message, text)
        except PeerError as error:
            socket.tell_error(error)
        except Exception:
            # The gateway from nodes: our own bug must cost this one message, not the socket.
            log.exception("node_message_failed", type=type(message).__name__, node_id=socket.node.node_id)
            socket.tell_error(internal_error())
        finally:
            socket.count_in(message)
            self._link.changed()

    def _leave(self, socket: NodeSocket) -> None:
        self._run_node(socket, socket.node.on_closed(socket.close_reason or "closed"))
        node_id = socket.node.node_id
        if self._current.get(node_id) is socket:
            del self._current[node_id]
            self.deliveries.node_gone(node_id, now_ms())
            log.info("node_gone", node_id=node_id, reason=socket.close_reason)
        self._link.changed()

    # --- time ---------------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """When `tick` has something to do; None while nothing waits."""
        return earliest((self.deliveries.next_due_ms(), self._held_beats.next_due_ms()))

    def tick(self, now: int) -> None:
        """Do what is due."""
        for socket in self._held_beats.pop_due(now):
            self._run_node(socket, socket.node.beat(now))
        self.jobs.tick(now)

    # --- messages -----------------------------------------------------------------------------

    def _on_register(self, socket: NodeSocket, message: NodeRegister, text: bytes) -> None:
        if message.node_id and not is_id(message.node_id):
            raise PeerError(ErrorCode.INVALID_ID, "`node_id` is not an id")
        caps = caps_from(message, self._config.node)
        effects = socket.node.on_register(message.node_id, new_node_id(), caps, bool(message.result_ack))
        self._run_node(socket, effects)

    def _on_heartbeat(self, socket: NodeSocket, message: NodeHeartbeat, text: bytes) -> None:
        socket.node.own(message.node_id)
        assert socket.node.caps is not None
        caps = caps_after(socket.node.caps, message)
        self._run_node(socket, socket.node.on_heartbeat(message.node_id, load_from(message), caps, now_ms()))
        if socket.node.beat_due_ms is not None:
            self._held_beats.set(socket, socket.node.beat_due_ms)
        if message.jobs is not None and self._current.get(message.node_id) is socket:
            has = {key_of(message.node_id, job.job_id, job.attempt_id) for job in message.jobs}
            self.jobs.run(self.deliveries.on_jobs(message.node_id, has))

    def _on_ack(self, socket: NodeSocket, message: JobAck, text: bytes) -> None:
        socket.node.own(message.node_id)
        self.jobs.run(
            self.deliveries.on_progress(message.node_id, message.job_id, message.attempt_id, Event.ACCEPT, now_ms())
        )

    def _on_started(self, socket: NodeSocket, message: JobStarted, text: bytes) -> None:
        socket.node.own(message.node_id)
        self.jobs.run(
            self.deliveries.on_progress(message.node_id, message.job_id, message.attempt_id, Event.START, now_ms())
        )

    def _on_partial(self, socket: NodeSocket, message: AsrPartial, text: bytes) -> None:
        socket.node.own(message.node_id)
        self.jobs.run(self.deliveries.on_progress(message.node_id, message.job_id, None, Event.START, now_ms(), text))

    def _on_result(self, socket: NodeSocket, message: JobResult, text: bytes) -> None:
        socket.node.own(message.node_id)
        self._check_job_id(message.job_id)
        if not is_id(message.session_id):
            raise PeerError(ErrorCode.INVALID_ID, "`session_id` is not an id")
        report = Report(
            job_id=message.job_id,
            attempt=message.attempt_id,
            node_id=message.node_id,
            session_id=message.session_id,
            utterance_index=message.utterance_index,
            success=message.success,
        )
        self.jobs.run(self.deliveries.on_result(report, text, now_ms()))

    def _on_error(self, socket: NodeSocket, message: NodeError, text: bytes) -> None:
        socket.node.own(message.node_id)
        log.warning("node_error", node_id=message.node_id, code=message.code, message=message.message)

    def _check_job_id(self, job_id: str) -> None:
        try:
            known = is_id(job_id) and 0 <= cell_of_job(job_id) < self._link.cells
        except ValueError:
            known = False
        if not known:
            raise PeerError(ErrorCode.INVALID_ID, "`job_id` is not one of ours")

    # --- frames -------------------------------------------------------------------------------

    def _on_stale(self, message: Received) -> None:
        stale = message.frame
        assert isinstance(stale, NodeStale)
        socket = self._current.get(stale.node_id)
        if socket is not None:
            self._run_node(socket, socket.node.on_stale(stale.epoch, stale.reason))

    def _on_heartbeat_back(self, frame: Frame, retry_after_ms: int) -> None:
        assert isinstance(frame, HeartbeatFrame)
        socket = self._current.get(frame.node_id)
        if socket is not None:
            socket.node.heartbeat_lost(frame.caps is not None)

    # --- effects of one node ------------------------------------------------------------------

    def _run_node(self, socket: NodeSocket, effects: Iterable[node.Effect]) -> None:
        for effect in effects:
            self._run_for_node[type(effect)](socket, effect)

    def _send_register(self, socket: NodeSocket, effect: node.SendRegister) -> None:
        def on_answer(answer: Answer | None) -> None:
            if isinstance(answer, NodeRegistered):
                self._adopt(socket, answer)
            else:
                assert answer is None or isinstance(answer, Failed)
                self._run_node(socket, socket.node.on_refused(answer))

        def question(ref: str) -> RegisterFrame:
            return RegisterFrame(ref=ref, node_id=effect.node_id, edge=self._link.identity, caps=effect.caps)

        def may_repeat() -> bool:
            socket.node.registration_repeated()
            return socket.node.is_open

        self._link.ask(question, effect.node_id, on_answer, may_repeat)

    def _adopt(self, socket: NodeSocket, answer: NodeRegistered) -> None:
        """The higher epoch is the connection in force; the other one is closed, and can do this one no harm."""
        effects = socket.node.on_registered(answer)
        if socket.node.is_open:
            old = self._current.get(answer.node_id)
            if old is not None and old is not socket and old.node.epoch > socket.node.epoch:
                effects = socket.node.supersede()
            else:
                self._current[answer.node_id] = socket
                if old is not socket:
                    self.deliveries.node_back(answer.node_id)
                if old is not None and old is not socket:
                    self._run_node(old, old.node.supersede())
        self._run_node(socket, effects)

    def _send_heartbeat(self, socket: NodeSocket, effect: node.SendHeartbeat) -> None:
        frame = HeartbeatFrame(
            node_id=effect.node_id,
            edge=self._link.identity,
            epoch=effect.epoch,
            load=effect.load,
            caps=effect.caps,
        )
        if not self._link.to_node_cell(effect.node_id, frame):
            socket.node.heartbeat_lost(effect.caps is not None)

    def _send_offline(self, socket: NodeSocket, effect: node.SendOffline) -> None:
        frame = OfflineFrame(node_id=effect.node_id, edge=self._link.identity, epoch=effect.epoch, reason=effect.reason)
        self._link.to_node_cell(effect.node_id, frame)

    def _acknowledge(self, socket: NodeSocket, effect: node.Acknowledge) -> None:
        log.info("node_registered", node_id=effect.node_id, epoch=socket.node.epoch, status=effect.status)
        socket.tell(NodeRegisterAck(node_id=effect.node_id, status=effect.status))

    def _refuse(self, socket: NodeSocket, effect: node.Refuse) -> None:
        socket.tell_error(PeerError(effect.code, effect.message))

    def _close(self, socket: NodeSocket, effect: node.Close) -> None:
        self._metrics.refused_total.labels("superseded").inc()
        log.info("node_superseded", node_id=socket.node.node_id, epoch=socket.node.epoch)
        socket.tell_error(PeerError(ErrorCode.NODE_SUPERSEDED, effect.reason))
        socket.outbox.close(effect.code, effect.reason)
