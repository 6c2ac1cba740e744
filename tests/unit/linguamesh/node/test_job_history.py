"""What a node remembers of its jobs."""

from linguamesh.node import job_history
from linguamesh.node.job_history import JobHistory, Seen


def test_a_job_runs_once() -> None:
    memory = JobHistory()
    assert memory.assigned("job-1", 1) is Seen.NEW
    assert memory.assigned("job-1", 1) is Seen.RUNNING
    memory.finished("job-1", 1, "result", 0)
    assert memory.assigned("job-1", 1) is Seen.KEPT
    assert memory.kept_result("job-1") == "result"
    memory.acknowledged("job-1", 1)
    assert memory.assigned("job-1", 1) is Seen.DONE
    assert memory.kept_results(0) == []


def test_a_later_attempt_replaces_a_running_one() -> None:
    memory = JobHistory()
    memory.assigned("job-1", 1)
    assert memory.assigned("job-1", 2) is Seen.NEW
    memory.finished("job-1", 1, "old", 0)
    assert memory.kept_results(0) == []
    memory.finished("job-1", 2, "new", 0)
    assert memory.kept_results(0) == ["new"]
    assert memory.assigned("job-1", 1) is Seen.DONE


def test_a_cancelled_job_leaves_no_result_and_is_not_run_again() -> None:
    memory = JobHistory()
    memory.assigned("job-1", 1)
    memory.finished("job-1", 1, None, 0)
    assert memory.running() == []
    assert memory.kept_results(0) == []
    assert memory.assigned("job-1", 1) is Seen.DONE


def test_an_acknowledgement_of_an_older_attempt_keeps_the_result() -> None:
    memory = JobHistory()
    memory.assigned("job-1", 2)
    memory.finished("job-1", 2, "result", 0)
    memory.acknowledged("job-1", 1)
    assert memory.kept_results(0) == ["result"]


def test_kept_results_are_bounded_in_number_and_age() -> None:
    memory = JobHistory()
    surplus = 10
    for number in range(job_history.RESULTS_KEPT_MAX + surplus):
        memory.assigned(f"job-{number}", 1)
        memory.finished(f"job-{number}", 1, str(number), 0)
    assert memory.kept_results(0)[0] == str(surplus)
    assert memory.dropped == surplus
    assert memory.kept_results(job_history.RESULT_KEPT_MS + 1) == []


def test_finished_ids_are_bounded() -> None:
    memory = JobHistory()
    for number in range(job_history.FINISHED_MAX + 1):
        memory.assigned(f"job-{number}", 1)
        memory.finished(f"job-{number}", 1, None, 0)
    assert memory.assigned("job-0", 1) is Seen.NEW
    assert memory.assigned("job-1", 1) is Seen.DONE
