"""Nodes that crash, detach, reattach, fail and are drained, around the real job tracker of one edge.

The mesh is a model that retries every Assign and accepts the first result of the current attempt; frames are lost,
duplicated, returned and reordered. The session's edge acknowledges results, selectors the ends of jobs, both gathered:
a frame with many acknowledgements is lost as a whole. Some nodes name their jobs in heartbeats, some do not, as the
original's. All randomness comes from the seed, which a failure names.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from edge.jobs.core import job as job_effects
from edge.jobs.core import reconnect_grace, tracker, unacked_results
from mesh.frames import (
    Assign,
    AssignFailed,
    CancelJob,
    ControlNode,
    Finished,
    FinishedJob,
    JobDone,
    Placed,
    Push,
    ResultAck,
)
from mesh.keys import lease_member
from mesh.link.gathered import Gathered
from mesh.words import JobOutcome

FAULTS_UNTIL_MS = 6_000
END_MS = 60_000
GRACE_MS = 300
NAMED_MS = 1_000
AGE_MS_MAX = 5_000
LIMITS = tracker.JobLimits(
    unacked=unacked_results.UnackedLimits(1_000, 1 << 20, 64, 100_000, 100, 1_000, 500),
    grace=reconnect_grace.GraceLimits(
        GRACE_MS, 8, jobs_max=6, bytes_max=1 << 10, jobs_per_node_max=3, bytes_per_node_max=1 << 9
    ),
    no_session_tries_max=50,
    jobs_per_node_max=64,
    job_age_ms_max=AGE_MS_MAX,
    job_named_ms=NAMED_MS,
    recent_max=1_000,
    recent_ms=30_000,
    job_event_delay_ms=25,
)
PAYLOAD = job_effects.Payload(b"work", b"audio" * 20)
TEXT = (b"text", b"audio")
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
    """The mesh's view of one job."""

    job_id: str
    attempt: int = 0
    node_id: str = ""
    epoch: int = 0
    done: bool = False


@dataclass
class Node:
    """A node's process. `runs` and `unacknowledged` survive its socket, unless it crashes."""

    names_jobs: bool
    epoch: int
    connected: bool = True
    since_ms: int = 0
    runs: set[tuple[str, int]] = field(default_factory=set)
    unacknowledged: set[tuple[str, int]] = field(default_factory=set)


class World:
    """The simulation."""

    def __init__(self, seed: int, jobs: int = 25) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = 0
        self.core = tracker.JobTracker("b", LIMITS)
        self.nodes = {f"n{number}": Node(number % 2 == 0, number + 1) for number in range(4)}
        self.epochs = 100
        self.jobs = [Job(f"job-00-{number}") for number in range(jobs)]
        self.by_id = {job.job_id: job for job in self.jobs}
        self.delivered: Counter[str] = Counter()
        self.writes: dict[tuple[str, str, int], int] = {}
        self.reasons: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        #: Acknowledgements of the session's edge and of the selectors that did not leave yet.
        self.acks = Gathered[ResultAck](8, GATHER_MS, lambda due_ms: self.at(due_ms, self.send_acks))
        self.finished_acks: list[FinishedJob] = []
        #: Attempts with a result, and those whose end reached a selector.
        self.resulted: set[FinishedJob] = set()
        self.finished: set[FinishedJob] = set()
        for job in self.jobs:
            self.at(self.random.randrange(0, 4_000), lambda job=job: self.place(job))
        for name in self.nodes:
            self.at(self.random.randrange(1, NAMED_MS), lambda name=name: self.heartbeat(name))
        for action, times in ((self.disconnect, 8), (self.fail_jobs, 3), (self.drain, 3), (self.cancel, 4)):
            for _ in range(self.random.randrange(0, times)):
                self.at(self.random.randrange(0, FAULTS_UNTIL_MS), action)

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
        copies = self.random.choices((0, 1, 2), (0.2, 0.65, 0.15))[0] if self.faulty else 1
        if lost and not copies:
            self.faults[lost] += 1
        for _ in range(copies):
            late = self.faulty and self.random.random() < 0.2
            self.at(self.now_ms + self.random.randrange(1, 400 if late else 5), action)

    def run(self) -> None:
        while self.now_ms < END_MS:
            due_ms = self.core.timers.next_due_ms()
            if self.queue and (due_ms is None or self.queue[0][0] <= due_ms):
                self.now_ms, _, action = heapq.heappop(self.queue)
                action()
            else:
                self.now_ms = max(self.now_ms, END_MS if due_ms is None else due_ms)
                self.do(self.core.tick(self.now_ms))
            self.core.check()

    # --- the mesh -----------------------------------------------------------------------------

    def place(self, job: Job) -> None:
        """Select a node, also a detached one; retry until there is a result."""
        if job.done:
            return
        if not job.node_id:
            job.attempt += 1
            job.node_id = self.random.choice(list(self.nodes))
            job.epoch = self.nodes[job.node_id].epoch
        frame = Assign(
            job.job_id, job.attempt, job.node_id, job.epoch, f"r-{job.job_id}", "s", 0, "a", 0, "t", "zh>en", 1_000,
            late_after_ms=500, session_epoch=3, selector="selector", sent_us=1, stages=[1] * 5,
        )  # fmt: skip
        self.carry(lambda: self.on_assign(frame))
        self.at(self.now_ms + 400, lambda: self.place(job))

    def on_assign(self, frame: Assign) -> None:
        node = self.nodes[frame.node_id]
        epoch = node.epoch if node.connected else None
        self.do(self.core.on_assign(frame, PAYLOAD, epoch, self.now_ms))

    def on_failed(self, frame: AssignFailed) -> None:
        job = self.by_id[frame.job_id]
        self.reasons[frame.reason] += 1
        if job.attempt == frame.attempt:
            job.node_id = ""  # the next attempt goes to any node

    def on_push(self, push: Push) -> None:
        """At the session's edge."""
        assert push.session_epoch == 3 and len(push.stages) == 7
        if self.happens("not the owner", 0.1):
            self.acknowledge(push, "no_session")
        else:
            self.deliver(push)

    def on_finished(self, finished: Finished) -> None:
        """At a selector."""
        job = FinishedJob(finished.node_id, finished.job_id, finished.attempt)
        assert job in self.resulted
        self.finished.add(job)
        if not self.finished_acks:
            self.at(self.now_ms + GATHER_MS, self.send_finished_acks)
        self.finished_acks.append(job)

    def on_done(self, done: JobDone) -> None:
        """At a selector, which finishes the job and finds the owner."""
        assert done.resend >= 1
        self.on_finished(Finished(done.job_id, done.attempt, done.node_id, done.node_edge, done.success))
        if self.happens("no session", 0.1):
            self.acknowledge(done, "no_session")
        else:
            self.deliver(done)

    def deliver(self, frame: Push | JobDone) -> None:
        job = self.by_id[frame.job_id]
        is_current = (job.attempt, job.node_id) == (frame.attempt, frame.node_id)
        if is_current and not job.done:
            job.done = True
            self.delivered[job.job_id] += 1
            assert frame.request_id in ("", f"r-{job.job_id}")
        self.acknowledge(frame, "delivered" if is_current else "fenced")

    def acknowledge(self, frame: Push | JobDone, verdict: str) -> None:
        full = self.acks.add("b", ResultAck(frame.node_id, frame.job_id, frame.attempt, verdict), self.now_ms)
        if full is not None:
            self.carry_acks(full)

    def send_acks(self) -> None:
        for _, acks in self.acks.pop_all():
            self.carry_acks(acks)

    def carry_acks(self, acks: list[ResultAck]) -> None:
        def arrive() -> None:
            for ack in acks:
                self.do(self.core.on_ack(ack, self.now_ms))
                self.core.check()

        self.carry(arrive, lost="acks lost")

    def send_finished_acks(self) -> None:
        jobs, self.finished_acks = self.finished_acks, []

        def arrive() -> None:
            for job in jobs:
                self.core.on_finished_ack(job)
                self.core.check()

        self.carry(arrive, lost="finished acks lost")

    def cancel(self) -> None:
        """The attempt took too long: it is cancelled, and the next one goes to any node."""
        job = self.random.choice(self.jobs)
        if job.node_id and not job.done:
            frame = CancelJob(job.job_id, job.attempt, job.node_id, "t", "job_timeout")
            job.node_id = ""
            self.carry(lambda: self.do(self.core.on_cancel(frame, self.now_ms)))

    def drain(self) -> None:
        name = self.random.choice(list(self.nodes))
        node = self.nodes[name]
        due_ms = self.now_ms + self.random.randrange(0, 1_500)
        frame = ControlNode(name, node.epoch, "drain", "test", 0)
        self.do(self.core.on_control(frame, node.epoch if node.connected else None, due_ms))
        if self.random.random() < 0.5:
            resume = ControlNode(name, 0, "resume", "", 0)
            self.at(
                self.now_ms + 300,
                lambda: self.do(self.core.on_control(resume, node.epoch if node.connected else None, 0)),
            )

    # --- the edge's effects -------------------------------------------------------------------

    def do(self, effects: list[job_effects.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, job_effects.WriteJob):
                self.write(effect)
            elif isinstance(effect, job_effects.SendToJob) and isinstance(effect.frame, AssignFailed):
                self.carry(lambda frame=effect.frame: self.on_failed(frame))
            elif isinstance(effect, job_effects.SendToEdge):
                if isinstance(effect.frame, Placed):
                    assert effect.frame.late_after_ms == 500
            elif isinstance(effect, job_effects.SendResult | job_effects.SendFinished | job_effects.SendDone):
                self.send_outcome(effect)
            elif isinstance(effect, job_effects.StopJob):
                stop = effect.cancel
                self.nodes[stop.node_id].runs.discard((stop.job_id, stop.attempt))
            elif isinstance(effect, job_effects.AckToNode):
                self.nodes[effect.node_id].unacknowledged.discard((effect.job_id, effect.attempt))

    def send_outcome(self, effect: job_effects.SendResult | job_effects.SendFinished | job_effects.SendDone) -> None:
        """The result, the end of its job, or both."""
        result = effect.result
        push, finished = result.push, result.finished
        self.resulted.add(FinishedJob(push.node_id, push.job_id, push.attempt))
        if isinstance(effect, job_effects.SendFinished):
            assert not result.is_finished
            if not effect.to_cell and self.happens("selector gone", 0.15):
                self.carry(lambda: self.do(self.core.on_finished_returned(finished)))
            else:
                self.carry(lambda: self.on_finished(finished), lost="finished lost")
            return
        assert not result.is_acked and result.payload == TEXT
        if isinstance(effect, job_effects.SendDone):
            result.broker = "broker"
            done = effect.done
            if self.happens("done returned", 0.15):
                self.carry(lambda: self.core.on_done_returned(done, 20, self.now_ms))
            else:
                self.carry(lambda: self.on_done(done), lost="done lost")
        elif self.happens("push returned", 0.15):
            self.carry(lambda: self.do(self.core.on_push_returned(push, self.now_ms)))
        else:
            self.carry(lambda: self.on_push(push), lost="push lost")

    def write(self, effect: job_effects.WriteJob) -> None:
        frame = effect.job.assign
        effect.job.written_us = self.now_ms * 1_000
        node = self.nodes[frame.node_id]
        assert node.connected, "written to a closed socket"
        assert effect.payload == PAYLOAD
        if self.faulty and self.random.random() < 0.05:
            self.do(self.core.write_failed(frame))
            return
        key = (frame.node_id, frame.job_id, frame.attempt)
        assert key not in self.writes, "an attempt is written twice"
        self.writes[key] = self.now_ms
        epoch = node.epoch

        def arrive() -> None:
            if node.connected and node.epoch == epoch:  # otherwise it died unread with its socket
                node.runs.add(key[1:])
                self.at(self.now_ms + self.random.randrange(5, 600), lambda: self.finish(*key))

        self.at(self.now_ms + self.random.randrange(1, 10), arrive)

    # --- nodes --------------------------------------------------------------------------------

    def finish(self, name: str, job_id: str, attempt: int) -> None:
        node = self.nodes[name]
        if (job_id, attempt) in node.runs:
            node.runs.remove((job_id, attempt))
            node.unacknowledged.add((job_id, attempt))
            if node.connected:
                self.send_result(name, job_id, attempt)

    def send_result(self, name: str, job_id: str, attempt: int) -> None:
        report = job_effects.ResultReport(job_id, attempt, name, "s", 0, True)
        self.do(self.core.on_result(report, TEXT, self.now_ms))

    def heartbeat(self, name: str) -> None:
        if self.nodes[name].connected:
            self.send_heartbeat(name)
        self.at(self.now_ms + NAMED_MS, lambda: self.heartbeat(name))

    def send_heartbeat(self, name: str) -> None:
        node = self.nodes[name]
        named = sorted(node.runs) if node.names_jobs else []
        has = {job_effects.key_of(name, *job) for job in named} if node.names_jobs else None
        self.do(self.core.on_jobs_reported(name, has, self.now_ms))
        reported = self.core.running_at(name, named)
        assert reported is not None
        self.audit(name, set(reported))

    def audit(self, name: str, reported: set[str]) -> None:
        """Every running job that is wanted is reported; a job that does not run is not reported for long."""
        node = self.nodes[name]
        for job_id, attempt in node.runs:
            job = self.by_id[job_id]
            wanted = not job.done and (job.attempt, job.node_id) == (attempt, name)
            ended = job_effects.key_of(name, job_id, attempt) in self.core._recent
            assert lease_member(job_id, attempt) in reported or not wanted or ended
        running = {lease_member(*job) for job in node.runs}
        unfinished = {
            lease_member(result.push.job_id, result.push.attempt)
            for result in self.core.results.values()
            if result.push.node_id == name and not result.is_finished
        }
        assert unfinished <= reported, "no slot is free before a selector knows of the end"
        # Of a node that names its jobs, only a job that may have crossed its heartbeat on this socket.
        believed_ms = max(self.now_ms - NAMED_MS, node.since_ms - 1) if node.names_jobs else self.now_ms - AGE_MS_MAX
        for member in reported - running - unfinished:
            job_id, _, attempt = member.partition("#")
            assert self.writes[name, job_id, int(attempt)] > believed_ms, f"{member} leaks"

    def fail_jobs(self) -> None:
        """The node reports an error for one of its jobs, or for all."""
        name = self.random.choice(list(self.nodes))
        node = self.nodes[name]
        if not node.connected:
            return
        job = self.random.choice(sorted(node.runs)) if node.runs and self.random.random() < 0.5 else (None, None)
        self.do(self.core.on_node_error(name, *job, self.now_ms))

    def disconnect(self) -> None:
        """A node loses its socket and keeps its jobs; or it dies with them. It is back soon, or late."""
        name = self.random.choice(list(self.nodes))
        node = self.nodes[name]
        if not node.connected:
            return
        node.connected = False
        self.core.node_detached(name, node.epoch, self.now_ms)
        if self.random.random() < 0.5:
            node.runs.clear()
            node.unacknowledged.clear()
        self.at(self.now_ms + self.random.choice((GRACE_MS // 3, GRACE_MS * 3)), lambda: self.reconnect(name))

    def reconnect(self, name: str) -> None:
        node = self.nodes[name]
        self.epochs += 1
        node.connected, node.epoch, node.since_ms = True, self.epochs, self.now_ms
        self.do(self.core.node_reattached(name, self.now_ms))
        for job in sorted(node.unacknowledged):
            self.send_result(name, *job)
        self.send_heartbeat(name)


@pytest.mark.parametrize("block", range(8))
def test_every_job_is_delivered_once_and_no_state_remains(block: int) -> None:
    reasons: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    buffered = 0
    for seed in range(block * 25, block * 25 + 25):
        world = World(seed)
        try:
            world.run()
            assert all(count == 1 for count in world.delivered.values())
            assert len(world.delivered) == len(world.jobs), [job for job in world.jobs if not job.done]
            assert not world.core.results, "results are never dropped"
            assert world.core._unacked.bytes == 0 and not world.acks and not world.finished_acks
            assert world.finished == world.resulted, "every end of a job reached a selector"
            lost = {JobOutcome.RESULT_EXPIRED, JobOutcome.RESULT_EVICTED, "no_session"}
            assert not lost & world.core.outcomes.keys()
            for name in world.nodes:
                assert world.core.running_at(name, []) == [], "jobs are never dropped"
        except AssertionError as error:
            raise AssertionError(f"seed {seed} at {world.now_ms} ms: {error}") from error
        reasons += world.reasons
        faults += world.faults
        buffered += world.core.outcomes[JobOutcome.JOB_BUFFERED]
    assert buffered and {"node_error", "drained", "job_lost", "node_gone", "node_stuck"} <= reasons.keys(), (
        "all of it was tried"
    )
    assert faults.keys() == FAULTS, "every fault occurred"


def test_same_seed_gives_the_same_run() -> None:
    stories = []
    for _ in range(2):
        world = World(11)
        world.run()
        stories.append((world.serial, world.reasons, world.faults, world.core.outcomes))
    assert stories[0] == stories[1]
