"""Job runner: the rim of the job tracker. Receives frames about jobs, and runs the tracker's effects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, get_args

from edge.core.convert import job_assign_from
from edge.core.timers import Schedule
from edge.jobs.core import job as effects
from edge.jobs.core.reconnect_grace import GraceLimits
from edge.jobs.core.tracker import JobLimits, JobTracker
from edge.jobs.core.unacked_results import UnackedLimits
from edge.link.link import EdgeLink, early_ms_max
from edge.metrics import EdgeMetrics
from edge.nodes.socket import NodeSocket
from mesh.clock import now_ms, wall_ms, wall_us
from mesh.config import Config
from mesh.frames import (
    Assign,
    AssignFailed,
    CancelJob,
    ControlNode,
    Finished,
    FinishedAck,
    JobDone,
    Push,
    ResultAcks,
    decode_work,
)
from mesh.log import get_logger
from mesh.messages.audio import json_audio
from mesh.messages.binary import json_of
from mesh.messages.node import JobAssign, JobCancel, JobResult, JobResultAck, NodeControl, encode_utf8
from mesh.words import JobOutcome, NodeCommand, ResultDrop, ResultVerdict

#: Outcomes in which a result is dropped -> the metric's reason.
DROPPED: Final[dict[str, ResultDrop]] = {
    ResultVerdict.FENCED: ResultDrop.FENCED,
    JobOutcome.RESULT_LATE: ResultDrop.FENCED,
    ResultVerdict.NO_SESSION: ResultDrop.NO_SESSION,
    JobOutcome.RESULT_EVICTED: ResultDrop.OVERFLOW,
    JobOutcome.RESULT_EXPIRED: ResultDrop.OVERFLOW,
}

log = get_logger()


class JobRunner:
    """All jobs and results of this edge's nodes. `socket_of` finds the current connection of a node."""

    def __init__(
        self,
        config: Config,
        link: EdgeLink,
        metrics: EdgeMetrics,
        schedule: Schedule,
        socket_of: Callable[[str], NodeSocket | None],
    ) -> None:
        self.tracker = JobTracker(link.identity, _limits_of(config), schedule.waker(self.tick))
        self._link = link
        self._metrics = metrics
        self._socket_of = socket_of
        self._run_effect: dict[type, Callable[[Any], None]] = {
            effects.WriteJob: self._write_job,
            effects.SendToEdge: self._send_to_edge,
            effects.SendToJob: self._send_to_job,
            effects.SendResult: self._send_result,
            effects.SendFinished: self._send_finished,
            effects.SendDone: self._send_done,
            effects.AckToNode: self._ack_to_node,
            effects.StopJob: self._stop_job,
            effects.SendControl: self._send_control,
            effects.NodeDrained: self._node_drained,
        }
        assert set(self._run_effect) == set(get_args(effects.Effect)), "every effect has a runner"

    def tick(self, now: int) -> None:
        """Run the effects that are due."""
        self.run(self.tracker.tick(now))

    # --- frames -------------------------------------------------------------------------------

    def on_assign(self, assign: Assign, payload: list[bytes], now: int) -> None:
        """A job for a node of this edge."""
        work, audio = payload
        epoch = self._epoch_of(assign.node_id)
        self.run(self.tracker.on_assign(assign, effects.Payload(work, audio), epoch, now))

    def on_control(self, control: ControlNode, payload: list[bytes], now: int) -> None:
        """An operator's command for a node of this edge."""
        log.info("node_control", node_id=control.node_id, command=control.command, reason=control.reason)
        due_ms = now + max(0, control.deadline_ms - wall_ms())
        self.run(self.tracker.on_control(control, self._epoch_of(control.node_id), due_ms))

    def on_cancel(self, cancel: CancelJob, payload: list[bytes], now: int) -> None:
        """A job of a node of this edge is cancelled."""
        self.run(self.tracker.on_cancel(cancel, now))

    def on_result_acks(self, frame: ResultAcks, payload: list[bytes], now: int) -> None:
        """Results are acknowledged."""
        for ack in frame.acks:
            self.run(self.tracker.on_ack(ack, now))

    def on_finished_ack(self, frame: FinishedAck, payload: list[bytes], now: int) -> None:
        """Jobs are finished and their slots released."""
        for job in frame.jobs:
            self.tracker.on_finished_ack(job)

    def on_push_back(self, push: Push, retry_after_ms: int, now: int) -> None:
        """A broker returned a result that was sent to the session's edge."""
        self.run(self.tracker.on_push_returned(push, now))

    def on_finished_back(self, finished: Finished, retry_after_ms: int, now: int) -> None:
        """A broker returned a Finished."""
        self.run(self.tracker.on_finished_returned(finished))

    def on_done_back(self, done: JobDone, retry_after_ms: int, now: int) -> None:
        """A broker returned a JobDone."""
        self.tracker.on_done_returned(done, retry_after_ms, now)

    def _epoch_of(self, node_id: str) -> int | None:
        """The epoch of the node's connection here; None if it has none that accepts messages."""
        socket = self._socket_of(node_id)
        return socket.node.epoch if socket is not None and socket.outbox.is_open else None

    # --- effects ----------------------------------------------------------------------------

    def run(self, wanted: Iterable[effects.Effect]) -> None:
        """Run the tracker's effects, and export its outcomes."""
        for effect in wanted:
            self._run_effect[type(effect)](effect)
        if self.tracker.outcomes:
            self._count_outcomes()

    def _count_outcomes(self) -> None:
        """Move the tracker's counts to the metrics, which a core does not know."""
        for outcome, count in self.tracker.outcomes.items():
            self._metrics.job_outcomes_total.labels(outcome).inc(count)
            if outcome in DROPPED:
                self._metrics.dropped_results_total.labels(DROPPED[outcome]).inc(count)
        self.tracker.outcomes.clear()

    def _write_job(self, effect: effects.WriteJob) -> None:
        job, (work, audio) = effect.job, effect.payload
        socket = self._socket_of(job.assign.node_id)
        assert socket is not None, "its epoch was just read"
        if socket.uses_binary_messages:
            head = encode_utf8(job_assign_from(job.assign, decode_work(work)))
            is_sent = socket.send_with_audio(JobAssign, head, audio)
        else:
            is_sent = socket.send(job_assign_from(job.assign, decode_work(work), json_audio(audio)))
        if is_sent:
            job.written_us = wall_us()
        else:
            self.run(self.tracker.write_failed(job.assign))

    def _send_to_edge(self, effect: effects.SendToEdge) -> None:
        self._link.to_peer(effect.to, effect.frame, *effect.payload)

    def _send_to_job(self, effect: effects.SendToJob) -> None:
        if isinstance(effect.frame, AssignFailed):
            self._metrics.given_back_total.labels(effect.frame.reason).inc()
        self._link.to_job_cell(effect.job_id, effect.frame)

    def _send_result(self, effect: effects.SendResult) -> None:
        result = effect.result
        self._link.to_peer(result.session_edge, result.push, *result.payload)

    def _send_finished(self, effect: effects.SendFinished) -> None:
        result = effect.result
        if result.finish_sends > 1:
            self._metrics.resends_total.labels(Finished.__name__).inc()
        if effect.to_cell or not result.selector:
            self._link.to_job_cell(result.finished.job_id, result.finished)
        else:
            self._link.to_peer(result.selector, result.finished)

    def _send_done(self, effect: effects.SendDone) -> None:
        result, done = effect.result, effect.done
        if result.sends > 1:
            self._metrics.resends_total.labels(JobDone.__name__).inc()
        payload = result.payload
        if len(payload) > 1:  # it may be parked in the session's mail, whose entries have one part
            payload = (json_of(JobResult, *payload),)
        result.broker = self._link.to_job_cell(done.job_id, done, *payload, avoid=effect.avoid)

    def _ack_to_node(self, effect: effects.AckToNode) -> None:
        socket = self._socket_of(effect.node_id)
        if socket is not None and socket.node.wants_result_ack:
            socket.send(JobResultAck(job_id=effect.job_id, attempt_id=effect.attempt))

    def _stop_job(self, effect: effects.StopJob) -> None:
        cancel = effect.cancel
        socket = self._socket_of(cancel.node_id)
        if socket is not None:
            socket.send(JobCancel(job_id=cancel.job_id, trace_id=cancel.trace_id or None, reason=cancel.reason))

    def _send_control(self, effect: effects.SendControl) -> None:
        control = effect.control
        socket = self._socket_of(control.node_id)
        if socket is not None:
            is_drain = control.command == NodeCommand.DRAIN
            socket.send(
                NodeControl(
                    command=control.command,
                    reason=control.reason or None,
                    deadline_ms=max(0, effect.due_ms - now_ms()) if is_drain else None,
                )
            )

    def _node_drained(self, effect: effects.NodeDrained) -> None:
        log.info("node_drained", node_id=effect.node_id, handed_over=effect.handed_over)


def _limits_of(config: Config) -> JobLimits:
    edge, job = config.edge, config.job
    return JobLimits(
        unacked=UnackedLimits(
            results_max=edge.results_kept_max,
            bytes_max=edge.results_kept_bytes_max,
            unknown_per_node_max=edge.unknown_results_per_node_max,
            age_ms_max=job.lease_ms + job.record_extra_ms,
            retry_ms=edge.resend_ms,
            retry_ms_max=edge.resend_ms_max,
            retry_early_ms_max=early_ms_max(config),
        ),
        grace=GraceLimits(
            grace_ms=edge.reconnect_grace_ms,
            nodes_max=edge.connections_max,
            jobs_max=edge.held_jobs_max,
            bytes_max=edge.held_bytes_max,
            jobs_per_node_max=edge.held_jobs_per_node_max,
            bytes_per_node_max=edge.held_bytes_per_node_max,
        ),
        no_session_tries_max=edge.no_session_tries_max,
        jobs_per_node_max=edge.jobs_per_node_max,
        job_age_ms_max=max(job.lease_ms, job.deadline_ms),
        job_named_ms=config.node.heartbeat_interval_ms,
        recent_max=edge.ended_kept_max,
        recent_ms=edge.ended_kept_ms,
        job_event_delay_ms=edge.job_event_delay_ms,
    )
