"""Calls about jobs that exist: advance, release, look. Always many at a time; one bad call costs only itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from lua.engine.batch import Answer
from lua.engine.runner import Call, Runner
from lua.store.node_view import spell_reason, unpack_speeds
from lua.store.types.jobs import Advance, Advanced, Release, Released
from mesh.cells import cell_of, cell_of_job
from mesh.config import Config
from mesh.errors import StoreError
from mesh.ids import is_id
from mesh.keys import Keys, lease_member
from mesh.states.speed import ANY_PAIR, RATIO_MAX

#: Nodes whose key names are kept at hand: spelling them is most of the work of a call.
NODES_REMEMBERED: Final = 65_536
#: Characters of a language pair; a longer one is not told apart.
PAIR_MAX: Final = 64
_UNKNOWN: Final = Advanced("unknown")
_UNTOUCHED: Final = Released("unknown", -1, 0)


def holder_of(attempt: int, node_id: str) -> str:
    """Whom a job belongs to, as its record spells it. What anyone else says of the job is fenced off."""
    return f"{attempt} {node_id}"


class JobStore:
    """The keys of jobs and nodes, and the scripts that move jobs on."""

    def __init__(self, runner: Runner, keys: Keys, config: Config) -> None:
        self._runner = runner
        self._keys = keys
        self._cells = config.mesh.cells
        self.node_keys = lru_cache(NODES_REMEMBERED)(self._make_node_keys)
        self.lease_ms = config.job.lease_ms
        self._audio_ms_min = config.speed.audio_ms_min
        self._failed_ms = config.speed.failed_ms
        self._learning = {
            "jobs_remembered": config.speed.jobs_remembered, "half_life_ms": config.speed.half_life_ms,
            "pairs_max": config.speed.pairs_per_node_max,
        }  # fmt: skip
        #: Life of a job's record. No event renews it: nobody waits for a job beyond its deadline, and then its lease
        #: and the repeats of its result have this long.
        self.keep_ms = config.job.deadline_ms + config.job.lease_ms + config.job.record_extra_ms
        #: Life of a set of leases without a heartbeat; see hold() in lua/scripts/shared/lease.lua.
        self.leases_ms = config.node.heartbeat_timeout_ms + config.job.lease_ms + config.job.record_extra_ms

    async def advance(self, asked: Sequence[Advance]) -> list[Advanced | StoreError]:
        """Apply events of mesh.states.job; an error in place of each that failed."""
        calls = [self._advance_call(one) for one in asked]
        answers = iter(await self._runner.call_many("job_advance", [call for call in calls if call]))
        return [_advanced(next(answers)) if call else _UNKNOWN for call in calls]

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
        args: dict[str, Any] = {
            "node_id": one.node_id, "member": lease_member(one.job_id, one.attempt),
            "holder": holder_of(one.attempt, one.node_id), "events": one.events,
            "success": "ok" if one.success else "failed", "lease_ms": self.lease_ms, "leases_ms": self.leases_ms,
            "lessons": self._lessons(one),
        }  # fmt: skip
        keys = [self._keys.job(cell, one.job_id), *self._keys_in(cell, one.node_id)]
        return Call(keys + [self._keys.speeds(cell)] * len(args["lessons"]), args)

    def _lessons(self, one: Advance) -> list[dict[str, Any]]:
        """The job's measurement of its node's speed, if it was timed. See mesh.states.speed.ratio_of."""
        if one.took_ms < 0 or not one.pair:
            return []
        pair = one.pair if len(one.pair) <= PAIR_MAX else ANY_PAIR
        audio_ms = max(one.audio_ms, self._audio_ms_min)
        took_ms = one.took_ms if one.success else one.took_ms + self._failed_ms + audio_ms
        took_ms = min(took_ms, RATIO_MAX * audio_ms)
        return [{"pair": pair, "took_ms": took_ms, "audio_ms": audio_ms, **self._learning}]

    def _release_call(self, one: Release) -> Call | None:
        cell = self.cell(one.job_id)
        if cell is None:
            return None
        args = {
            "node_id": one.node_id, "member": lease_member(one.job_id, one.attempt),
            "holder": holder_of(one.attempt, one.node_id), "reason": spell_reason(one.reason), "epoch": one.epoch,
        }  # fmt: skip
        return Call([self._keys.job(cell, one.job_id), *self._keys_in(cell, one.node_id)], args)

    def cell(self, job_id: str) -> int | None:
        """The cell of a job; None if no job of ours can have this id. Nodes may send us anything."""
        try:
            cell = cell_of_job(job_id)
        except ValueError:
            return None
        return cell if is_id(job_id) and 0 <= cell < self._cells else None

    def _keys_in(self, job_cell: int, node_id: str) -> list[str]:
        """The node's keys; of a node that does not belong to the job, those that it would have in the job's cell."""
        cell, keys = self.node_keys(node_id)
        return keys if cell == job_cell else self._spell(job_cell, node_id)

    def _make_node_keys(self, node_id: str) -> tuple[int, list[str]]:
        cell = cell_of(node_id, self._cells)
        return cell, self._spell(cell, node_id)

    def _spell(self, cell: int, node_id: str) -> list[str]:
        keys = self._keys
        return [keys.node(cell, node_id), keys.leases(cell, node_id), keys.ledger(cell), keys.changes(cell)]


def _advanced(answer: Answer) -> Advanced | StoreError:
    if isinstance(answer, StoreError):
        return answer
    verdict, state, outcome, request, leased, used, version, learned = answer
    request_id, session_id, edge = words_of(request)
    return Advanced(
        verdict, state, outcome != "", edge, session_id, request_id, outcome, bool(leased), used, version,
        unpack_speeds(learned) if learned else {},
    )  # fmt: skip


def words_of(request: str) -> tuple[str, str, str]:
    """The request of a job, its session, and the edge that owned that; all empty if there is none."""
    words: Any = request.split(" ")
    return tuple(words) if len(words) == 3 else ("", "", "")
