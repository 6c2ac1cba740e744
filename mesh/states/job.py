"""Executable specification of lua/scripts/job_advance.lua, run by tests only: the transitions of a job.

The Lua script is in force; tests/lua compares both. Production code uses the enums and RUNNING_JOBS_MAX only.

    CREATED -> DISPATCHED -> ACCEPTED -> RUNNING -> FINISHED -> RELEASED

A job moves forward only. Nodes may skip steps (the original node sends neither job_ack nor job_started) and messages
may overtake one another, so an action that leads forward is applied and every other one is a no-op. RELEASED means that
the slot is free; `release` is allowed from every state, because a job may be cancelled at any time. Fencing by the
attempt happens before this table.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

#: Running jobs of one node that a heartbeat may list. A longer list is ignored: the node's slots are not audited.
RUNNING_JOBS_MAX: Final = 1_024


class JobState(StrEnum):
    """State of a job."""

    CREATED = "CREATED"
    DISPATCHED = "DISPATCHED"
    ACCEPTED = "ACCEPTED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    RELEASED = "RELEASED"


class JobAction(StrEnum):
    """Events of a job."""

    DISPATCH = "dispatch"  # its edge wrote it to the node's socket
    ACCEPT = "accept"  # job_ack
    START = "start"  # job_started or the first asr_partial
    FINISH = "finish"  # job_result
    RELEASE = "release"  # its slot is freed


class StepVerdict(StrEnum):
    """Effect of an event."""

    MOVED = "moved"
    SAME = "same"  # the job is there or further: a no-op


class Step(NamedTuple):
    """Verdict on one event, and the state after it."""

    verdict: StepVerdict
    state: JobState


def _moved(state: JobState) -> Step:
    return Step(StepVerdict.MOVED, state)


def _same(state: JobState) -> Step:
    return Step(StepVerdict.SAME, state)


_GOAL: Final = {
    JobAction.DISPATCH: JobState.DISPATCHED,
    JobAction.ACCEPT: JobState.ACCEPTED,
    JobAction.START: JobState.RUNNING,
    JobAction.FINISH: JobState.FINISHED,
    JobAction.RELEASE: JobState.RELEASED,
}
_ORDER: Final = {state: number for number, state in enumerate(JobState)}

#: (state, event) -> its effect.
NEXT: Final[dict[tuple[JobState, JobAction], Step]] = {
    (state, event): _moved(goal) if _ORDER[goal] > _ORDER[state] else _same(state)
    for state in JobState
    for event, goal in _GOAL.items()
}


def advance(state: JobState, event: JobAction) -> Step:
    """The effect of `event` on a job in `state`."""
    return NEXT[state, event]
