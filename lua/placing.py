"""Placing a request on a node: one script if its keys may share a call, else reserve and bind.

On one server all keys may share a call. On Redis Cluster only a node in the session's own hash slot can be taken in one
script; for any other a place on the node is reserved first, with a short lease, and the bind in the session's hash slot
decides. Whoever loses the bind gives its place back; whoever dies in between costs the short lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from lua.answers import CommitRequest, Committed, Released
from lua.runner import Call, Runner
from mesh.cells import cell_of, cell_of_job, job_id_in
from mesh.config import Config
from mesh.errors import StoreError
from mesh.ids import is_id
from mesh.jobs import State
from mesh.keys import Keys, lease_member

#: Nodes whose key names are kept at hand: spelling them is most of the work of a commit.
NODES_REMEMBERED: Final = 65_536
_STATE: Final = {"new": State.CREATED, "bound": "", "full": ""}


class Placing:
    """Commit and release of jobs."""

    def __init__(self, runner: Runner, keys: Keys, config: Config) -> None:
        self._runner = runner
        self._keys = keys
        self._config = config
        self._cells = config.mesh.cells
        self._node_keys = lru_cache(NODES_REMEMBERED)(self._make_node_keys)
        #: Life of a job's record and of a set of leases: longer than any lease.
        self.keep_ms = config.job.lease_ms + config.job.record_extra_ms

    async def place(self, requests: Sequence[CommitRequest]) -> list[Committed]:
        """What became of each request, in order."""
        if self._runner.is_cluster:
            placed = list(await asyncio.gather(*(self._place_in_cluster(request) for request in requests)))
        else:
            placed = await self._place_together([(request, request.candidates) for request in requests])
        bound = [place for place, one in enumerate(placed) if one.verdict == "bound"]
        looked_up = await asyncio.gather(*(self._with_state(placed[place]) for place in bound))
        for place, one in zip(bound, looked_up, strict=True):
            placed[place] = one
        return placed

    async def release(self, job_id: str, attempt: int, node_id: str, reason: str) -> Released:
        """Give the slot of exactly this attempt back."""
        cell, keys = self.job_cell(job_id), self._keys
        if cell is None:
            return Released("unknown", -1, 0)
        names = [keys.job(cell, job_id), keys.leases(cell, node_id), keys.ledger(cell), keys.changes(cell)]
        args = {
            "node_id": node_id, "member": lease_member(job_id, attempt), "attempt": attempt, "reason": reason,
            "keep_ms": self.keep_ms,
        }  # fmt: skip
        return Released(*await self._runner.call("job_release", names, args))

    def job_cell(self, job_id: str) -> int | None:
        """The cell of a job; None if no job of ours can have this id. Nodes may send us anything."""
        try:
            cell = cell_of_job(job_id)
        except ValueError:
            return None
        return cell if is_id(job_id) and 0 <= cell < self._cells else None

    # one script
    async def _place_together(self, asked: Sequence[tuple[CommitRequest, Sequence[str]]]) -> list[Committed]:
        answers = await self._runner.call_many("job_commit", [self._commit_call(*one) for one in asked])
        return [_committed(answer) for answer in answers]

    def _commit_call(self, request: CommitRequest, candidates: Sequence[str]) -> Call:
        keys = [self._binding(request)]
        each = []
        for node_id in candidates:
            cell, node_keys = self._node_keys(node_id)
            job_id = job_id_in(cell, request.unique)
            keys += node_keys
            keys.append(self._keys.job(cell, job_id))
            each.append({"node_id": node_id, "job_id": job_id, "member": lease_member(job_id, request.attempt)})
        args = self._job_args(request) | {"lease_ms": self._config.job.lease_ms, "candidates": each}
        return Call(keys, args)

    # reserve, then bind
    async def _place_in_cluster(self, request: CommitRequest) -> Committed:
        reasons: list[str] = []
        try:
            for node_id in request.candidates:
                placed = await self._try_candidate(request, node_id)
                if placed.verdict != "full":
                    return placed
                reasons += placed.reasons
            # Nothing was free, but perhaps only because this request is placed already.
            bound = await self._runner.call("request_look", [self._binding(request)], {})
        except StoreError as error:
            return Committed("unknown", reasons=(str(error),))
        job_id, node_id, node_edge, node_epoch, attempt = bound
        if job_id and attempt >= request.attempt:
            return Committed("bound", job_id, node_id, node_edge, node_epoch, attempt)
        return Committed("full", attempt=request.attempt, reasons=tuple(reasons))

    async def _try_candidate(self, request: CommitRequest, node_id: str) -> Committed:
        cell, node_keys = self._node_keys(node_id)
        if self._runner.same_slot([self._binding(request), node_keys[0]]):
            [placed] = await self._place_together([(request, [node_id])])
            if placed.verdict == "unknown":
                raise StoreError(*placed.reasons)
            return placed
        job_id = job_id_in(cell, request.unique)
        args = self._job_args(request) | {
            "node_id": node_id, "member": lease_member(job_id, request.attempt),
            "provisional_ms": self._config.job.provisional_lease_ms,
        }  # fmt: skip
        reserved = await self._runner.call("node_reserve", [*node_keys, self._keys.job(cell, job_id)], args)
        if reserved[0] != "ok":
            return Committed("full", reasons=(reserved[0],))
        return await self._bind(request, node_id, job_id, reserved)

    async def _bind(self, request: CommitRequest, node_id: str, job_id: str, reserved: list[Any]) -> Committed:
        _, node_edge, node_epoch, used, version, until_ms = reserved
        args = {
            "job_id": job_id, "node_id": node_id, "node_edge": node_edge, "node_epoch": node_epoch,
            "attempt": request.attempt, "until_ms": until_ms, "lease_ms": self._config.job.lease_ms,
        }  # fmt: skip
        verdict, *bound = await self._runner.call("request_bind", [self._binding(request)], args)
        if verdict == "new":
            return Committed("new", *bound)._replace(state=State.CREATED, used=used, version=version)
        await self.release(job_id, request.attempt, node_id, f"bind_{verdict}")
        if verdict == "late":
            raise StoreError("the reserved slot lapsed before the request was bound")
        return Committed("bound", *bound)

    # both
    async def _with_state(self, placed: Committed) -> Committed:
        """A request that was placed before: how far its job is. One whose record is gone was given up."""
        key = self._keys.job(cell_of_job(placed.job_id), placed.job_id)
        try:
            state, outcome = await self._runner.call("job_look", [key], {})
        except StoreError as error:
            return Committed("unknown", reasons=(str(error),))
        return placed._replace(state=state or State.RELEASED, finished=outcome != "")

    def _binding(self, request: CommitRequest) -> str:
        return self._keys.binding(cell_of(request.session_id, self._cells), request.request_id)

    def _make_node_keys(self, node_id: str) -> tuple[int, list[str]]:
        cell, keys = cell_of(node_id, self._cells), self._keys
        return cell, [keys.node(cell, node_id), keys.leases(cell, node_id), keys.ledger(cell), keys.changes(cell)]

    def _job_args(self, request: CommitRequest) -> dict[str, Any]:
        return {
            "request_id": request.request_id, "session_id": request.session_id, "edge": request.edge,
            "utterance_index": request.utterance_index, "attempt": request.attempt,
            "deadline_ms": request.deadline_ms, "trace_id": request.trace_id,
            "heartbeat_timeout_ms": self._config.node.heartbeat_timeout_ms, "keep_ms": self.keep_ms,
        }  # fmt: skip


def _committed(answer: list[Any] | StoreError) -> Committed:
    if isinstance(answer, StoreError):
        return Committed("unknown", reasons=(str(answer),))
    verdict, job_id, node_id, node_edge, node_epoch, attempt, used, version, reasons = answer
    return Committed(
        verdict, job_id, node_id, node_edge, node_epoch, attempt, _STATE[verdict], False, used, version,
        tuple(reasons.split(",")) if reasons else (),
    )  # fmt: skip
