"""Changes of committed jobs: advance their state machine, release their slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lua.engine.batch import Answer
from lua.engine.runner import Call, Runner
from lua.store.node_keys import NodeKeys
from lua.store.node_view import quote_reason, unpack_speeds
from lua.store.types.jobs import Advance, Advanced, Release, Released
from mesh.cells import cell_of_job
from mesh.config import Config
from mesh.errors import StoreError
from mesh.ids import is_id
from mesh.keys import Keys, lease_member
from mesh.states.speed import ANY_PAIR, RATIO_MAX

#: Arguments of the scripts in header order: their lists are built here, because a dictionary per call costs more.
ADVANCE_ARGS: Final = ("node_id", "member", "holder", "events", "success", "lease_ms", "leases_ms")
LESSON_ARGS: Final = ("pair", "took_ms", "audio_ms", "jobs_remembered", "half_life_ms", "pairs_max")
#: Maximum length of a language pair; a longer one counts for ANY_PAIR only.
PAIR_MAX: Final = 64
#: The answer about a job id that is invalid.
UNKNOWN_JOB: Final = Advanced("unknown")
_UNTOUCHED: Final = Released("unknown", -1, 0)


def holder_of(attempt: int, node_id: str) -> str:
    """Attempt and node that a job belongs to, as its record has them: the fence against all other attempts."""
    return f"{attempt} {node_id}"


class JobStore:
    """The records of jobs. Owns the bounds on leases that commits and heartbeats share."""

    def __init__(self, runner: Runner, keys: Keys, config: Config) -> None:
        self._runner = runner
        self._keys = keys
        self._cells = config.mesh.cells
        self.node_keys = NodeKeys(keys, config.mesh.cells)
        self.lease_ms = config.job.lease_ms
        self._audio_ms_min = config.speed.audio_ms_min
        self._failed_ms = config.speed.failed_ms
        speed = config.speed
        limits = (speed.jobs_remembered, speed.half_life_ms, speed.pairs_per_node_max)
        #: As bytes: an integer is converted anew for each call.
        self._speed_limits = tuple(str(limit).encode() for limit in limits)
        runner.check_order("job_advance", ADVANCE_ARGS, {"lessons": LESSON_ARGS})
        #: TTL of a job's record. No event renews it: after the deadline no client waits for the job, and the rest is
        #: enough for its lease and the retries of its result.
        self.record_ms = config.job.deadline_ms + config.job.lease_ms + config.job.record_extra_ms
        #: TTL of a set of leases, renewed by heartbeats; see add_lease() in lua/scripts/shared/lease.lua.
        self.leases_ms = config.node.heartbeat_timeout_ms + config.job.lease_ms + config.job.record_extra_ms

    async def advance(self, advances: Sequence[Advance]) -> list[Advanced | StoreError]:
        """Apply events of mesh.states.job; an error in place of each that failed."""
        calls = [self._advance_call(one) for one in advances]
        answers = iter(await self._runner.call_many("job_advance", [call for call in calls if call]))
        return [read_advanced(next(answers)) if call else UNKNOWN_JOB for call in calls]

    async def release(self, release: Release) -> Released:
        """Give back the slot of exactly this attempt. Idempotent."""
        call = self._release_call(release)
        return Released(*await self._runner.call("job_release", *call)) if call else _UNTOUCHED

    async def get_many(self, job_ids: Sequence[str]) -> list[Answer]:
        """The records, as job_get replies; all fields are empty if there is no such job. An error for each failure."""
        keys = [self._keys.job(cell_of_job(job_id), job_id) for job_id in job_ids]
        return await self._runner.call_many("job_get", [Call([key], {}) for key in keys])

    def _advance_call(self, one: Advance) -> Call | None:
        cell = self.cell(one.job_id)
        if cell is None:
            return None
        args: list[Any] = [
            one.node_id,
            lease_member(one.job_id, one.attempt),
            holder_of(one.attempt, one.node_id),
            one.events,
            "ok" if one.success else "failed",
            self.lease_ms,
            self.leases_ms,
        ]
        keys = [self._keys.job(cell, one.job_id), *self.node_keys.in_cell(cell, one.node_id)]
        self.add_lesson(keys, args, cell, one)
        return Call(keys, args)

    def add_lesson(self, keys: list[str], args: list[Any], cell: int, one: Advance) -> None:
        """Append the job's measurement of its node's speed, if it has one. See mesh.states.speed.ratio_of."""
        if one.took_ms < 0 or not one.pair:
            args.append(0)
            return
        pair = one.pair if len(one.pair) <= PAIR_MAX else ANY_PAIR
        audio_ms = max(one.audio_ms, self._audio_ms_min)
        took_ms = one.took_ms if one.success else one.took_ms + self._failed_ms + audio_ms
        took_ms = min(took_ms, RATIO_MAX * audio_ms)
        args += (1, pair, took_ms, audio_ms, *self._speed_limits)
        keys.append(self.node_keys.speeds[cell])

    def _release_call(self, one: Release) -> Call | None:
        cell = self.cell(one.job_id)
        if cell is None:
            return None
        args = {
            "node_id": one.node_id,
            "member": lease_member(one.job_id, one.attempt),
            "holder": holder_of(one.attempt, one.node_id),
            "reason": quote_reason(one.reason),
            "epoch": one.epoch,
        }
        return Call([self._keys.job(cell, one.job_id), *self.node_keys.in_cell(cell, one.node_id)], args)

    def cell(self, job_id: str) -> int | None:
        """The cell of a job; None if the id is invalid. Ids come from nodes, which may send anything."""
        try:
            cell = cell_of_job(job_id)
        except ValueError:
            return None
        return cell if is_id(job_id) and 0 <= cell < self._cells else None


def read_advanced(answer: Answer) -> Advanced | StoreError:
    """The answer of job_advance, or of job_turnover about the finished job."""
    if isinstance(answer, StoreError):
        return answer
    verdict, state, outcome, request, leased, used, version, learned = answer[:8]
    request_id, session_id, edge = split_request(request)
    return Advanced(
        verdict,
        state,
        outcome != "",
        edge,
        session_id,
        request_id,
        outcome,
        bool(leased),
        used,
        version,
        unpack_speeds(learned) if learned else {},
    )


def split_request(request: str) -> tuple[str, str, str]:
    """Request, session and session's edge of a job; all empty if there is no record."""
    parts: Any = request.split(" ")
    return tuple(parts) if len(parts) == 3 else ("", "", "")
