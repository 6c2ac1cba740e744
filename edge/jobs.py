"""Jobs: the rim of deliveries. Writes jobs to nodes' sockets and carries out what the delivery core decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, get_args

from websockets.asyncio.server import ServerConnection

from edge.core import assignment as effects
from edge.core.deliveries import Deliveries, Limits
from edge.core.node import NodeConnection
from edge.link import EdgeLink, early_ms_max
from edge.outbox import Bounds
from edge.socket import Socket
from mesh.clock import now_ms
from mesh.config import Config, EdgeConfig
from mesh.frames import Assign, CancelJob, Frame, JobDone, ResultAck, decode_work
from mesh.handover import job_assign_from
from mesh.link import Received
from mesh.metrics import EdgeMetrics
from mesh.node_wire import JobCancel, JobResultAck

#: Ends of a kept result that are a loss -> the metric's reason.
DROPPED: Final = {"fenced": "fenced", "no_session": "no_session", "shed": "overflow", "expired": "overflow"}


class NodeSocket(Socket):
    """One connection on /ws/node."""

    def __init__(self, connection: ServerConnection, bounds: Bounds, metrics: EdgeMetrics, config: EdgeConfig) -> None:
        super().__init__(connection, "node", bounds, metrics)
        self.node = NodeConnection(config.heartbeat_min_ms)


class Jobs:
    """All jobs and results of this edge's nodes. `socket_of` finds the connection in force of a node."""

    def __init__(
        self, config: Config, link: EdgeLink, metrics: EdgeMetrics, socket_of: Callable[[str], NodeSocket | None]
    ) -> None:
        self.deliveries = Deliveries(link.identity, _limits_of(config))
        self._link = link
        self._metrics = metrics
        self._socket_of = socket_of
        #: Payloads of the Assign that is being handled: work and audio.
        self._payload: list[bytes] = []
        self._counted: Counter[str] = Counter()
        self._run_effect: dict[type, Callable[[Any], None]] = {
            effects.WriteJob: self._write_job,
            effects.SendToEdge: self._send_to_edge,
            effects.SendToJob: self._send_to_job,
            effects.SendDone: self._send_done,
            effects.TellNode: self._tell_node,
            effects.StopJob: self._stop_job,
        }
        assert set(self._run_effect) == set(get_args(effects.Effect)), "every effect is carried out"
        handlers: dict[type[Frame], Callable[[Received], None]] = {
            Assign: self._on_assign,
            CancelJob: self._on_cancel,
            ResultAck: self._on_result_ack,
        }
        link.handle(handlers, {JobDone: self._on_done_back})

    def tick(self, now: int) -> None:
        """Do what is due."""
        self.run(self.deliveries.tick(now))
        self._count_dropped()

    # --- frames -------------------------------------------------------------------------------

    def _on_assign(self, message: Received) -> None:
        assign = message.frame
        assert isinstance(assign, Assign)
        socket = self._socket_of(assign.node_id)
        epoch = socket.node.epoch if socket is not None and socket.outbox.is_open else None
        self._payload = message.payload
        self.run(self.deliveries.on_assign(assign, epoch, now_ms()))
        self._payload = []

    def _on_cancel(self, message: Received) -> None:
        assert isinstance(message.frame, CancelJob)
        self.run(self.deliveries.on_cancel(message.frame, now_ms()))

    def _on_result_ack(self, message: Received) -> None:
        assert isinstance(message.frame, ResultAck)
        self.run(self.deliveries.on_ack(message.frame, now_ms()))

    def _on_done_back(self, frame: Frame, retry_after_ms: int) -> None:
        assert isinstance(frame, JobDone)
        self.deliveries.given_back(frame, retry_after_ms, now_ms())

    # --- effects ----------------------------------------------------------------------------

    def run(self, wanted: Iterable[effects.Effect]) -> None:
        """Carry out what the delivery core decided."""
        for effect in wanted:
            self._run_effect[type(effect)](effect)

    def _count_dropped(self) -> None:
        # With every tick and not with every message: results are dropped rarely.
        for outcome, reason in DROPPED.items():
            dropped = self.deliveries.outcomes[outcome] - self._counted[outcome]
            if dropped:
                self._counted[outcome] += dropped
                self._metrics.dropped_results_total.labels(reason).inc(dropped)

    def _write_job(self, effect: effects.WriteJob) -> None:
        assign = effect.assign
        socket = self._socket_of(assign.node_id)
        assert socket is not None, "its epoch was read a moment ago"
        work, audio = self._payload
        if not socket.tell(job_assign_from(assign, decode_work(work), audio)):
            self.run(self.deliveries.write_failed(assign))
            return
        self._link.to_peer(assign.session_edge, effect.placed)

    def _send_to_edge(self, effect: effects.SendToEdge) -> None:
        self._link.to_peer(effect.to, effect.frame, *effect.payload)

    def _send_to_job(self, effect: effects.SendToJob) -> None:
        self._link.to_job_cell(effect.job_id, effect.frame)

    def _send_done(self, effect: effects.SendDone) -> None:
        if effect.done.resend:
            self._metrics.resends_total.labels("JobDone").inc()
        broker = self._link.to_job_cell(effect.done.job_id, effect.done, effect.text, avoid=effect.avoid)
        self.deliveries.sent(effect.key, broker)

    def _tell_node(self, effect: effects.TellNode) -> None:
        socket = self._socket_of(effect.node_id)
        if socket is not None and socket.node.wants_result_ack:
            socket.tell(JobResultAck(job_id=effect.job_id, attempt_id=effect.attempt))

    def _stop_job(self, effect: effects.StopJob) -> None:
        cancel = effect.cancel
        socket = self._socket_of(cancel.node_id)
        if socket is not None:
            socket.tell(JobCancel(job_id=cancel.job_id, trace_id=cancel.trace_id or None, reason=cancel.reason))


def _limits_of(config: Config) -> Limits:
    edge = config.edge
    return Limits(
        resend_ms=edge.resend_ms,
        resend_ms_max=edge.resend_ms_max,
        resend_early_ms_max=early_ms_max(config),
        results_max=edge.results_kept_max,
        results_bytes_max=edge.results_kept_bytes_max,
        unknown_results_per_node_max=edge.unknown_results_per_node_max,
        result_kept_ms=config.job.lease_ms + config.job.record_extra_ms,
        no_session_tries_max=edge.no_session_tries_max,
        jobs_per_node_max=edge.jobs_per_node_max,
        reconnect_grace_ms=edge.reconnect_grace_ms,
        ended_kept_max=edge.ended_kept_max,
        ended_kept_ms=edge.ended_kept_ms,
        job_event_delay_ms=edge.job_event_delay_ms,
    )
