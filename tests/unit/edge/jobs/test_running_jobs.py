"""Running jobs: their bound, coalesced progress, and their comparison with heartbeats."""

from __future__ import annotations

from collections.abc import Callable

from edge.core.timers import Timers
from edge.jobs.core.job import SendToEdge, SendToJob, StopJob, TimerKind, key_of, placed
from edge.jobs.core.running_jobs import RunningJobs
from edge.jobs.core.tracker import JobTracker
from mesh.frames import CancelJob, JobEvent
from mesh.states.job import RUNNING_JOBS_MAX, JobAction
from mesh.words import JobOutcome
from tests.support.builders.jobs import (
    AGE_MS_MAX,
    DELAY_MS,
    LIMITS,
    NAMED_MS,
    PAYLOAD,
    TEXT,
    ack,
    assign,
    failed_assigns,
    finished,
    report,
    tracker_with_jobs,
)

KEY = "n/job-00-1#1"


def event(events: str) -> SendToJob:
    return SendToJob("job-00-1", JobEvent("job-00-1", 1, "n", events))


#: The session's edge is notified that the job is placed.
PLACED = SendToEdge("a", placed(assign()))


def test_events_of_a_job_are_coalesced_into_one_frame() -> None:
    core = tracker_with_jobs(1)
    core.on_progress("n", "job-00-1", 1, JobAction.ACCEPT, 5)
    core.on_progress("n", "job-00-1", 1, JobAction.START, 10)
    core.on_progress("n", "job-00-1", 1, JobAction.ACCEPT, 11)
    assert core.timers.next_due_ms() == DELAY_MS and core.tick(DELAY_MS - 1) == []
    assert core.tick(DELAY_MS) == [event("dispatch accept start")]
    core.on_progress("n", "job-00-1", None, JobAction.START, 40, b"{}")
    assert core.timers.next_due_ms() is None, "each word is said once"


def test_later_events_wait_again_and_overtaken_ones_are_not_reported() -> None:
    core = tracker_with_jobs(1)
    assert core.tick(DELAY_MS) == [event("dispatch"), PLACED]
    core.on_progress("n", "job-00-1", None, JobAction.START, 100, b"{}")
    core.on_progress("n", "job-00-1", 1, JobAction.ACCEPT, 110)
    assert core.timers.next_due_ms() == 100 + DELAY_MS
    assert core.tick(100 + DELAY_MS) == [event("start")], "Placed is sent once"


def test_job_that_ends_first_reports_no_events_and_no_placement() -> None:
    ends: list[Callable[[JobTracker], object]] = [
        lambda core: core.on_result(report(), TEXT, 10),
        lambda core: core.on_cancel(CancelJob("job-00-1", 1, "n", "t", "job_timeout"), 10),
        lambda core: core.write_failed(assign()),
    ]
    for end in ends:
        core = tracker_with_jobs(1)
        end(core)
        core.check()
        assert core.tick(DELAY_MS) == [], "the result, or the failure, says more"


def test_running_jobs_are_evicted_beyond_the_bound_per_node() -> None:
    core = JobTracker("b", LIMITS)
    for number in range(5):
        core.on_assign(assign(number), PAYLOAD, 7, 0)
        core.check()
    assert core.outcomes[JobOutcome.JOB_EVICTED] == 2


def test_running_jobs_are_named_ones_known_ones_and_unacked_ones() -> None:
    core = tracker_with_jobs(1, 2)
    assert core.running_at("n", []) == ["job-00-1#1", "job-00-2#1"], "a node that names none: what it was given"
    core.on_result(report(2), TEXT, 10)
    assert core.running_at("n", [("job-00-7", 3)]) == ["job-00-1#1", "job-00-2#1", "job-00-7#3"]
    core.on_ack(ack("delivered", 2), 20)
    assert core.running_at("n", [("job-00-2", 1)]) == ["job-00-1#1", "job-00-2#1"], "no selector has released its slot"
    core.on_finished_ack(finished(2))
    assert core.running_at("n", [("job-00-2", 1)]) == ["job-00-1#1"], "it named that before it knew"
    core.on_cancel(CancelJob("job-00-1", 1, "n", "", ""), 30)
    assert core.running_at("n", [("job-00-1", 1)]) == [] == core.running_at("m", [])
    assert core.running_at("n", [("job-00-1", attempt) for attempt in range(2, RUNNING_JOBS_MAX + 3)]) is None


def test_job_that_a_heartbeat_does_not_name_is_lost_after_an_interval() -> None:
    core = tracker_with_jobs(1)
    assert core.on_jobs_reported("n", set(), NAMED_MS - 1) == [], "it may have crossed the heartbeat"
    assert core.on_jobs_reported("n", {KEY}, NAMED_MS) == [] == core.on_jobs_reported("n", None, NAMED_MS)
    assert failed_assigns(core.on_jobs_reported("n", set(), NAMED_MS)) == [("1", "job_lost")]
    core.check()
    assert core.running_at("n", []) == []


def test_job_that_outlived_its_slot_is_abandoned_even_if_named() -> None:
    for named in (None, {KEY}):
        core = tracker_with_jobs(1)
        assert core.on_jobs_reported("n", named, AGE_MS_MAX - 1) == []
        effects = core.on_jobs_reported("n", named, AGE_MS_MAX)
        assert failed_assigns(effects) == [("1", "job_lost")] and any(isinstance(effect, StopJob) for effect in effects)
        core.check()


def add(jobs: RunningJobs, number: int, *, node_id: str = "n", attempt: int = 1) -> int:
    job = assign(number, node_id=node_id, attempt=attempt)
    added, evicted = jobs.add(job, key_of(node_id, job.job_id, attempt), number)
    assert added is jobs.jobs[added.key] and not added.is_placed
    jobs.check()
    return evicted


def test_oldest_job_of_the_same_node_is_evicted_with_its_events() -> None:
    timers: Timers[tuple[TimerKind, str]] = Timers()
    jobs = RunningJobs(per_node_max=2, job_event_delay_ms=DELAY_MS, timers=timers)
    assert [add(jobs, 0, node_id="m"), *(add(jobs, number) for number in (1, 2, 3))] == [0, 0, 0, 1]
    assert [job.assign.job_id for job in jobs.of("n").values()] == ["job-00-2", "job-00-3"]
    due = [key for _, key in timers.pop_due(3 + DELAY_MS)]
    assert [frame.job_id for _, frame in jobs.on_due(due)] == [
        "job-00-0",
        "job-00-2",
        "job-00-3",
    ]


def test_job_without_an_attempt_is_its_latest_one() -> None:
    timers: Timers[tuple[TimerKind, str]] = Timers()
    jobs = RunningJobs(per_node_max=9, job_event_delay_ms=DELAY_MS, timers=timers)
    for attempt in (1, 10, 9):
        add(jobs, 1, attempt=attempt)
    found = [jobs.latest("n", "job-00-1"), *(jobs.jobs.get(key_of("n", "job-00-1", attempt)) for attempt in (9, 2))]
    assert [job and job.assign.attempt for job in found] == [10, 9, None]
    assert jobs.latest("m", "job-00-1") is None


def test_removed_jobs_leave_no_events_and_no_node() -> None:
    timers: Timers[tuple[TimerKind, str]] = Timers()
    jobs = RunningJobs(per_node_max=9, job_event_delay_ms=DELAY_MS, timers=timers)
    for number in (1, 2, 3):
        add(jobs, number)
    popped = jobs.pop("n", KEY)
    assert popped is not None and popped.assign.job_id == "job-00-1"
    assert jobs.pop("n", KEY) is None
    assert [job.assign.job_id for job in jobs.pop_node("n")] == ["job-00-2", "job-00-3"] and jobs.pop_node("n") == []
    jobs.check()
    assert (jobs.jobs, timers.next_due_ms()) == ({}, None)
