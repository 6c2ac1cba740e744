"""Deliveries: the jobs that the nodes of this edge run, and the results it keeps until they are acknowledged.

The node's side of custody (docs/adr/0006). Owns the table of assignments per node, which outlives a node's
socket so that a result sent after a reconnect still finds its job, and the results that nobody acknowledged yet.
Knows no sockets; whether a node is here, and with which epoch, is an argument.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Set
from typing import NamedTuple

import msgspec

from edge.core.assignment import (
    Assignment,
    Effect,
    Report,
    Result,
    SendDone,
    SendToEdge,
    SendToJob,
    StopJob,
    TellNode,
    WriteJob,
    failed,
    key_of,
    notice,
    placed,
)
from edge.core.kept import Kept
from edge.core.memory import Memory
from edge.core.progress import Progress
from edge.core.timers import Timers, earliest, resend_wait_ms
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Assign, CancelJob, JobDone, ResultAck
from mesh.jobs import Event


class Limits(NamedTuple):
    """The bounds this core obeys, from the configuration."""

    resend_ms: int
    resend_ms_max: int
    #: Between the first few repeats: half of the time in which the mesh notices a peer that hangs.
    resend_early_ms_max: int
    results_max: int
    results_bytes_max: int
    unknown_results_per_node_max: int
    #: A result older than this belongs to a job that the mesh has forgotten.
    result_kept_ms: int
    no_session_tries_max: int
    jobs_per_node_max: int
    reconnect_grace_ms: int
    ended_kept_max: int
    ended_kept_ms: int
    job_event_delay_ms: int


class Deliveries:
    """All jobs and unacknowledged results of this edge's nodes."""

    def __init__(self, edge: str, limits: Limits) -> None:
        self.edge = edge
        self.limits = limits
        #: What became of results, and which messages were of no use: outcome -> count.
        self.outcomes: Counter[str] = Counter()
        self._kept = Kept(limits.results_max, limits.results_bytes_max, limits.unknown_results_per_node_max)
        self._nodes: dict[str, OrderedDict[str, Assignment]] = {}
        self._resends: Timers[str] = Timers()
        self._graces: Timers[str] = Timers()
        self._progress = Progress(limits.job_event_delay_ms)
        self._memory = Memory(limits.ended_kept_max, limits.ended_kept_ms)

    @property
    def results(self) -> Mapping[str, Result]:
        """The results that nobody acknowledged yet, oldest first."""
        return self._kept.results

    # --- jobs towards the node ----------------------------------------------------------------

    def on_assign(self, assign: Assign, epoch: int | None, now_ms: int) -> list[Effect]:
        """Give the job to the node, whose connection here has that epoch (None = it is not here)."""
        key = key_of(assign.node_id, assign.job_id, assign.attempt)
        if key in self.results:
            self._resends.set(key, now_ms)  # done already, and the mesh seems not to know
            return [SendToEdge(assign.session_edge, placed(assign))]
        if key in self._memory:
            return []
        if key in self._nodes.get(assign.node_id, ()):
            return [SendToEdge(assign.session_edge, placed(assign))]
        if epoch != assign.node_epoch:
            return [failed(assign, "node_absent")]
        self._progress.note(self._remember(assign), Event.DISPATCH, now_ms)
        return [WriteJob(assign, placed(assign))]

    def write_failed(self, assign: Assign) -> list[Effect]:
        """The node's socket did not take the job."""
        self._drop(assign.node_id, key_of(assign.node_id, assign.job_id, assign.attempt))
        return [failed(assign, "node_stuck")]

    def on_cancel(self, cancel: CancelJob, now_ms: int) -> list[Effect]:
        """Nobody waits for the job any more: an Assign that this overtook, or a late result, finds it ended."""
        key = key_of(cancel.node_id, cancel.job_id, cancel.attempt)
        self._drop(cancel.node_id, key)
        if key not in self.results:
            self._memory.add(key, now_ms)
        return [StopJob(cancel)]

    # --- what the node says -------------------------------------------------------------------

    def on_progress(
        self, node_id: str, job_id: str, attempt: int | None, event: Event, now_ms: int, partial: bytes = b""
    ) -> list[Effect]:
        """`event` is ACCEPT or START; an asr_partial is a START that names no attempt (then it is the latest)."""
        assignment = self._find(node_id, job_id, attempt)
        if assignment is None:
            self.outcomes["progress_unknown"] += 1
            return []
        self._progress.note(assignment, event, now_ms)
        if partial:
            return [notice(assignment.frame, "asr_partial", partial)]
        # That a job was started is shown to no client.
        return [notice(assignment.frame, "accepted")] if event is Event.ACCEPT else []

    def on_result(self, report: Report, text: bytes, now_ms: int) -> list[Effect]:
        """Keep a result and send it on its way. A repeat of one that ended is acknowledged to the node at once.

        PeerError if the node has too many results already of jobs that it was not given here.
        """
        key = key_of(report.node_id, report.job_id, report.attempt)
        if key in self._memory:
            self.outcomes["repeated"] += 1
            return [TellNode(report.node_id, report.job_id, report.attempt)]
        if key in self.results:
            self.outcomes["repeated"] += 1
            return []
        assignment = self._find(report.node_id, report.job_id, report.attempt)
        self._drop(report.node_id, key)
        if assignment is None:
            self.outcomes["job_unknown"] += 1
            if not self._kept.takes_unknown(report.node_id):
                self.outcomes["refused"] += 1
                raise PeerError(ErrorCode.SLOW_DOWN, "too many results of jobs that this node was not given here")
        result = Result(self._done(report, assignment), text, now_ms, known=assignment is not None)
        for shed in self._kept.add(key, result):
            self._resends.drop(shed)
            self.outcomes["shed"] += 1
        return [self._send(key, result, now_ms)] if key in self.results else []

    def node_gone(self, node_id: str, now_ms: int) -> None:
        """The node's last socket here closed; it may come back within the grace."""
        if node_id in self._nodes:
            self._graces.set(node_id, now_ms + self.limits.reconnect_grace_ms)

    def node_back(self, node_id: str) -> None:
        """The node has another registered socket here and keeps its jobs, unless it says that it does not."""
        self._graces.drop(node_id)
        for assignment in self._nodes.get(node_id, {}).values():
            assignment.in_doubt = True

    def on_jobs(self, node_id: str, has: Set[str]) -> list[Effect]:
        """The node's own word on which jobs it has, by `key_of`.

        It may have restarted, or its old socket may have died with a job unread. Only jobs of an earlier socket are
        compared: one that was just written to this socket may have crossed the node's message.
        """
        jobs = self._nodes.get(node_id, OrderedDict())
        in_doubt = [(key, assignment) for key, assignment in jobs.items() if assignment.in_doubt]
        effects: list[Effect] = []
        for key, assignment in in_doubt:
            assignment.in_doubt = False
            if key not in has:
                self._drop(node_id, key)
                self.outcomes["job_lost"] += 1
                effects.append(failed(assignment.frame, "job_lost"))
        return effects

    # --- acknowledgements ---------------------------------------------------------------------

    def on_ack(self, ack: ResultAck, now_ms: int) -> list[Effect]:
        """A's word on a result."""
        key = key_of(ack.node_id, ack.job_id, ack.attempt)
        result = self.results.get(key)
        if result is None:
            return []
        if ack.verdict == "no_session":
            result.no_session += 1
            if result.no_session < self.limits.no_session_tries_max:
                return []  # the resend timer runs on; the next one makes the selector look the owner up
        self._end(key, ack.verdict, now_ms)
        return [TellNode(result.done.node_id, ack.job_id, ack.attempt)]

    def sent(self, key: str, broker: str) -> None:
        """The rim's word on which broker took the last JobDone ("" = none is alive)."""
        result = self.results.get(key)
        if result is not None:
            result.broker = broker

    def given_back(self, done: JobDone, retry_after_ms: int, now_ms: int) -> None:
        """A broker could not pass that JobDone on: try again sooner than if it had been lost."""
        key = key_of(done.node_id, done.job_id, done.attempt)
        result = self.results.get(key)
        if result is not None:
            wait_ms = max(retry_after_ms, self.limits.resend_ms // 4)
            self._resends.set(key, now_ms + self._wait_ms(wait_ms or 1, result.sends - 1))

    # --- time ---------------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """When `tick` has something to do; None while nothing waits."""
        return earliest((self._resends.next_due_ms(), self._graces.next_due_ms(), self._progress.next_due_ms()))

    def tick(self, now_ms: int) -> list[Effect]:
        """Resends and progress that are due, and the jobs of nodes that did not come back."""
        effects: list[Effect] = []
        for key in self._resends.pop_due(now_ms):
            result = self.results[key]
            if now_ms - result.received_ms >= self.limits.result_kept_ms:
                self._end(key, "expired", now_ms)
            else:
                effects.append(self._send(key, result, now_ms))
        for node_id in self._graces.pop_due(now_ms):
            for key, assignment in self._nodes.pop(node_id).items():
                self._progress.drop(key)
                # Not "node_absent": it may have come back to another edge, and have the job still.
                effects.append(failed(assignment.frame, "node_gone"))
        effects += [SendToJob(frame.job_id, frame) for frame in self._progress.pop_due(now_ms)]
        self._memory.forget(now_ms)
        return effects

    # --- inside -------------------------------------------------------------------------------

    def _remember(self, assign: Assign) -> Assignment:
        jobs = self._nodes.setdefault(assign.node_id, OrderedDict())
        assignment = jobs[key_of(assign.node_id, assign.job_id, assign.attempt)] = Assignment(assign)
        while len(jobs) > self.limits.jobs_per_node_max:
            self._progress.drop(jobs.popitem(last=False)[0])
            self.outcomes["job_forgotten"] += 1
        return assignment

    def _find(self, node_id: str, job_id: str, attempt: int | None) -> Assignment | None:
        jobs = self._nodes.get(node_id)
        if not jobs:
            return None
        if attempt is not None:
            return jobs.get(key_of(node_id, job_id, attempt))
        latest = [assignment for assignment in jobs.values() if assignment.frame.job_id == job_id]
        return max(latest, key=lambda assignment: assignment.frame.attempt, default=None)

    def _drop(self, node_id: str, key: str) -> None:
        jobs = self._nodes.get(node_id)
        if jobs is None or jobs.pop(key, None) is None:
            return
        self._progress.drop(key)
        if not jobs:
            del self._nodes[node_id]
            self._graces.drop(node_id)

    def _done(self, report: Report, assignment: Assignment | None) -> JobDone:
        # What we were told when the job was assigned counts, not what the node repeats.
        frame = assignment.frame if assignment is not None else None
        return JobDone(
            job_id=report.job_id,
            attempt=report.attempt,
            node_id=report.node_id,
            node_edge=self.edge,
            request_id=frame.request_id if frame else "",
            session_id=frame.session_id if frame else report.session_id,
            utterance_index=frame.utterance_index if frame else report.utterance_index,
            session_edge=frame.session_edge if frame else "",
            success=report.success,
            # Whose session it is must be looked up at once, as if this were a repeat.
            resend=0 if frame else 1,
        )

    def _send(self, key: str, result: Result, now_ms: int) -> SendDone:
        self._resends.set(key, now_ms + self._wait_ms(self.limits.resend_ms, result.sends))
        done = result.done
        if result.sends:
            done = msgspec.structs.replace(done, resend=done.resend + result.sends)
        result.sends += 1
        return SendDone(key, done, result.text, result.broker if result.sends > 1 else "")

    def _wait_ms(self, first_ms: int, tries: int) -> int:
        return resend_wait_ms(first_ms, tries, self.limits.resend_early_ms_max, self.limits.resend_ms_max)

    def _end(self, key: str, outcome: str, now_ms: int) -> None:
        self._kept.pop(key)
        self._resends.drop(key)
        self._memory.add(key, now_ms)
        self.outcomes[outcome] += 1

    def check(self) -> None:
        """Every kept result has a timer; nothing is both running and done; all bounds hold."""
        self._kept.check()
        assert len(self._resends) == len(self.results)
        assert len(self._memory) <= self.limits.ended_kept_max
        untold = {key for jobs in self._nodes.values() for key, assignment in jobs.items() if assignment.untold}
        assert len(untold) == len(self._progress) and all(key in self._progress for key in untold)
        for node_id, jobs in self._nodes.items():
            assert 0 < len(jobs) <= self.limits.jobs_per_node_max, node_id
            assert not jobs.keys() & self.results.keys()
