"""Job tracker: the jobs that the nodes of this edge run, and their results until they are acknowledged.

The node's side of the delivery guarantee (docs/adr/0006); the session's side is edge/requests/core/tracker.py. A job is
buffered for a detached node, running, or an unacked result, and in one of these states at most. Drains are tracked
beside them. Knows no sockets: whether a node is connected, and with which epoch, is an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final, NamedTuple

from edge.core.recent_keys import RecentKeys
from edge.core.timers import Timers, Wake, no_wake
from edge.jobs.core.drains import Drains
from edge.jobs.core.job import (
    AckToNode,
    Effect,
    Job,
    NodeDrained,
    Payload,
    ResultReport,
    SendControl,
    SendFinished,
    SendToEdge,
    SendToJob,
    StopJob,
    TimerKind,
    UnackedResult,
    WriteJob,
    assign_failed,
    key_of,
    notice,
    placed,
    stop,
    unacked_result,
)
from edge.jobs.core.reconnect_grace import BufferedJob, GraceLimits, ReconnectGrace
from edge.jobs.core.running_jobs import RunningJobs
from edge.jobs.core.unacked_results import UnackedLimits, UnackedResults
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Assign, CancelJob, ControlNode, Finished, FinishedJob, JobDone, Push, ResultAck
from mesh.keys import lease_member
from mesh.states.job import RUNNING_JOBS_MAX, JobAction
from mesh.words import AssignFailure, JobOutcome, NodeCommand, NoticeEvent, ResultVerdict, StopReason

#: Outcomes of recent jobs that need no further frame; any other is the reason of an AssignFailed.
_ACKNOWLEDGED: Final = "acknowledged"
_CANCELLED: Final = "cancelled"
_ENDED: Final = frozenset({_ACKNOWLEDGED, _CANCELLED})

# A member of an enum costs as much as a call; these are read for every message.
_NO_SESSION: Final = ResultVerdict.NO_SESSION


class JobLimits(NamedTuple):
    """Bounds of the job tracker, from the configuration."""

    unacked: UnackedLimits
    grace: GraceLimits
    no_session_tries_max: int
    jobs_per_node_max: int
    #: A running job older than this has outlived its slot, and no client waits for it.
    job_age_ms_max: int
    #: A node that names its jobs in heartbeats has named a job that was written this long ago.
    job_named_ms: int
    recent_max: int
    recent_ms: int
    job_event_delay_ms: int


class JobTracker:
    """All jobs and unacked results of this edge's nodes."""

    def __init__(self, edge: str, limits: JobLimits, wake: Wake = no_wake) -> None:
        self.edge = edge
        self.limits = limits
        #: Ends of jobs and results, and messages without effect: JobOutcome or ResultVerdict -> count.
        self.outcomes: Counter[str] = Counter()
        self.timers: Timers[tuple[TimerKind, str]] = Timers(wake)
        self._unacked = UnackedResults(limits.unacked, self.timers)
        #: The unacked results, oldest first.
        self.results: Mapping[str, UnackedResult] = self._unacked.results
        self._running = RunningJobs(limits.jobs_per_node_max, limits.job_event_delay_ms, self.timers)
        self._detached = ReconnectGrace(limits.grace, self.timers)
        self._drains = Drains(self.timers)
        #: Ended jobs, to deduplicate late frames: acknowledged, cancelled, or failed with that AssignFailure.
        self._recent = RecentKeys(limits.recent_max, limits.recent_ms)
        self._on_due: dict[TimerKind, Callable[[list[str], int], list[Effect]]] = {
            TimerKind.RETRY: self._retry_results,
            TimerKind.GRACE: self._end_graces,
            TimerKind.DRAINED: self._report_drained,
            TimerKind.DRAIN_END: self._end_drains,
            TimerKind.EVENTS: self._report_events,
        }
        assert set(self._on_due) == set(TimerKind), "every timer has a handler"

    # --- jobs towards the node ----------------------------------------------------------------

    def on_assign(self, assign: Assign, payload: Payload, epoch: int | None, now_ms: int) -> list[Effect]:
        """Give the job to the node, whose connection here has that epoch (None = it has none). Idempotent."""
        key = key_of(assign.node_id, assign.job_id, assign.attempt)
        result = self.results.get(key)
        if result is not None:
            self._unacked.retry_now(key, now_ms)  # finished, and the sender of the Assign does not know
            return [] if result.is_acked else [SendToEdge(assign.session_edge, placed(assign))]
        ended = self._recent.how(key, now_ms)
        if ended is not None:
            return [] if ended in _ENDED else [assign_failed(assign, ended)]
        running = self._running.jobs.get(key)
        if running is not None:
            running.is_placed = True
            return [SendToEdge(assign.session_edge, placed(assign))]
        node = self._detached.nodes.get(assign.node_id)
        if node is not None and key in node.buffered:
            return []
        was_here = node is not None and node.epoch == assign.node_epoch
        if epoch == assign.node_epoch or (was_here and epoch is not None):
            return [self._write(assign, key, payload, now_ms)]
        if was_here and epoch is None and self._detached.buffer(BufferedJob(assign, payload, key)):
            self.outcomes[JobOutcome.JOB_BUFFERED] += 1
            return []
        return [assign_failed(assign, AssignFailure.NODE_ABSENT)]

    def write_failed(self, assign: Assign) -> list[Effect]:
        """The node's socket did not accept the job."""
        self._drop(assign.node_id, key_of(assign.node_id, assign.job_id, assign.attempt))
        return [assign_failed(assign, AssignFailure.NODE_STUCK)]

    def on_cancel(self, cancel: CancelJob, now_ms: int) -> list[Effect]:
        """Cancel the job. An Assign that this frame overtook, or a late result, finds it ended."""
        key = key_of(cancel.node_id, cancel.job_id, cancel.attempt)
        self._drop(cancel.node_id, key)
        self._detached.drop(cancel.node_id, key)
        if key not in self.results:
            self._recent.add(key, now_ms, _CANCELLED)
        return [StopJob(cancel)]

    def on_control(self, control: ControlNode, epoch: int | None, due_ms: int) -> list[Effect]:
        """An operator drains the node until `due_ms`, or resumes it. Ignored if the node is not of this edge."""
        node = self._detached.nodes.get(control.node_id)
        is_connected = epoch is not None and epoch >= control.epoch
        if not is_connected and not (node is not None and node.epoch == control.epoch):
            self.outcomes[JobOutcome.CONTROL_STALE] += 1
            return []
        if control.command == NodeCommand.DRAIN:
            self._drains.start(control, due_ms)
            if not self._running.of(control.node_id) and control.node_id not in self._detached:
                self._drains.has_no_job(control.node_id)
        else:
            self._drains.stop(control.node_id)
        return [SendControl(control, due_ms)]

    # --- messages of the node -----------------------------------------------------------------

    def on_progress(
        self, node_id: str, job_id: str, attempt: int | None, event: JobAction, now_ms: int, partial: bytes = b""
    ) -> list[Effect]:
        """`event` is ACCEPT or START; an asr_partial is a START that names no attempt (then it is the latest)."""
        if attempt is None:
            job = self._running.latest(node_id, job_id)
        else:
            job = self._running.jobs.get(key_of(node_id, job_id, attempt))
        if job is None:
            self.outcomes[JobOutcome.PROGRESS_UNKNOWN] += 1
            return []
        self._running.note(job, event, now_ms)
        if partial:
            return [*self._placed(job), notice(job.assign, NoticeEvent.ASR_PARTIAL, partial)]
        # A client is not notified that its job was started.
        return [*self._placed(job), notice(job.assign, NoticeEvent.ACCEPTED)] if event is JobAction.ACCEPT else []

    def is_running(self, node_id: str, job_id: str, attempt: int) -> bool:
        """True if the node runs that attempt of the job."""
        return key_of(node_id, job_id, attempt) in self._running.jobs

    def on_result(self, report: ResultReport, payload: tuple[bytes, ...], now_ms: int) -> list[Effect]:
        """Buffer a result until acknowledged, and send it. A duplicate of an ended one is acknowledged to the node.

        `payload`: the parts of the node's message, forwarded as they are.

        PeerError if the node has too many unacked results of jobs that this edge did not assign to it.
        """
        key = key_of(report.node_id, report.job_id, report.attempt)
        ended = self._recent.how(key, now_ms)
        if ended in _ENDED:
            late = ended == _CANCELLED
            self.outcomes[JobOutcome.RESULT_LATE if late else JobOutcome.RESULT_REPEATED] += 1
            return [AckToNode(report.node_id, report.job_id, report.attempt)]
        if key in self.results:
            self.outcomes[JobOutcome.RESULT_REPEATED] += 1
            return []
        if report.node_id in self._detached.nodes:
            # The node cannot have that job from here: it was not written yet.
            self._detached.drop(report.node_id, key)
        job = self._drop(report.node_id, key)
        if job is None:
            self.outcomes[JobOutcome.RESULT_UNKNOWN] += 1
            if not self._unacked.accepts_unknown(report.node_id):
                self.outcomes[JobOutcome.RESULT_REFUSED] += 1
                raise PeerError(ErrorCode.SLOW_DOWN, "too many results of jobs that this node was not given here")
        result = unacked_result(self.edge, report, payload, job, now_ms)
        if evicted := self._unacked.add(key, result):
            self.outcomes[JobOutcome.RESULT_EVICTED] += len(evicted)
        return self._unacked.send(key, result, now_ms) if key in self.results else []

    def on_node_error(self, node_id: str, job_id: str | None, attempt: int | None, now_ms: int) -> list[Effect]:
        """The node cannot finish that job (without an attempt: any attempt at it), or any job (None)."""
        given_up = [
            job.assign
            for job in self._running.of(node_id).values()
            if job_id in (None, job.assign.job_id) and attempt in (None, job.assign.attempt)
        ]
        return [self._give_back(assign, AssignFailure.NODE_ERROR, now_ms) for assign in given_up]

    def on_jobs_reported(self, node_id: str, has: Set[str] | None, now_ms: int) -> list[Effect]:
        """A heartbeat with the keys (`key_of`) of the jobs that the node has (None = it does not report them).

        The node may have restarted, or its old socket may have closed with a job unread. A job that was just written
        to this socket may have crossed the heartbeat, so it is compared only after `job_named_ms`. A job that outlived
        its slot is abandoned even if the node reports it.
        """
        effects: list[Effect] = []
        for key, job in list(self._running.of(node_id).items()):
            age_ms = now_ms - job.written_ms
            is_comparable = job.unconfirmed or age_ms >= self.limits.job_named_ms
            if has is not None and is_comparable and key not in has:
                effects.append(self._give_back(job.assign, AssignFailure.JOB_LOST, now_ms))
            elif age_ms >= self.limits.job_age_ms_max:
                effects += [
                    self._give_back(job.assign, AssignFailure.JOB_LOST, now_ms),
                    stop(job.assign, StopReason.EXPIRED),
                ]
            job.unconfirmed = job.unconfirmed and has is None
        return effects

    def running_at(self, node_id: str, named: Iterable[tuple[str, int]]) -> list[str] | None:
        """The node's running jobs as lease members, for the audit of its slots: those it named and those known here.

        A job whose end no selector acknowledged counts: its slot is not free before. None if there are too many.
        """
        members = {
            lease_member(job_id, attempt)
            for job_id, attempt in named
            if key_of(node_id, job_id, attempt) not in self._recent
        }
        running = self._running.of(node_id).values()
        members.update(lease_member(job.assign.job_id, job.assign.attempt) for job in running)
        unacked = self._unacked.of_node(node_id)
        members.update(
            lease_member(result.push.job_id, result.push.attempt) for result in unacked if not result.is_finished
        )
        return sorted(members) if len(members) <= RUNNING_JOBS_MAX else None

    def node_detached(self, node_id: str, epoch: int, now_ms: int) -> None:
        """The node's last socket here closed; it may reattach within the grace."""
        self._detached.detach(node_id, epoch, now_ms, has_jobs=bool(self._running.of(node_id)))

    def node_reattached(self, node_id: str, now_ms: int) -> list[Effect]:
        """The node has another registered socket here. It has its jobs until a heartbeat proves otherwise."""
        for job in self._running.of(node_id).values():
            job.unconfirmed = job.interrupted = True
        buffered = self._detached.reattach(node_id)
        effects: list[Effect] = [self._write(job.assign, job.key, job.payload, now_ms) for job in buffered]
        drain = self._drains.nodes.get(node_id)
        return [SendControl(drain.control, drain.due_ms), *effects] if drain is not None else effects

    # --- acknowledgements ---------------------------------------------------------------------

    def on_ack(self, ack: ResultAck, now_ms: int) -> list[Effect]:
        """The session's edge, or a selector, acknowledges a result."""
        key = key_of(ack.node_id, ack.job_id, ack.attempt)
        result = self.results.get(key)
        if result is None or result.is_acked:
            return []
        if ack.verdict == _NO_SESSION:
            if result.session_edge and result.sends == 1:
                return [self._unacked.retry(key, now_ms)]  # that edge is not the owner any more: a selector finds it
            result.no_session_acks += 1
            if result.no_session_acks < self.limits.no_session_tries_max:
                return []  # the retry timer goes on; at the next retry the selector looks the owner up
        self.outcomes[ack.verdict] += 1
        self._recent.add(key, now_ms, _ACKNOWLEDGED)
        if result.is_finished:
            self._unacked.pop(key)
        else:
            self._unacked.acked(key)
        return [AckToNode(ack.node_id, ack.job_id, ack.attempt)]

    def on_finished_ack(self, job: FinishedJob) -> None:
        """A selector finished the job and released its slot."""
        key = key_of(job.node_id, job.job_id, job.attempt)
        result = self.results.get(key)
        if result is None:
            return
        result.is_finished = True
        if result.is_acked:
            self._unacked.pop(key)

    def on_push_returned(self, push: Push, now_ms: int) -> list[Effect]:
        """A broker could not deliver that result to the session's edge: send it by a selector."""
        key = key_of(push.node_id, push.job_id, push.attempt)
        result = self.results.get(key)
        if result is None or result.is_acked or result.sends > 1:
            return []
        return [self._unacked.retry(key, now_ms)]

    def on_finished_returned(self, finished: Finished) -> list[Effect]:
        """A broker could not deliver that Finished: its selector is gone. The retry timer covers a second failure."""
        result = self.results.get(key_of(finished.node_id, finished.job_id, finished.attempt))
        if result is None or result.is_finished or result.finish_sends > 1:
            return []
        result.finish_sends += 1
        return [SendFinished(result, to_cell=True)]

    def on_done_returned(self, frame: JobDone, retry_after_ms: int, now_ms: int) -> None:
        """A broker returned that JobDone undelivered."""
        self._unacked.on_returned(key_of(frame.node_id, frame.job_id, frame.attempt), retry_after_ms, now_ms)

    # --- time ---------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Effect]:
        """Retries and progress that are due, the jobs of nodes whose grace ended, and drains that end."""
        due: dict[TimerKind, list[str]] = {}
        for kind, key in self.timers.pop_due(now_ms):
            due.setdefault(kind, []).append(key)
        effects: list[Effect] = []
        # In this order: the end of a grace ends the node's drain and its jobs, and the end of a drain its jobs.
        for kind in TimerKind:
            if kind in due:
                effects += self._on_due[kind](due[kind], now_ms)
        return effects

    def _retry_results(self, keys: list[str], now_ms: int) -> list[Effect]:
        retries, expired = self._unacked.on_due(keys, now_ms)
        for key in expired:
            if not self.results[key].is_acked:
                self.outcomes[JobOutcome.RESULT_EXPIRED] += 1
            self._unacked.pop(key)
            self._recent.add(key, now_ms, _ACKNOWLEDGED)
        return retries

    def _end_graces(self, nodes: list[str], now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for node_id, buffered in self._detached.on_due(nodes):
            self._drains.stop(node_id)
            # Not NODE_ABSENT: the node may have reattached to another edge, and have the job still.
            effects += [assign_failed(job.assign, AssignFailure.NODE_GONE) for job in self._running.pop_node(node_id)]
            effects += [self._give_back(job.assign, AssignFailure.JOB_LOST, now_ms) for job in buffered]
        return effects

    def _report_drained(self, nodes: list[str], now_ms: int) -> list[Effect]:
        return [NodeDrained(node_id, 0) for node_id in nodes if node_id in self._drains.nodes]

    def _end_drains(self, nodes: list[str], now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for node_id in nodes:
            if node_id in self._drains.nodes:
                self._drains.stop(node_id)
                effects += self._hand_over(node_id, now_ms)
        return effects

    def _report_events(self, keys: list[str], now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for job, frame in self._running.on_due(keys):
            effects += [SendToJob(frame.job_id, frame), *self._placed(job)]
        return effects

    # --- inside -------------------------------------------------------------------------------

    def _write(self, assign: Assign, key: str, payload: Payload, now_ms: int) -> WriteJob:
        job, evicted = self._running.add(assign, key, now_ms)
        if evicted:
            self.outcomes[JobOutcome.JOB_EVICTED] += evicted
        return WriteJob(job, payload)

    def _placed(self, job: Job) -> list[SendToEdge]:
        """Notify the session's edge, once and before any other progress, that the node has the job."""
        if job.is_placed:
            return []
        job.is_placed = True
        return [SendToEdge(job.assign.session_edge, placed(job.assign))]

    def _drop(self, node_id: str, key: str) -> Job | None:
        job = self._running.pop(node_id, key)
        if job is not None and node_id in self._drains.nodes and not self._running.of(node_id):
            self._drains.has_no_job(node_id)
        return job

    def _give_back(self, assign: Assign, reason: AssignFailure, now_ms: int) -> SendToJob:
        """The node will not finish the job. A retried Assign gets the same reason: this frame may be lost."""
        key = key_of(assign.node_id, assign.job_id, assign.attempt)
        self._drop(assign.node_id, key)
        self._recent.add(key, now_ms, reason)
        return assign_failed(assign, reason)

    def _hand_over(self, node_id: str, now_ms: int) -> list[Effect]:
        """The deadline of a drain passed: the node's unfinished jobs go to other nodes."""
        unfinished = [job.assign for job in self._running.of(node_id).values()]
        buffered = [job.assign for job in self._detached.drop_all(node_id)]
        effects: list[Effect] = [
            self._give_back(assign, AssignFailure.DRAINED, now_ms) for assign in [*unfinished, *buffered]
        ]
        effects += [stop(assign, StopReason.DRAINED) for assign in unfinished]
        return [*effects, NodeDrained(node_id, len(unfinished) + len(buffered))]

    def check(self) -> None:
        """A job is buffered, running or an unacked result, and only one of these; all bounds hold."""
        self.timers.check()
        self._unacked.check()
        self._running.check()
        self._detached.check()
        self._drains.check()
        assert len(self._recent) <= self.limits.recent_max
        running, buffered = self._running.jobs.keys(), self._detached.keys()
        assert not (running & buffered or running & self.results.keys() or buffered & self.results.keys())
