"""Turnovers: end jobs and commit waiting requests on their slots. One call per job, all of a batch in one EVALSHA.

On Redis Cluster a call may use the keys of one hash slot only. Where the job's node and the request's binding are in
different ones, the job is finished first and the request committed afterwards: two exchanges, each a pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lua.engine.runner import Call, Runner
from lua.store.commits import CANDIDATE_ARGS, COMMIT_ARGS, CommitStore, read_committed
from lua.store.jobs import LESSON_ARGS, UNKNOWN_JOB, JobStore, holder_of, read_advanced
from lua.store.types.commits import CommitRequest, Committed
from lua.store.types.turnovers import TurnedOver, Turnover
from mesh.cells import cell_of
from mesh.config import Config
from mesh.errors import StoreError
from mesh.keys import Keys, lease_member

_FINISH_ARGS: Final = ("node_id", "member", "holder", "success")
#: Fields of job_turnover's reply about the finished job.
_FINISH_FIELDS: Final = 8


class TurnoverStore:
    """Ends jobs and commits requests. Idempotent per attempt of the job, and per request id and attempt."""

    def __init__(self, runner: Runner, keys: Keys, config: Config, jobs: JobStore, commits: CommitStore) -> None:
        self._runner = runner
        self._keys = keys
        self._cells = config.mesh.cells
        self._jobs = jobs
        self._commits = commits
        groups = {"lessons": LESSON_ARGS, "commits": COMMIT_ARGS, "candidates": CANDIDATE_ARGS}
        runner.check_order("job_turnover", _FINISH_ARGS, groups)

    async def turn_over(self, turnovers: Sequence[Turnover]) -> list[TurnedOver]:
        """Finish each job and release its slot; then commit its request, if it has one. In this order, one by one.

        `finish.events` are not read: the events of a turnover are finish and release. Never raises StoreError.
        """
        calls = [self._call(one) for one in turnovers]
        answers = iter(await self._runner.call_many("job_turnover", [call for call in calls if call is not None]))
        turned = [
            TurnedOver(UNKNOWN_JOB) if call is None else _read(next(answers), one.request)
            for one, call in zip(turnovers, calls, strict=True)
        ]
        # A request that is not in its job's call: the job id is invalid, or the keys are in different hash slots.
        apart = [at for at, one in enumerate(turnovers) if one.request is not None and turned[at].committed is None]
        if apart:
            requests = [request for at in apart if (request := turnovers[at].request) is not None]
            for at, committed in zip(apart, await self._commits.commit(requests), strict=True):
                turned[at] = turned[at]._replace(committed=committed)
        return await self._with_states(turned)

    async def _with_states(self, turned: list[TurnedOver]) -> list[TurnedOver]:
        """Add the states of the jobs of requests that were bound before."""
        bound = [
            at
            for at, (_, committed) in enumerate(turned)
            if committed is not None and committed.verdict == "bound" and not committed.state
        ]
        if bound:
            known = [committed for at in bound if (committed := turned[at].committed) is not None]
            for at, committed in zip(bound, await self._commits.add_states(known), strict=True):
                turned[at] = turned[at]._replace(committed=committed)
        return turned

    def _call(self, one: Turnover) -> Call | None:
        finish, request = one
        cell = self._jobs.cell(finish.job_id)
        if cell is None:
            return None
        keys = [self._keys.job(cell, finish.job_id), *self._jobs.node_keys.in_cell(cell, finish.node_id)]
        args: list[Any] = [
            finish.node_id,
            lease_member(finish.job_id, finish.attempt),
            holder_of(finish.attempt, finish.node_id),
            "ok" if finish.success else "failed",
        ]
        self._jobs.add_lesson(keys, args, cell, finish)
        if request is None or not self._shares_slot(cell, request):
            args += (0, 0)
        else:
            args.append(1)
            self._commits.add_commit(keys, args, request)
            self._commits.add_candidates(keys, args, request)
        return Call(keys, args)

    def _shares_slot(self, cell: int, request: CommitRequest) -> bool:
        """True if the request may be committed in the call of a job of this cell."""
        if not self._runner.is_cluster:
            return True
        cells = {cell_of(request.session_id, self._cells)}
        cells.update(self._jobs.node_keys.of(node_id)[0] for node_id in request.candidates)
        return cells == {cell}


def _read(answer: list[Any] | StoreError, request: CommitRequest | None) -> TurnedOver:
    if isinstance(answer, StoreError):
        return TurnedOver(answer, None if request is None else Committed("unknown", reasons=(str(answer),)))
    finished = read_advanced(answer)
    if request is None or not answer[_FINISH_FIELDS]:
        return TurnedOver(finished)
    return TurnedOver(finished, read_committed(answer[_FINISH_FIELDS:], request.candidates))
