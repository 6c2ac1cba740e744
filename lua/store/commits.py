"""Commits: places requests on nodes. One script if its keys may share a call, else reserve and bind.

On one server all keys may share a call. On Redis Cluster only a node in the session's own hash slot can be committed
in one script. For any other node a slot is reserved first, with a provisional lease, and the bind in the session's hash
slot is the commit point. A caller that loses the bind releases the slot; if it dies in between, the lease expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from lua.engine.runner import Call, Runner
from lua.store.jobs import JobStore, holder_of, split_request
from lua.store.types.commits import PASSED_OVER, Bound, CommitRequest, Committed
from lua.store.types.jobs import Release
from mesh.cells import cell_of, job_id_in
from mesh.config import Config
from mesh.errors import StoreError
from mesh.keys import Keys, lease_member
from mesh.states.job import JobState

#: In place of the slots in use assumed by the selection: any number.
ANY_USED: Final = -1
#: Arguments of job_commit in header order: their lists are built here, because a dictionary per call costs more.
COMMIT_ARGS: Final = (
    *("request", "about", "attempt", "heartbeat_timeout_ms", "lease_ms", "bound_ms", "keep_ms", "leases_ms"),
)
CANDIDATE_ARGS: Final = ("node_id", "job_id", "expected")
_UNBOUND: Final = Bound("", "", "", 0, 0)


class CommitStore:
    """Binds requests to nodes. Idempotent per request id and attempt."""

    def __init__(self, runner: Runner, keys: Keys, config: Config, jobs: JobStore) -> None:
        self._runner = runner
        self._keys = keys
        self._config = config
        self._cells = config.mesh.cells
        self._jobs = jobs
        self._node_keys = jobs.node_keys.of
        #: TTL of a binding: at least a lease, and the time in which an edge may retry its request.
        self._bound_ms = max(config.job.lease_ms, config.job.deadline_ms)
        #: Arguments that are the same in every call.
        self._limits = {
            "heartbeat_timeout_ms": config.node.heartbeat_timeout_ms,
            "keep_ms": jobs.record_ms,
            "leases_ms": jobs.leases_ms,
        }
        limits = (config.node.heartbeat_timeout_ms, jobs.lease_ms, self._bound_ms, jobs.record_ms, jobs.leases_ms)
        #: As bytes: an integer is converted anew for each call.
        self._ordered_limits = tuple(str(limit).encode() for limit in limits)
        runner.check_order("job_commit", COMMIT_ARGS, {"candidates": CANDIDATE_ARGS})

    async def commit(self, requests: Sequence[CommitRequest]) -> list[Committed]:
        """Place each request on its first candidate with a free slot, once per request id. Never raises StoreError."""
        if self._runner.is_cluster:
            committed = list(await asyncio.gather(*(self._commit_in_cluster(request) for request in requests)))
        else:
            answers = await self._runner.call_many("job_commit", [self._commit_call(one) for one in requests])
            committed = [read_committed(answer, one.candidates) for answer, one in zip(answers, requests, strict=True)]
        return await self.add_states(committed)

    async def add_states(self, committed: list[Committed]) -> list[Committed]:
        """The same, with the states of the jobs of requests that were bound before."""
        bound = [index for index, one in enumerate(committed) if one.verdict == "bound"]
        if bound:
            with_states = await self._with_states([committed[index] for index in bound])
            for index, one in zip(bound, with_states, strict=True):
                committed[index] = one
        return committed

    async def find(self, request_id: str, session_id: str) -> Bound | None:
        """The binding of a request, None if there is none."""
        binding = self._keys.binding(cell_of(session_id, self._cells), request_id)
        [text] = await self._runner.call("request_get", [binding], {})
        return _read_binding(text) if text else None

    # one script
    def _commit_call(self, request: CommitRequest) -> Call:
        keys: list[str] = []
        args: list[Any] = []
        self.add_commit(keys, args, request)
        self.add_candidates(keys, args, request)
        return Call(keys, args)

    def add_commit(self, keys: list[str], args: list[Any], request: CommitRequest) -> None:
        """Append the key and the arguments of a request, in the order of COMMIT_ARGS."""
        keys.append(self._keys.binding(cell_of(request.session_id, self._cells), request.request_id))
        args += (_request_text(request), _about_text(request), request.attempt, *self._ordered_limits)

    def add_candidates(self, keys: list[str], args: list[Any], request: CommitRequest) -> None:
        """Append the number of candidates, and the keys and arguments of each, in the order of CANDIDATE_ARGS."""
        candidates, unique, node_keys_of, job_key = request.candidates, request.unique, self._node_keys, self._keys.job
        args.append(len(candidates))
        for node_id, used in zip(candidates, request.expected or (ANY_USED,) * len(candidates), strict=True):
            cell, node_keys = node_keys_of(node_id)
            job_id = job_id_in(cell, unique)
            keys += node_keys
            keys.append(job_key(cell, job_id))
            args += (node_id, job_id, used)

    # reserve, then bind
    async def _commit_in_cluster(self, request: CommitRequest) -> Committed:
        reasons: list[str] = []
        seen: list[tuple[str, int, int]] = []
        try:
            expected = request.expected or (ANY_USED,) * len(request.candidates)
            for node_id, used in zip(request.candidates, expected, strict=True):
                placed = await self._try_candidate(request, node_id, used)
                if placed.verdict not in PASSED_OVER:
                    return placed._replace(seen=tuple(seen))
                reasons += placed.reasons
                seen += placed.seen
            # No candidate was accepted, perhaps only because this request is bound already.
            bound = await self.find(request.request_id, request.session_id)
        except StoreError as error:
            return Committed("unknown", reasons=(str(error),))
        if bound and bound.attempt >= request.attempt:
            return Committed("bound", *bound)
        return _not_placed(reasons, seen)._replace(attempt=request.attempt)

    async def _try_candidate(self, request: CommitRequest, node_id: str, expected: int) -> Committed:
        cell, node_keys = self._jobs.node_keys.of(node_id)
        binding = self._keys.binding(cell_of(request.session_id, self._cells), request.request_id)
        if self._runner.same_slot([binding, node_keys[0]]):
            call = self._commit_call(request._replace(candidates=[node_id], expected=[expected]))
            [answer] = await self._runner.call_many("job_commit", [call])
            placed = read_committed(answer, [node_id])
            if placed.verdict == "unknown":
                raise StoreError(*placed.reasons)
            return placed
        job_id = job_id_in(cell, request.unique)
        args = {
            "node_id": node_id,
            "member": lease_member(job_id, request.attempt),
            "holder": holder_of(request.attempt, node_id),
            "expected": expected,
            "provisional_ms": self._config.job.provisional_lease_ms,
            **_record_args(request),
            **self._limits,
        }
        reserved = await self._runner.call("node_reserve", [*node_keys, self._keys.job(cell, job_id)], args)
        if reserved[0] != "ok":
            verdict, _, _, used, version, _ = reserved
            return _not_placed([verdict], [(node_id, used, version)] if used >= 0 else [])
        return await self._bind(request, binding, node_id, job_id, reserved)

    async def _bind(
        self, request: CommitRequest, binding: str, node_id: str, job_id: str, reserved: list[Any]
    ) -> Committed:
        _, node_edge, node_epoch, used, version, until_ms = reserved
        args = {
            "wanted": f"{request.attempt} {job_id} {node_id} {node_edge} {node_epoch}",
            "job_id": job_id,
            "attempt": request.attempt,
            "until_ms": until_ms,
            "bound_ms": self._bound_ms,
        }
        verdict, text = await self._runner.call("request_bind", [binding], args)
        if verdict == "new":
            return Committed("new", *_read_binding(text), JobState.CREATED, used=used, version=version)
        with suppress(StoreError):  # the provisional lease expires
            await self._jobs.release(Release(job_id, request.attempt, node_id, f"bind_{verdict}"))
        if verdict == "late":
            raise StoreError("the provisional lease expired before the request was bound")
        return Committed("bound", *_read_binding(text))

    # both
    async def _with_states(self, placed: list[Committed]) -> list[Committed]:
        """Add the job states to requests that were bound before. A job without a record counts as released."""
        answers = await self._jobs.get_many([one.job_id for one in placed])
        return [
            Committed("unknown", reasons=(str(answer),)) if isinstance(answer, StoreError) else _with_state(one, answer)
            for one, answer in zip(placed, answers, strict=True)
        ]


def _record_args(request: CommitRequest) -> dict[str, str]:
    """The fields of a job's record that only tell of its request."""
    return {"request": _request_text(request), "about": _about_text(request)}


def _request_text(request: CommitRequest) -> str:
    return f"{request.request_id} {request.session_id} {request.edge}"


def _about_text(request: CommitRequest) -> str:
    return f"{request.utterance_index} {request.deadline_ms} {request.trace_id}"


def _read_binding(text: str) -> Bound:
    """A binding as the scripts store it."""
    try:
        attempt, job_id, node_id, node_edge, node_epoch = text.split(" ")
        return Bound(job_id, node_id, node_edge, int(node_epoch), int(attempt))
    except ValueError:
        raise StoreError(f"unreadable binding: {text!r}") from None


def _not_placed(reasons: Sequence[str], seen: Sequence[tuple[str, int, int]]) -> Committed:
    """No candidate was accepted: "full" only if at least one was skipped for lack of slots, as in job_commit."""
    return Committed("full" if seen else "unavailable", reasons=tuple(reasons), seen=tuple(seen))


def _with_state(placed: Committed, record: list[Any]) -> Committed:
    state, outcome, _, request, _, ended_for_ms, _ = record
    _, _, asked_by = split_request(request)
    return placed._replace(
        state=state or JobState.RELEASED, finished=outcome != "", ended_for_ms=ended_for_ms, asked_by=asked_by
    )


def read_committed(answer: list[Any] | StoreError, candidates: Sequence[str]) -> Committed:
    """The answer of job_commit, or of job_turnover about the request."""
    if isinstance(answer, StoreError):
        return Committed("unknown", reasons=(str(answer),))
    verdict, text, used, version, reasons, passed_over = answer
    try:
        bound = _read_binding(text) if text else _UNBOUND
    except StoreError as error:
        return Committed("unknown", reasons=(str(error),))
    state = JobState.CREATED if verdict == "new" else ""
    placed = Committed(verdict, *bound, state, used=used, version=version)
    if not reasons and not passed_over:
        return placed
    seen = tuple(
        (candidates[passed_over[at] - 1], passed_over[at + 1], passed_over[at + 2])
        for at in range(0, len(passed_over), 3)
    )
    return placed._replace(reasons=tuple(reasons.split(",")) if reasons else (), seen=seen)
