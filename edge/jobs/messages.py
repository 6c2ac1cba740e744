"""Job messages: what nodes say of their jobs. Reads acknowledgements, progress, results and errors into deliveries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edge.core.convert import is_silence
from edge.core.failover import is_failover
from edge.jobs.core.job import ResultReport
from edge.jobs.core.missing_models import MissingModelReports
from edge.jobs.core.node_errors import MODEL_MISSING, missing_model, trouble_of
from edge.jobs.runner import JobRunner, NodeSocket
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from mesh.cells import cell_of, cell_of_job
from mesh.clock import now_ms
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import ModelMissing
from mesh.ids import is_id
from mesh.log import get_logger
from mesh.messages.base import Message
from mesh.messages.node import JobAck, JobRef, JobResult, JobStarted, NodeAsrPartial, NodeError
from mesh.states.job import JobAction

log = get_logger()


class JobMessages:
    """The handlers of nodes' messages about jobs, and what they said of missing models."""

    def __init__(self, config: Config, link: EdgeLink, metrics: EdgeMetrics, jobs: JobRunner) -> None:
        self.model_words = MissingModelReports(config.models.queue_max)
        self.handlers: dict[type[Message], Callable[[NodeSocket, Any, bytes], None]] = {
            JobAck: self._on_ack,
            JobStarted: self._on_started,
            NodeAsrPartial: self._on_partial,
            JobResult: self._on_result,
            NodeError: self._on_error,
        }
        self._link = link
        self._metrics = metrics
        self._jobs = jobs
        self._deliveries = jobs.deliveries

    def tick(self, now: int) -> None:
        """Tell of missing models what is due."""
        for frame in self.model_words.pop_due(now):
            self._link.to_node_cell(frame.node_id, frame)
        dropped, self.model_words.dropped = self.model_words.dropped, 0
        self._metrics.model_words_dropped_total.inc(dropped)

    def named(self, node_id: str, jobs: list[JobRef] | None) -> list[tuple[str, int]]:
        """The jobs in a heartbeat that the node can have: job and attempt."""
        cell = cell_of(node_id, self._link.cells)
        return [(job.job_id, job.attempt_id) for job in jobs or [] if _cell_in(job.job_id) == cell]

    # --- messages -----------------------------------------------------------------------------

    def _on_ack(self, socket: NodeSocket, message: JobAck, text: bytes) -> None:
        self._on_event(socket, message, JobAction.ACCEPT)

    def _on_started(self, socket: NodeSocket, message: JobStarted, text: bytes) -> None:
        self._on_event(socket, message, JobAction.START)

    def _on_event(self, socket: NodeSocket, message: JobAck | JobStarted, event: JobAction) -> None:
        socket.node.own(message.node_id)
        self._jobs.run(
            self._deliveries.on_progress(message.node_id, message.job_id, message.attempt_id, event, now_ms())
        )

    def _on_partial(self, socket: NodeSocket, message: NodeAsrPartial, text: bytes) -> None:
        socket.node.own(message.node_id)
        self._jobs.run(
            self._deliveries.on_progress(message.node_id, message.job_id, None, JobAction.START, now_ms(), text)
        )

    def _on_result(self, socket: NodeSocket, message: JobResult, text: bytes) -> None:
        socket.node.own(message.node_id)
        cell = _cell_in(message.job_id)
        if cell is None or not 0 <= cell < self._link.cells:
            raise PeerError(ErrorCode.INVALID_ID, "`job_id` is not one of ours")
        if not is_id(message.session_id):
            raise PeerError(ErrorCode.INVALID_ID, "`session_id` is not an id")
        if message.error is not None:
            self._note_missing(socket, message.error.code, message.error.message, message.error.details)
        report = ResultReport(
            job_id=message.job_id,
            attempt=message.attempt_id,
            node_id=message.node_id,
            session_id=message.session_id,
            utterance_index=message.utterance_index,
            success=message.success,
            is_telling=_is_telling(message),
        )
        self._jobs.run(self._deliveries.on_result(report, text, now_ms()))

    def _on_error(self, socket: NodeSocket, message: NodeError, text: bytes) -> None:
        socket.node.own(message.node_id)
        socket.complained()
        trouble = trouble_of(message.details)
        self._note_missing(socket, message.code, message.message, message.details)
        # A missing model is no reason to take away jobs that need others; nor is the last word of a connection that was
        # superseded, for what the node has now came by the newer one.
        if (trouble.job_id is None and message.code.strip().upper() == MODEL_MISSING) or not socket.node.is_open:
            return
        job_id = trouble.job_id or "all"
        log.warning("node_error", node_id=message.node_id, job_id=job_id, code=message.code, message=message.message)
        self._jobs.run(self._deliveries.on_node_error(message.node_id, trouble.job_id, trouble.attempt, now_ms()))

    def _note_missing(self, socket: NodeSocket, code: str, message: str, details: Any) -> None:
        missing = missing_model(code, message, details)
        if missing is not None:
            word = ModelMissing(
                node_id=socket.node.node_id,
                epoch=socket.node.epoch,
                service_id=missing.service_id,
                service=socket.node.service_types.get(missing.service_id, ""),
                version=missing.version,
                reason=missing.reason,
            )
            self.model_words.note(word, now_ms())


def _is_telling(result: JobResult) -> bool:
    """True if how long it took, or that it failed, is the node's own doing.

    Silence is found at once, whoever hears it; bad input fails everywhere; and a missing model is marked as such.
    """
    if result.success:
        return not is_silence(result)
    is_missing = result.error is not None and result.error.code.strip().upper() == MODEL_MISSING
    return is_failover(result) and not is_missing


def _cell_in(job_id: str) -> int | None:
    """The cell that a job id carries; None if it is none of ours."""
    try:
        return cell_of_job(job_id) if is_id(job_id) else None
    except ValueError:
        return None
