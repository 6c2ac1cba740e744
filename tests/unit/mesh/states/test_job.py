from __future__ import annotations

from itertools import product

import pytest

from mesh.states.job import NEXT, JobAction, JobState, Step, StepVerdict, advance

MOVED, SAME = StepVerdict.MOVED, StepVerdict.SAME

#: Spelled out row by row, not computed: what each event does in each state.
TABLE = """
            dispatch    accept    start    finish    release
CREATED     DISPATCHED  ACCEPTED  RUNNING  FINISHED  RELEASED
DISPATCHED  -           ACCEPTED  RUNNING  FINISHED  RELEASED
ACCEPTED    -           -         RUNNING  FINISHED  RELEASED
RUNNING     -           -         -        FINISHED  RELEASED
FINISHED    -           -         -        -         RELEASED
RELEASED    -           -         -        -         -
"""


def cases() -> list[tuple[JobState, JobAction, str]]:
    head, *rows = [line.split() for line in TABLE.strip().splitlines()]
    return [
        (JobState(row[0]), JobAction(event), goal) for row in rows for event, goal in zip(head, row[1:], strict=True)
    ]


@pytest.mark.parametrize(("state", "event", "goal"), cases())
def test_transition(state: JobState, event: JobAction, goal: str) -> None:
    assert advance(state, event) == (Step(SAME, state) if goal == "-" else Step(MOVED, JobState(goal)))


def test_table_and_test_cover_every_pair() -> None:
    pairs = set(product(JobState, JobAction))
    assert set(NEXT) == pairs
    assert {(state, event) for state, event, _ in cases()} == pairs


@pytest.mark.parametrize(("state", "event"), list(product(JobState, JobAction)))
def test_repeated_event_is_a_no_op(state: JobState, event: JobAction) -> None:
    after = advance(state, event).state
    assert advance(after, event) == Step(SAME, after)


def test_released_job_stays_released() -> None:
    assert {advance(JobState.RELEASED, event) for event in JobAction} == {Step(SAME, JobState.RELEASED)}


def test_result_alone_finishes_a_job() -> None:
    state = JobState.CREATED
    for event in (JobAction.DISPATCH, JobAction.FINISH, JobAction.RELEASE):
        verdict, state = advance(state, event)
        assert verdict is MOVED
    assert state is JobState.RELEASED
