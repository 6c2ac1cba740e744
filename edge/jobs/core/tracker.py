"""Deliveries: the jobs that the nodes of this edge run, and the results it keeps until they are acknowledged.

The node's side of custody (docs/adr/0006). Joins the table of running jobs, the jobs held for nodes that are away, the
nodes that are being drained, and the results that nobody acknowledged yet. A job is in one of these places at most.
Knows no sockets; whether a node is here, and with which epoch, is an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from edge.core.recent_keys import RecentKeys
from edge.core.timers import earliest
from edge.jobs.core import reconnect_grace, unacked_results
from edge.jobs.core.drains import Drains
from edge.jobs.core.job import (
    Effect,
    Job,
    NodeDrained,
    Payload,
    ResultReport,
    SendToEdge,
    SendToJob,
    StopJob,
    TellControl,
    TellNode,
    UnackedResult,
    WriteJob,
    done,
    failed,
    key_of,
    key_of_assign,
    notice,
    placed,
    stopped,
)
from edge.jobs.core.running_jobs import RunningJobs
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Assign, CancelJob, ControlNode, JobDone, ResultAck
from mesh.keys import lease_member
from mesh.states.job import RUNNING_JOBS_MAX, JobAction
from mesh.words import AssignFailure, NodeCommand, NoticeEvent, ResultVerdict, StopReason

_ACKNOWLEDGED: Final = "acknowledged"
_CANCELLED: Final = "cancelled"
#: Ends after which nothing more is to be said of a job.
_ENDED: Final = frozenset({_ACKNOWLEDGED, _CANCELLED})


class JobLimits(NamedTuple):
    """The bounds this core obeys, from the configuration."""

    kept: unacked_results.UnackedLimits
    away: reconnect_grace.GraceLimits
    no_session_tries_max: int
    jobs_per_node_max: int
    #: A job older than this has outlived its slot, and nobody waits for it.
    job_kept_ms: int
    #: A node that names its jobs has named one that it was given so long ago.
    job_named_ms: int
    ended_kept_max: int
    ended_kept_ms: int
    job_event_delay_ms: int


class JobTracker:
    """All jobs and unacknowledged results of this edge's nodes."""

    def __init__(self, edge: str, limits: JobLimits) -> None:
        self.edge = edge
        self.limits = limits
        #: What became of jobs and results, and which messages were of no use: outcome -> count.
        self.outcomes: Counter[str] = Counter()
        self._kept = unacked_results.UnackedResults(limits.kept)
        self._running = RunningJobs(limits.jobs_per_node_max, limits.job_event_delay_ms)
        self._away = reconnect_grace.ReconnectGrace(limits.away)
        self._draining = Drains()
        #: Jobs that ended, and how: with a result, by a cancellation, or given back to the mesh for that reason.
        self._memory = RecentKeys(limits.ended_kept_max, limits.ended_kept_ms)

    @property
    def results(self) -> Mapping[str, UnackedResult]:
        """The results that nobody acknowledged yet, oldest first."""
        return self._kept.results

    # --- jobs towards the node ----------------------------------------------------------------

    def on_assign(self, assign: Assign, payload: Payload, epoch: int | None, now_ms: int) -> list[Effect]:
        """Give the job to the node, whose connection here has that epoch (None = it is not here)."""
        key = key_of_assign(assign)
        if key in self.results:
            self._kept.hurry(key, now_ms)  # done already, and the mesh seems not to know
            return [SendToEdge(assign.session_edge, placed(assign))]
        how = self._memory.how(key)
        if how is not None:
            return [] if how in _ENDED else [failed(assign, how)]
        if key in self._running.of(assign.node_id):
            return [SendToEdge(assign.session_edge, placed(assign))]
        if self._away.holds(assign.node_id, key):
            return []
        had = self._away.had(assign.node_id, assign.node_epoch)
        if epoch == assign.node_epoch or (had and epoch is not None):
            return [self._write(assign, payload, now_ms)]
        if had and epoch is None and self._away.hold(reconnect_grace.HeldJob(assign, payload)):
            self.outcomes["job_held"] += 1
            return []
        return [failed(assign, AssignFailure.NODE_ABSENT)]

    def write_failed(self, assign: Assign) -> list[Effect]:
        """The node's socket did not take the job."""
        self._drop(assign.node_id, key_of_assign(assign))
        return [failed(assign, AssignFailure.NODE_STUCK)]

    def on_cancel(self, cancel: CancelJob, now_ms: int) -> list[Effect]:
        """Nobody waits for the job any more: an Assign that this overtook, or a late result, finds it ended."""
        key = key_of(cancel.node_id, cancel.job_id, cancel.attempt)
        self._drop(cancel.node_id, key)
        self._away.drop(cancel.node_id, key)
        if key not in self.results:
            self._memory.add(key, now_ms, _CANCELLED)
        return [StopJob(cancel)]

    def on_control(self, control: ControlNode, epoch: int | None, due_ms: int) -> list[Effect]:
        """An operator drains the node until `due_ms`, or takes that back. Disregarded unless the node is ours."""
        is_here = epoch is not None and epoch >= control.epoch
        if not is_here and not self._away.had(control.node_id, control.epoch):
            self.outcomes["control_stale"] += 1
            return []
        if control.command == NodeCommand.DRAIN:
            self._draining.start(control, due_ms)
            if not self._running.of(control.node_id) and control.node_id not in self._away:
                self._draining.has_no_job(control.node_id)
        else:
            self._draining.stop(control.node_id)
        return [TellControl(control, due_ms)]

    # --- what the node says -------------------------------------------------------------------

    def on_progress(
        self, node_id: str, job_id: str, attempt: int | None, event: JobAction, now_ms: int, partial: bytes = b""
    ) -> list[Effect]:
        """`event` is ACCEPT or START; an asr_partial is a START that names no attempt (then it is the latest)."""
        assignment = self._running.find(node_id, job_id, attempt)
        if assignment is None:
            self.outcomes["progress_unknown"] += 1
            return []
        self._running.progress.note(assignment, event, now_ms)
        if partial:
            return [notice(assignment.frame, NoticeEvent.ASR_PARTIAL, partial)]
        # That a job was started is shown to no client.
        return [notice(assignment.frame, NoticeEvent.ACCEPTED)] if event is JobAction.ACCEPT else []

    def on_result(self, report: ResultReport, text: bytes, now_ms: int) -> list[Effect]:
        """Keep a result and send it on its way. A repeat of one that ended is acknowledged to the node at once.

        PeerError if the node has too many results already of jobs that it was not given here.
        """
        key = key_of(report.node_id, report.job_id, report.attempt)
        how = self._memory.how(key)
        if how in _ENDED:
            self.outcomes["late" if how == _CANCELLED else "repeated"] += 1
            return [TellNode(report.node_id, report.job_id, report.attempt)]
        if key in self.results:
            self.outcomes["repeated"] += 1
            return []
        self._away.drop(report.node_id, key)  # it says so before it is back, of a job that it cannot have from us
        assignment = self._drop(report.node_id, key)
        if assignment is None:
            self.outcomes["job_unknown"] += 1
            if not self._kept.takes_unknown(report.node_id):
                self.outcomes["refused"] += 1
                raise PeerError(ErrorCode.SLOW_DOWN, "too many results of jobs that this node was not given here")
        frame = done(self.edge, report, assignment, now_ms)
        result = UnackedResult(frame, text, now_ms, known=assignment is not None)
        self.outcomes["shed"] += len(self._kept.add(key, result))
        return [self._kept.send(key, now_ms)] if key in self.results else []

    def on_node_error(self, node_id: str, job_id: str | None, attempt: int | None, now_ms: int) -> list[Effect]:
        """The node cannot finish that job (without an attempt: none of its attempts), or none of what it has."""
        wrong = [
            assignment.frame
            for assignment in self._running.of(node_id).values()
            if job_id in (None, assignment.frame.job_id) and attempt in (None, assignment.frame.attempt)
        ]
        return [self._give_back(frame, AssignFailure.NODE_ERROR, now_ms) for frame in wrong]

    def on_jobs(self, node_id: str, has: Set[str] | None, now_ms: int) -> list[Effect]:
        """A heartbeat, and the node's own word on which jobs it has, by `key_of` (None = it does not say).

        It may have restarted, or its old socket may have died with a job unread. A job that was written to this socket
        just now may have crossed the node's message, so it is compared only after a while. A job that outlived its
        slot is given up whatever the node says.
        """
        effects: list[Effect] = []
        for key, assignment in list(self._running.of(node_id).items()):
            age_ms = now_ms - assignment.written_ms
            is_due = assignment.in_doubt or age_ms >= self.limits.job_named_ms
            if has is not None and is_due and key not in has:
                effects.append(self._give_back(assignment.frame, AssignFailure.JOB_LOST, now_ms))
            elif age_ms >= self.limits.job_kept_ms:
                effects += [
                    self._give_back(assignment.frame, AssignFailure.JOB_LOST, now_ms),
                    stopped(assignment.frame, StopReason.EXPIRED),
                ]
            assignment.in_doubt = assignment.in_doubt and has is None
        return effects

    def jobs_of(self, node_id: str, named: Iterable[tuple[str, int]]) -> list[str] | None:
        """What runs at the node, for the audit of its slots: what it named and what we know of, as lease members.

        A job whose result nobody acknowledged counts: until then its slot is not free. None if it would be too much.
        """
        members = {
            lease_member(job_id, attempt)
            for job_id, attempt in named
            if key_of(node_id, job_id, attempt) not in self._memory
        }
        frames = [assignment.frame for assignment in self._running.of(node_id).values()]
        members.update(lease_member(frame.job_id, frame.attempt) for frame in frames)
        members.update(lease_member(result.done.job_id, result.done.attempt) for result in self._kept.of_node(node_id))
        return sorted(members) if len(members) <= RUNNING_JOBS_MAX else None

    def node_gone(self, node_id: str, epoch: int, now_ms: int) -> None:
        """The node's last socket here closed; it may come back within the grace."""
        self._away.gone(node_id, epoch, now_ms, has_jobs=bool(self._running.of(node_id)))

    def node_back(self, node_id: str, now_ms: int) -> list[Effect]:
        """The node has another registered socket here and keeps its jobs, unless it says that it does not."""
        for assignment in self._running.of(node_id).values():
            assignment.in_doubt = assignment.interrupted = True
        effects: list[Effect] = [self._write(job.assign, job.payload, now_ms) for job in self._away.back(node_id)]
        drain = self._draining.of(node_id)
        return [TellControl(drain.control, drain.due_ms), *effects] if drain is not None else effects

    # --- acknowledgements ---------------------------------------------------------------------

    def on_ack(self, ack: ResultAck, now_ms: int) -> list[Effect]:
        """A's word on a result."""
        key = key_of(ack.node_id, ack.job_id, ack.attempt)
        result = self.results.get(key)
        if result is None:
            return []
        if ack.verdict == ResultVerdict.NO_SESSION:
            result.no_session += 1
            if result.no_session < self.limits.no_session_tries_max:
                return []  # the resend timer runs on; the next one makes the selector look the owner up
        self._end(key, ack.verdict, now_ms)
        return [TellNode(result.done.node_id, ack.job_id, ack.attempt)]

    def sent(self, key: str, broker: str) -> None:
        """The rim's word on which broker took the last JobDone ("" = none is alive)."""
        self._kept.sent(key, broker)

    def given_back(self, frame: JobDone, retry_after_ms: int, now_ms: int) -> None:
        """A broker could not pass that JobDone on."""
        self._kept.came_back(key_of(frame.node_id, frame.job_id, frame.attempt), retry_after_ms, now_ms)

    # --- time ---------------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """When `tick` has something to do; None while nothing waits."""
        return earliest(
            (
                self._kept.next_due_ms(),
                self._away.next_due_ms(),
                self._running.progress.next_due_ms(),
                self._draining.next_due_ms(),
            )
        )

    def tick(self, now_ms: int) -> list[Effect]:
        """Resends and progress that are due, the jobs of nodes that did not come back, and drains that end."""
        again, expired = self._kept.pop_due(now_ms)
        effects: list[Effect] = [*again]
        for key in expired:
            self._end(key, "expired", now_ms)
        for node_id, held in self._away.pop_due(now_ms):
            self._draining.stop(node_id)
            # Not "node_absent": it may have come back to another edge, and have the job still.
            effects += [
                failed(assignment.frame, AssignFailure.NODE_GONE) for assignment in self._running.pop_node(node_id)
            ]
            effects += [self._give_back(job.assign, AssignFailure.JOB_LOST, now_ms) for job in held]
        effects += [NodeDrained(node_id, 0) for node_id in self._draining.pop_emptied()]
        for node_id in self._draining.pop_due(now_ms):
            effects += self._hand_over(node_id, now_ms)
        effects += [SendToJob(frame.job_id, frame) for frame in self._running.progress.pop_due(now_ms)]
        self._memory.forget(now_ms)
        return effects

    # --- inside -------------------------------------------------------------------------------

    def _write(self, assign: Assign, payload: Payload, now_ms: int) -> WriteJob:
        assignment, forgotten = self._running.add(assign, now_ms)
        self.outcomes["job_forgotten"] += forgotten
        self._running.progress.note(assignment, JobAction.DISPATCH, now_ms)
        return WriteJob(assign, payload, placed(assign))

    def _drop(self, node_id: str, key: str) -> Job | None:
        assignment = self._running.pop(node_id, key)
        if assignment is not None and not self._running.of(node_id):
            self._draining.has_no_job(node_id)
        return assignment

    def _give_back(self, assign: Assign, reason: AssignFailure, now_ms: int) -> SendToJob:
        """The node will not finish it. Remembered: the mesh may ask again because it did not hear this."""
        key = key_of_assign(assign)
        self._drop(assign.node_id, key)
        self._memory.add(key, now_ms, reason)
        self.outcomes[reason] += 1
        return failed(assign, reason)

    def _hand_over(self, node_id: str, now_ms: int) -> list[Effect]:
        """The time of a node that is drained is up: what it has not finished goes to others."""
        unfinished = [assignment.frame for assignment in self._running.of(node_id).values()]
        held = [job.assign for job in self._away.drop_all(node_id)]
        effects: list[Effect] = [
            self._give_back(assign, AssignFailure.DRAINED, now_ms) for assign in [*unfinished, *held]
        ]
        effects += [stopped(assign, StopReason.DRAINED) for assign in unfinished]
        return [*effects, NodeDrained(node_id, len(unfinished) + len(held))]

    def _end(self, key: str, outcome: str, now_ms: int) -> None:
        self._kept.pop(key)
        self._memory.add(key, now_ms, _ACKNOWLEDGED)
        self.outcomes[outcome] += 1

    def check(self) -> None:
        """A job is held, running or done, and only one of these; all bounds hold."""
        self._kept.check()
        self._running.check()
        self._away.check()
        self._draining.check()
        assert len(self._memory) <= self.limits.ended_kept_max
        running, held = self._running.keys(), self._away.keys()
        assert not (running & held or running & self.results.keys() or held & self.results.keys())
