"""Job messages: the handlers of nodes' messages about jobs. Checks them, and passes them to the job tracker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from edge.core.convert import is_silence
from edge.core.failover import is_failover
from edge.core.timers import Schedule
from edge.jobs.core.job import ResultReport
from edge.jobs.core.missing_models import MissingModelReports
from edge.jobs.core.node_errors import is_model_missing, missing_model, scope_of
from edge.jobs.runner import JobRunner
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.nodes.socket import NodeSocket
from mesh.cells import cell_of, cell_of_job
from mesh.clock import wall_us
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import ModelMissing
from mesh.ids import is_id
from mesh.log import get_logger
from mesh.messages.base import Message
from mesh.messages.node import JobAck, JobRef, JobResult, JobStarted, NodeAsrPartial, NodeError
from mesh.states.job import JobAction

#: A node's message as it is forwarded: its JSON, or the JSON of its head and its raw audio.
Parts: TypeAlias = tuple[bytes, ...]

_EVENT_OF: Final[dict[type[Message], JobAction]] = {JobAck: JobAction.ACCEPT, JobStarted: JobAction.START}

log = get_logger()


class JobMessages:
    """The handlers of nodes' messages about jobs, and the nodes' reports of missing models."""

    def __init__(
        self, config: Config, link: EdgeLink, metrics: EdgeMetrics, schedule: Schedule, jobs: JobRunner
    ) -> None:
        self.missing_models = MissingModelReports(config.models.queue_max, schedule.waker(self.tick))
        self.handlers: dict[type[Message], Callable[[NodeSocket, Any, Parts], None]] = {
            JobAck: self._on_progress,
            JobStarted: self._on_progress,
            NodeAsrPartial: self._on_partial,
            JobResult: self._on_result,
            NodeError: self._on_error,
        }
        self._link = link
        self._metrics = metrics
        self._jobs = jobs
        self._tracker = jobs.tracker

    def tick(self, now: int) -> None:
        """Forward the reports of missing models that are due."""
        for frame in self.missing_models.pop_due(now):
            self._link.to_node_cell(frame.node_id, frame)
        dropped, self.missing_models.dropped = self.missing_models.dropped, 0
        self._metrics.model_words_dropped_total.inc(dropped)

    def named(self, node_id: str, jobs: list[JobRef] | None) -> list[tuple[str, int]]:
        """Job and attempt of a heartbeat's jobs, without those that the node cannot have: its jobs are of its cell."""
        cell = cell_of(node_id, self._link.cells)
        return [(job.job_id, job.attempt_id) for job in jobs or [] if _cell_in(job.job_id) == cell]

    # --- messages -----------------------------------------------------------------------------

    def _on_progress(self, socket: NodeSocket, message: JobAck | JobStarted, parts: Parts) -> None:
        socket.node.check_owns(message.node_id)
        event, now = _EVENT_OF[type(message)], socket.heard_ms
        self._jobs.run(self._tracker.on_progress(message.node_id, message.job_id, message.attempt_id, event, now))

    def _on_partial(self, socket: NodeSocket, message: NodeAsrPartial, parts: Parts) -> None:
        socket.node.check_owns(message.node_id)
        now = socket.heard_ms
        self._jobs.run(self._tracker.on_progress(message.node_id, message.job_id, None, JobAction.START, now, parts[0]))

    def _on_result(self, socket: NodeSocket, message: JobResult, parts: Parts) -> None:
        socket.node.check_owns(message.node_id)
        if not self._tracker.is_running(message.node_id, message.job_id, message.attempt_id):
            cell = _cell_in(message.job_id)
            if cell is None or not 0 <= cell < self._link.cells:
                raise PeerError(ErrorCode.INVALID_ID, "`job_id` is not one of ours")
        if not is_id(message.session_id):
            raise PeerError(ErrorCode.INVALID_ID, "`session_id` is not an id")
        if message.error is not None:
            self._report_missing(socket, message.error.code, message.error.message, message.error.details)
        report = ResultReport(
            job_id=message.job_id,
            attempt=message.attempt_id,
            node_id=message.node_id,
            session_id=message.session_id,
            utterance_index=message.utterance_index,
            success=message.success,
            measures_node=_measures_node(message),
            received_us=wall_us(),
        )
        self._jobs.run(self._tracker.on_result(report, parts, socket.heard_ms))

    def _on_error(self, socket: NodeSocket, message: NodeError, parts: Parts) -> None:
        socket.node.check_owns(message.node_id)
        socket.count_error()
        scope = scope_of(message.details)
        self._report_missing(socket, message.code, message.message, message.details)
        # A missing model is no reason to take away jobs that need other models; nor is an error on a superseded
        # connection, because the node has its present jobs from the newer one.
        if (scope.job_id is None and is_model_missing(message.code)) or not socket.node.is_open:
            return
        job_id = scope.job_id or "all"
        log.warning("node_error", node_id=message.node_id, job_id=job_id, code=message.code, message=message.message)
        self._jobs.run(self._tracker.on_node_error(message.node_id, scope.job_id, scope.attempt, socket.heard_ms))

    def _report_missing(self, socket: NodeSocket, code: str, message: str, details: Any) -> None:
        missing = missing_model(code, message, details)
        if missing is None:
            return
        report = ModelMissing(
            node_id=socket.node.node_id,
            epoch=socket.node.epoch,
            service_id=missing.service_id,
            service=socket.node.service_types.get(missing.service_id, ""),
            version=missing.version,
            reason=missing.reason,
        )
        self.missing_models.add(report, socket.heard_ms)


def _measures_node(result: JobResult) -> bool:
    """True if the duration, or the failure, is a property of the node.

    Silence is found at once by any node; bad input fails at any node; a missing model has its own report.
    """
    if result.success:
        return not is_silence(result)
    is_missing = result.error is not None and is_model_missing(result.error.code)
    return is_failover(result) and not is_missing


def _cell_in(job_id: str) -> int | None:
    """The cell that a job id carries; None if it is no job id."""
    try:
        return cell_of_job(job_id) if is_id(job_id) else None
    except ValueError:
        return None
