"""The job history of a node: deduplication, unacknowledged results, eviction."""

from linguamesh.node import job_history
from linguamesh.node.job_history import AssignmentState, EncodedResult, JobHistory

RESULT = EncodedResult(b"{}", b"speech")
OLDER = EncodedResult(b"{}", None)


def test_duplicate_assignment_does_not_run_again() -> None:
    history = JobHistory()
    assert history.assign("job-1", 1) is AssignmentState.NEW
    assert history.assign("job-1", 1) is AssignmentState.RUNNING
    history.finish("job-1", 1, RESULT, 0)
    assert history.assign("job-1", 1) is AssignmentState.UNACKED
    assert history.unacked_result("job-1") == RESULT
    history.acknowledge("job-1", 1)
    assert history.assign("job-1", 1) is AssignmentState.DONE
    assert history.unacked_results(0) == []


def test_later_attempt_replaces_a_running_one() -> None:
    history = JobHistory()
    history.assign("job-1", 1)
    assert history.assign("job-1", 2) is AssignmentState.NEW
    history.finish("job-1", 1, OLDER, 0)
    assert history.unacked_results(0) == []
    history.finish("job-1", 2, RESULT, 0)
    assert history.unacked_results(0) == [RESULT]
    assert history.assign("job-1", 1) is AssignmentState.DONE


def test_cancelled_job_leaves_no_result_and_is_not_run_again() -> None:
    history = JobHistory()
    history.assign("job-1", 1)
    history.finish("job-1", 1, None, 0)
    assert history.running() == []
    assert history.unacked_results(0) == []
    assert history.assign("job-1", 1) is AssignmentState.DONE


def test_acknowledgement_of_an_older_attempt_keeps_the_result() -> None:
    history = JobHistory()
    history.assign("job-1", 2)
    history.finish("job-1", 2, RESULT, 0)
    history.acknowledge("job-1", 1)
    assert history.unacked_results(0) == [RESULT]


def test_unacked_results_are_evicted_by_number_and_age() -> None:
    history = JobHistory()
    surplus = 10
    for number in range(job_history.UNACKED_MAX + surplus):
        history.assign(f"job-{number}", 1)
        history.finish(f"job-{number}", 1, EncodedResult(b"%d" % number, None), 0)
    assert history.unacked_results(0)[0].head == b"%d" % surplus
    assert len(history.unacked_results(0)) == job_history.UNACKED_MAX
    assert history.unacked_results(job_history.UNACKED_MS_MAX + 1) == []


def test_finished_ids_are_bounded() -> None:
    history = JobHistory()
    for number in range(job_history.FINISHED_MAX + 1):
        history.assign(f"job-{number}", 1)
        history.finish(f"job-{number}", 1, None, 0)
    assert history.assign("job-0", 1) is AssignmentState.NEW
    assert history.assign("job-1", 1) is AssignmentState.DONE
