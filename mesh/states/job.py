"""The job state machine, as one table. Lua's twin is in lua/scripts/job_advance.lua; a test compares them.

CREATED -> DISPATCHED -> ACCEPTED -> RUNNING -> FINISHED -> RELEASED

A job walks forward only. Nodes may skip steps (the original node sends neither job_ack nor job_started),
messages may overtake one another, so every event that lies ahead is taken and every one that lies behind
is a no-op. RELEASED means that the slot is back; `release` is allowed from everywhere, because a job may
be given up at any time. Whose attempt an event belongs to is fencing, and not this table's business.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

#: Running jobs of one node that a heartbeat may list. A longer list is disregarded: the node's slots are not audited.
RUNNING_JOBS_MAX: Final = 1_024


class JobState(StrEnum):
    """Where a job is."""

    CREATED = "CREATED"
    DISPATCHED = "DISPATCHED"
    ACCEPTED = "ACCEPTED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    RELEASED = "RELEASED"


class JobAction(StrEnum):
    """What can happen to a job."""

    DISPATCH = "dispatch"  # its edge handed it to the node's socket
    ACCEPT = "accept"  # job_ack
    START = "start"  # job_started or the first asr_partial
    FINISH = "finish"  # job_result
    RELEASE = "release"  # the slot goes back


class StepVerdict(StrEnum):
    """What an event did."""

    MOVED = "moved"
    SAME = "same"  # already there or further: a repeat, harmless


class Step(NamedTuple):
    """Outcome of one event."""

    verdict: StepVerdict
    state: JobState


def _moved(state: JobState) -> Step:
    return Step(StepVerdict.MOVED, state)


def _same(state: JobState) -> Step:
    return Step(StepVerdict.SAME, state)


_ARRIVES: Final = {
    JobAction.DISPATCH: JobState.DISPATCHED,
    JobAction.ACCEPT: JobState.ACCEPTED,
    JobAction.START: JobState.RUNNING,
    JobAction.FINISH: JobState.FINISHED,
    JobAction.RELEASE: JobState.RELEASED,
}
_ORDER: Final = {state: place for place, state in enumerate(JobState)}

#: (state, event) -> what happens.
NEXT: Final[dict[tuple[JobState, JobAction], Step]] = {
    (state, event): _moved(goal) if _ORDER[goal] > _ORDER[state] else _same(state)
    for state in JobState
    for event, goal in _ARRIVES.items()
}


def advance(state: JobState, event: JobAction) -> Step:
    """What `event` does to a job in `state`."""
    return NEXT[state, event]
