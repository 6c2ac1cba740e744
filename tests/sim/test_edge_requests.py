"""Request tracker and job tracker joined by a bad mesh: loss, duplicates, delay, reordering, lost nodes, crashes.

The session's edge and the node's edges are the real cores. Between them stands a model of selectors and Redis: its
store changes at once, its messages may be lost. Results go directly between the edges, and by a selector if that fails;
acknowledgements are gathered, and lost as a whole. All randomness comes from the seed, which a failure names.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from edge.jobs.core import job as job_effects
from edge.jobs.core import reconnect_grace, unacked_results
from edge.jobs.core.tracker import JobLimits, JobTracker
from edge.requests.core import request
from edge.requests.core.retry import RetryLimits
from edge.requests.core.tracker import RequestTracker
from mesh.errors import ErrorCode
from mesh.frames import (
    Assign,
    AssignFailed,
    Cancel,
    CancelJob,
    Dispatch,
    Finished,
    FinishedJob,
    Frame,
    JobDone,
    JobEvent,
    Notice,
    Placed,
    Push,
    Refused,
    ResultAck,
    Undone,
    Waiting,
)
from mesh.link.gathered import Gathered
from mesh.messages.node import JobError, JobResult
from mesh.states.job import JobAction
from mesh.words import JobOutcome

FAULTS_UNTIL_MS = 4_000
END_MS = 200_000
GRACE_MS = 300
LATE_MS = 150
#: What a node writes in front of the request's id when it fails on it.
FAILED = b"!"
EDGES = ("b0", "b1")
EPOCH = 3
GATHER_MS = 5
#: Faults of the way of a result; every one has to occur.
FAULTS = frozenset(
    {
        "push lost",
        "push returned",
        "not the owner",
        "acks lost",
        "finished lost",
        "selector gone",
        "finished acks lost",
        "done lost",
        "done returned",
        "no session",
    }
)


@dataclass
class Job:
    """The store's record of a job."""

    job_id: str
    request: Dispatch
    node_id: str
    edge: str
    epoch: int
    finished: bool = False
    released: bool = False


@dataclass
class Node:
    """A node's process: where it is connected (None = nowhere) and which jobs it runs."""

    edge: str | None
    epoch: int
    jobs: dict[str, Assign] = field(default_factory=dict)


class World:
    """The simulation."""

    def __init__(
        self, seed: int, *, deadline_ms: int, attempts_max: int, utterances: int, hedge_percent: float = 0.0
    ) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = 0
        self.a = RequestTracker(RetryLimits(
            resend_ms=100, resend_ms_max=1_000, resend_early_ms_max=500, attempts_max=attempts_max,
            ended_kept_max=1_000, ended_kept_ms=30_000, pending_ms=10_000,
            dispatched_ms=6_000, hedge_percent=hedge_percent,
        ))  # fmt: skip
        limits = JobLimits(
            unacked_results.UnackedLimits(1_000, 1 << 20, 64, 100_000, 100, 1_000, 500),
            reconnect_grace.GraceLimits(GRACE_MS, 8, 16, 1 << 20, 8, 1 << 20),
            50, 64, 100_000, 15_000, 1_000, 30_000, 25,
        )  # fmt: skip
        self.b = {name: JobTracker(name, limits) for name in EDGES}
        self.bindings: dict[str, Job] = {}
        self.jobs: dict[str, Job] = {}
        self.nodes = {f"n{number}": Node(EDGES[number % 2], number + 1) for number in range(3)}
        self.epochs = 100
        self.ends: Counter[str] = Counter()
        self.hedges: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        self.runs: Counter[tuple[str, int]] = Counter()
        self.told: Counter[tuple[str, int, str]] = Counter()
        self.submitted: list[str] = []
        self.faults: Counter[str] = Counter()
        #: Acknowledgements of edge A and of the selectors that did not leave yet.
        self.acks = Gathered[ResultAck](4, GATHER_MS, lambda due_ms: self.at(due_ms, self.send_acks))
        self.finished_acks: dict[str, list[FinishedJob]] = {}
        #: Attempts with a result, and those whose end reached a selector.
        self.resulted: set[FinishedJob] = set()
        self.finished: set[FinishedJob] = set()
        for session_id in ("s0", "s1"):
            self.a.open_session(session_id)
        for number in range(utterances):
            self.at(self.random.randrange(0, 2_000), lambda number=number: self.submit(number, deadline_ms))
        for _ in range(self.random.randrange(0, 5)):
            self.at(self.random.randrange(0, FAULTS_UNTIL_MS), self.upset_node)

    # --- time and the network -----------------------------------------------------------------

    @property
    def faulty(self) -> bool:
        return self.now_ms < FAULTS_UNTIL_MS

    def at(self, due_ms: int, action: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self.queue, (due_ms, self.serial, action))

    def happens(self, fault: str, probability: float) -> bool:
        happened = self.faulty and self.random.random() < probability
        self.faults[fault] += happened
        return happened

    def carry(self, action: Callable[[], None], lost: str = "") -> None:
        """Take a message on its way. The sender does not learn that it is lost; `lost` counts it."""
        copies = 1
        if self.faulty:
            copies = self.random.choices((0, 1, 2), (0.25, 0.6, 0.15))[0]
        for _ in range(copies):
            delay_ms = self.random.randrange(1, 400 if self.faulty and self.random.random() < 0.2 else 5)
            self.at(self.now_ms + delay_ms, action)
        if lost and not copies:
            self.faults[lost] += 1

    def run(self) -> None:
        while self.now_ms < END_MS:
            dues = [self.a.table.timers.next_due_ms(), *(core.timers.next_due_ms() for core in self.b.values())]
            due_ms = min((due for due in dues if due is not None), default=END_MS)
            if self.queue and self.queue[0][0] <= due_ms:
                self.now_ms, _, action = heapq.heappop(self.queue)
                action()
            else:
                self.now_ms = max(self.now_ms, due_ms)
                self.do_a(self.a.tick(self.now_ms))
                for edge in EDGES:
                    self.do_b(edge, self.b[edge].tick(self.now_ms))
            self.check()

    def check(self) -> None:
        self.a.check()
        for core in self.b.values():
            core.check()
        assert all(count == 1 for count in self.ends.values()), "an utterance ended twice"

    # --- edge A -------------------------------------------------------------------------------

    def submit(self, number: int, deadline_ms: int) -> None:
        dispatch = Dispatch(
            request_id=f"r{number}",
            attempt=1,
            session_id=f"s{number % 2}",
            utterance_index=number,
            edge="a",
            tenant_id="",
            src_lang="en",
            tgt_lang="es",
            lang_a="",
            lang_b="",
            services=["asr"],
            public=True,
            audio_ms=100,
            deadline_ms=0,
            trace_id=f"t{number}",
        )
        self.submitted.append(dispatch.request_id)
        self.do_a(self.a.submit(dispatch, b"work", b"audio", self.now_ms + deadline_ms, self.now_ms))

    def do_a(self, effects: list[request.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, request.SendDispatch):
                frame = effect.request.frame(effect.attempt)
                fault = self.random.random() if self.faulty else 1.0
                if fault < 0.1:
                    self.carry(lambda frame=frame: self.do_a(self.a.on_busy(frame, 50, self.now_ms)))
                elif fault < 0.15:
                    self.carry(lambda frame=frame: self.do_a(self.a.on_bounce(frame, self.now_ms)))
                elif fault > 0.2:
                    self.carry(lambda frame=frame: self.on_dispatch(frame))
                effect.attempt.broker = "broker"
            elif isinstance(effect, request.SendCancel):
                self.carry(lambda cancel=effect.cancel: self.on_cancel(cancel))
            elif isinstance(effect, request.CountHedge):
                self.hedges[effect.outcome] += 1
            elif isinstance(effect, request.Deliver):
                self.ends[effect.request.request_id] += 1
                assert effect.result is not None and effect.result.text_asr == effect.request.request_id
                if effect.result.success:
                    self.delivered[effect.request.request_id] += 1
                    live = effect.request.attempt(effect.push.attempt)
                    assert live is not None, "the result of an attempt that was given up"
                self.ack(effect.push, "delivered")
            elif isinstance(effect, request.Fail):
                self.ends[effect.request.request_id] += 1
                assert isinstance(effect.code, ErrorCode)
            elif isinstance(effect, request.AckResult | request.Reject):
                self.ack(effect.push, effect.verdict)

    def ack(self, push: Push, verdict: str) -> None:
        """As a session whose client does not resume."""
        ack = ResultAck(push.node_id, push.job_id, push.attempt, verdict)
        full = self.acks.add(push.node_edge, ack, self.now_ms)
        if full is not None:
            self.carry_acks(push.node_edge, full)

    def send_acks(self) -> None:
        for edge, acks in self.acks.pop_all():
            self.carry_acks(edge, acks)

    def carry_acks(self, edge: str, acks: list[ResultAck]) -> None:
        def arrive() -> None:
            for ack in acks:
                self.do_b(edge, self.b[edge].on_ack(ack, self.now_ms))

        self.carry(arrive, lost="acks lost")

    def on_push(self, push: Push, text: bytes) -> None:
        """A result of the current owner; one that names a later owner is not delivered."""
        if push.session_epoch and self.happens("not the owner", 0.1):
            self.ack(push, "no_session")
        else:
            self.do_a(self.a.on_push(push, result_of(push, text), self.now_ms))

    def to_a(self, frame: Frame, *payload: bytes, lost: str = "") -> None:
        def arrive() -> None:
            if isinstance(frame, Placed):
                self.do_a(self.a.on_placed(frame, self.now_ms))
            elif isinstance(frame, Refused):
                self.do_a(self.a.on_refused(frame, self.now_ms))
            elif isinstance(frame, Undone):
                self.do_a(self.a.on_undone(frame, self.now_ms))
            elif isinstance(frame, Push):
                self.on_push(frame, payload[0])
            elif isinstance(frame, Waiting):
                self.do_a(self.a.on_waiting(frame, self.now_ms))
            else:
                assert isinstance(frame, Notice)

        self.carry(arrive, lost)

    # --- selectors and the store --------------------------------------------------------------

    def crashes(self) -> bool:
        """The selector dies after its commit: nothing of what it had to say gets out."""
        return self.faulty and self.random.random() < 0.1

    def on_dispatch(self, frame: Dispatch) -> None:
        job = self.bindings.get(frame.request_id)
        if job is None or job.request.attempt < frame.attempt:
            job = self.commit(frame)
            if job is None:
                answer: Frame = Refused(frame.request_id, frame.attempt, "NO_AVAILABLE_NODE", "full", {"full": 3}, 100)
                if self.random.random() < 0.5:
                    answer = Waiting(frame.request_id, frame.attempt, "full", 100)
                self.to_a(answer)
                return
        elif job.request.attempt > frame.attempt or job.finished:
            return
        if self.crashes():
            return
        if job.released:
            self.undo(job, "released", False)
            return
        assign = Assign(
            job.job_id, job.request.attempt, job.node_id, job.epoch, frame.request_id, frame.session_id,
            frame.utterance_index, "a", 0, frame.trace_id, late_after_ms=LATE_MS, session_epoch=EPOCH,
            selector="selector", sent_us=1, stages=[1] * 5,
        )  # fmt: skip
        self.carry(lambda: self.on_assign(job.edge, assign))

    def commit(self, frame: Dispatch) -> Job | None:
        alive = [name for name, node in self.nodes.items() if node.edge and name not in frame.excluded]
        if not alive or (self.faulty and self.random.random() < 0.1):
            return None
        node_id = self.random.choice(alive)
        node = self.nodes[node_id]
        assert node.edge is not None
        job = Job(f"job-00-{len(self.jobs)}", frame, node_id, node.edge, node.epoch)
        self.jobs[job.job_id] = self.bindings[frame.request_id] = job
        return job

    def undo(self, job: Job, reason: str, exclude: bool) -> None:
        job.released = True
        self.to_a(Undone(job.request.request_id, job.request.attempt, job.job_id, job.node_id, reason, exclude))

    def on_assign_failed(self, frame: AssignFailed) -> None:
        job = self.jobs[frame.job_id]
        if not job.finished:
            # Not excluded for ever: three nodes that each went once would leave none.
            self.undo(job, frame.reason, False)

    def on_finished(self, finished: Finished) -> None:
        self.finish_job(finished)

    def finish_job(self, finished: Finished) -> bool:
        """The job is finished, unless it was released before. True if this selector lives to reply."""
        job, ended = self.jobs[finished.job_id], FinishedJob(finished.node_id, finished.job_id, finished.attempt)
        assert ended in self.resulted
        if not job.released:
            job.finished = job.released = True
        if self.crashes():
            return False
        self.finished.add(ended)
        acks = self.finished_acks.setdefault(finished.node_edge, [])
        if not acks:
            self.at(self.now_ms + GATHER_MS, lambda: self.send_finished_acks(finished.node_edge))
        acks.append(ended)
        return True

    def send_finished_acks(self, edge: str) -> None:
        jobs = self.finished_acks.pop(edge)

        def arrive() -> None:
            for job in jobs:
                self.b[edge].on_finished_ack(job)

        self.carry(arrive, lost="finished acks lost")

    def on_done(self, done: JobDone, text: bytes) -> None:
        assert done.resend >= 1
        job, edge = self.jobs[done.job_id], done.node_edge
        forgotten = self.faulty and self.random.random() < 0.3  # the store lost it: the session's edge decides
        fenced = job.released and not job.finished
        lives = self.finish_job(Finished(done.job_id, done.attempt, done.node_id, edge, done.success))
        verdict = "fenced" if fenced and not forgotten else ""
        if not verdict and self.happens("no session", 0.1):
            verdict = "no_session"
        if verdict:
            if lives:
                self.carry_acks(edge, [ResultAck(done.node_id, done.job_id, done.attempt, verdict)])
            return
        if lives:
            push = Push(
                done.job_id, done.attempt, done.node_id, done.node_edge, done.request_id, done.session_id,
                done.utterance_index,
            )  # fmt: skip
            self.to_a(push, text)

    def on_cancel(self, cancelled: Cancel) -> None:
        job = self.jobs.get(cancelled.job_id)
        if job is None:
            bound = self.bindings.get(cancelled.request_id)
            job = bound if bound is not None and bound.request.attempt <= cancelled.attempt else None
        if job is None:
            return
        job.released = True
        cancel = CancelJob(job.job_id, job.request.attempt, job.node_id, "", "job_timeout")
        edge = job.edge
        self.carry(lambda: self.do_b(edge, self.b[edge].on_cancel(cancel, self.now_ms)))

    # --- edges B and the nodes ----------------------------------------------------------------

    def on_assign(self, edge: str, assign: Assign) -> None:
        node = self.nodes[assign.node_id]
        epoch = node.epoch if node.edge == edge else None
        payload = job_effects.Payload(b"work", b"audio")
        self.do_b(edge, self.b[edge].on_assign(assign, payload, epoch, self.now_ms))

    def do_b(self, edge: str, effects: list[job_effects.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, job_effects.WriteJob):
                self.write_job(edge, effect)
            elif isinstance(effect, job_effects.SendToEdge):
                self.to_a(effect.frame, *effect.payload)
            elif isinstance(effect, job_effects.SendToJob):
                self.to_job(effect.frame)
            elif isinstance(effect, job_effects.SendResult | job_effects.SendFinished | job_effects.SendDone):
                self.send_outcome(edge, effect)
            elif isinstance(effect, job_effects.StopJob):
                self.nodes[effect.cancel.node_id].jobs.pop(effect.cancel.job_id, None)

    def send_outcome(
        self, edge: str, effect: job_effects.SendResult | job_effects.SendFinished | job_effects.SendDone
    ) -> None:
        """The result, the end of its job, or both."""
        result, core = effect.result, self.b[edge]
        push, finished = result.push, result.finished
        self.resulted.add(FinishedJob(push.node_id, push.job_id, push.attempt))
        if isinstance(effect, job_effects.SendFinished):
            assert not result.is_finished
            if not effect.to_cell and self.happens("selector gone", 0.15):
                self.carry(lambda: self.do_b(edge, core.on_finished_returned(finished)))
            else:
                self.carry(lambda: self.on_finished(finished), lost="finished lost")
            return
        assert not result.is_acked
        (text,) = result.payload
        if isinstance(effect, job_effects.SendDone):
            result.broker = "broker"
            done = effect.done
            if self.happens("done returned", 0.15):
                self.carry(lambda: core.on_done_returned(done, 20, self.now_ms))
            else:
                self.carry(lambda: self.on_done(done, text), lost="done lost")
        elif self.happens("push returned", 0.15):
            self.carry(lambda: self.do_b(edge, core.on_push_returned(push, self.now_ms)))
        else:
            self.to_a(push, text, lost="push lost")

    def write_job(self, edge: str, effect: job_effects.WriteJob) -> None:
        assign = effect.job.assign
        effect.job.written_us = self.now_ms * 1_000
        if self.faulty and self.random.random() < 0.1:
            self.do_b(edge, self.b[edge].write_failed(assign))
            return
        self.runs[assign.job_id, assign.attempt] += 1
        self.nodes[assign.node_id].jobs[assign.job_id] = assign
        for event in (JobAction.ACCEPT, JobAction.START):
            self.at(self.now_ms + self.random.randrange(1, 100), lambda event=event: self.progress(assign, event))
        # One node fails now and then, another never speaks of a job again; the third is good, so there is a way.
        ill = self.faulty and self.random.random() < 0.3
        if ill and assign.node_id == "n1":
            return
        text = (FAILED if ill and assign.node_id == "n0" else b"") + assign.request_id.encode()
        self.at(self.now_ms + self.random.randrange(5, 500), lambda: self.finish(assign, text))

    def to_job(self, frame: JobEvent | AssignFailed) -> None:
        if isinstance(frame, AssignFailed):
            self.carry(lambda: self.on_assign_failed(frame))
            return
        words = frame.event.split()
        assert words == sorted(words, key=list(JobAction).index), "events are told in order"
        for word in words:
            self.told[frame.job_id, frame.attempt, word] += 1
            assert self.told[frame.job_id, frame.attempt, word] == 1, "each word is said once"

    def progress(self, assign: Assign, event: JobAction) -> None:
        node = self.nodes[assign.node_id]
        if node.edge is not None and assign.job_id in node.jobs:
            core = self.b[node.edge]
            effects = core.on_progress(assign.node_id, assign.job_id, assign.attempt, event, self.now_ms)
            self.do_b(node.edge, effects)

    def finish(self, assign: Assign, text: bytes) -> None:
        node = self.nodes[assign.node_id]
        if assign.job_id not in node.jobs:
            return
        if node.edge is None:
            self.at(self.now_ms + 50, lambda: self.finish(assign, text))  # it keeps the result until it is back
            return
        del node.jobs[assign.job_id]
        report = job_effects.ResultReport(
            assign.job_id, assign.attempt, assign.node_id, assign.session_id, assign.utterance_index, True
        )
        edge = node.edge
        self.do_b(edge, self.b[edge].on_result(report, (text,), self.now_ms))
        if self.faulty and self.random.random() < 0.2:
            self.do_b(edge, self.b[edge].on_result(report, (text,), self.now_ms))

    def upset_node(self) -> None:
        """A node loses its socket and keeps its jobs; or it dies with them, and is back soon or late."""
        name = self.random.choice(list(self.nodes))
        node = self.nodes[name]
        if node.edge is None:
            return
        old, node.edge = node.edge, None
        self.b[old].node_detached(name, node.epoch, self.now_ms)
        dies = self.random.random() < 0.5
        if dies:
            node.jobs.clear()

        def back() -> None:
            self.epochs += 1
            # Elsewhere only if it lost its jobs: what it would deliver there is tried in the unit tests.
            node.edge = self.random.choice(EDGES) if dies else old
            node.epoch = self.epochs
            self.do_b(node.edge, self.b[node.edge].node_reattached(name, self.now_ms))
            has = {job_effects.key_of(name, job.job_id, job.attempt) for job in node.jobs.values()}
            self.do_b(node.edge, self.b[node.edge].on_jobs_reported(name, has, self.now_ms))

        self.at(self.now_ms + (GRACE_MS * 3 if dies and self.random.random() < 0.5 else GRACE_MS // 2), back)


def check_results(world: World, seed: int) -> None:
    """Every result is acknowledged, and every end of a job; nothing is left over."""
    for core in world.b.values():
        assert not core.results and core._unacked.bytes == 0, f"seed {seed}: results are kept for ever"
        lost = {JobOutcome.RESULT_EXPIRED, JobOutcome.RESULT_EVICTED, "no_session"}
        assert not lost & core.outcomes.keys(), f"seed {seed}: a result is lost"
    assert not world.acks and not world.finished_acks, f"seed {seed}"
    assert world.finished == world.resulted, f"seed {seed}: a selector does not know of the end of a job"


def result_of(push: Push, text: bytes) -> JobResult:
    """What the session's edge reads in a result."""
    error = JobError(code="PROCESSING_ERROR", message="it broke") if text.startswith(FAILED) else None
    return JobResult(
        job_id=push.job_id, attempt_id=push.attempt, node_id=push.node_id, session_id=push.session_id,
        utterance_index=push.utterance_index, success=error is None, text_asr=text.lstrip(FAILED).decode(),
        error=error, trace_id="t",
    )  # fmt: skip


@pytest.mark.parametrize("block", range(10))
def test_every_utterance_ends_once_and_with_a_result_when_faults_stop(block: int) -> None:
    faults: Counter[str] = Counter()
    for seed in range(block * 30, block * 30 + 30):
        world = World(seed, deadline_ms=60_000, attempts_max=10_000, utterances=12)
        world.run()
        faults += world.faults
        assert set(world.delivered) == set(world.submitted), f"seed {seed}: {world.a.table.ended}"
        assert sum(world.ends.values()) == 12, f"seed {seed}"
        check_results(world, seed)
        assert max(world.runs.values()) == 1, f"seed {seed}: an attempt ran twice"
    assert faults.keys() == FAULTS, "every fault occurred"


@pytest.mark.parametrize("block", range(4))
def test_short_deadlines_and_few_attempts_still_end_each_utterance_once(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        world = World(seed, deadline_ms=700, attempts_max=2, utterances=12)
        world.run()
        assert sum(world.ends.values()) == 12 == world.a.table.ended.total(), f"seed {seed}"
        assert not world.a.requests and world.a.table.audio_bytes == 0, f"seed {seed}"
        assert max(world.runs.values()) == 1, f"seed {seed}: an attempt ran twice"
        check_results(world, seed)


@pytest.mark.parametrize("block", range(6))
def test_hedges_change_nothing_but_the_time(block: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(block * 30, block * 30 + 30):
        world = World(seed, deadline_ms=60_000, attempts_max=10_000, utterances=12, hedge_percent=50.0)
        world.run()
        assert set(world.delivered) == set(world.submitted), f"seed {seed}: {world.a.table.ended}"
        assert world.a.table.counts()["delivered"] == 12, f"seed {seed}"
        check_results(world, seed)
        assert world.hedges == world.a.hedge_budget.outcomes, f"seed {seed}: every outcome is told"
        outcomes += world.hedges
    assert {"won", "lost", "promoted", "refused", "over_budget"} <= set(outcomes), "the faults reach every way to end"


def test_lost_frame_of_acknowledgements_costs_a_retry_and_no_client_gets_a_result_twice() -> None:
    world = World(0, deadline_ms=60_000, attempts_max=10, utterances=0)
    world.queue.clear()
    core = world.b["b0"]
    for number in range(3):
        world.submit(number, 60_000)
        session_id = f"s{number % 2}"
        assign = Assign(f"job-00-{number}", 1, "n0", 1, f"r{number}", session_id, number, "a", 0, "t", selector="sel")
        core.on_assign(assign, job_effects.Payload(b"", b""), 1, 0)
        report = job_effects.ResultReport(assign.job_id, 1, "n0", session_id, number, True)
        core.on_result(report, (f"r{number}".encode(),), 1)
        core.on_finished_ack(FinishedJob("n0", assign.job_id, 1))
    for result in list(core.results.values()):
        world.do_a(world.a.on_push(result.push, result_of(result.push, *result.payload), 2))
    ((edge, _),) = world.acks.pop_all()
    assert edge == "b0" and len(core.results) == 3, "that frame is lost"
    retries = [effect for effect in core.tick(200) if isinstance(effect, job_effects.SendDone)]
    assert len(retries) == 3
    for effect in retries:
        push = effect.result.push
        world.do_a(world.a.on_push(push, result_of(push, *effect.result.payload), 201))
    ((_, acks),) = world.acks.pop_all()
    assert [ack.verdict for ack in acks] == ["duplicate"] * 3
    for ack in acks:
        core.on_ack(ack, 202)
    core.check()
    assert not core.results and set(world.delivered.values()) == {1} == set(world.ends.values())


def test_the_same_seed_gives_the_same_story() -> None:
    stories = []
    for _ in range(2):
        world = World(7, deadline_ms=60_000, attempts_max=10, utterances=12)
        world.run()
        stories.append((world.serial, world.a.table.ended, world.faults))
    assert stories[0] == stories[1]
