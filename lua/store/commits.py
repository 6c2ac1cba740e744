"""Placing a request on a node: one script if its keys may share a call, else reserve and bind.

On one server all keys may share a call. On Redis Cluster only a node in the session's own hash slot can be taken in one
script; for any other a place on the node is reserved first, with a short lease, and the bind in the session's hash slot
decides. Whoever loses the bind gives its place back; whoever dies in between costs the short lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from lua.engine.runner import Call, Runner
from lua.store.jobs import JobStore, holder_of, words_of
from lua.store.types.commits import Bound, CommitRequest, Committed
from lua.store.types.jobs import Release
from mesh.cells import cell_of, job_id_in
from mesh.config import Config
from mesh.errors import StoreError
from mesh.keys import Keys, lease_member
from mesh.states.job import JobState

#: In place of the slots that a choice assumed: any number will do.
ANY_USED: Final = -1
#: A request, its candidates, the slots assumed of each.
_Asked = tuple[CommitRequest, Sequence[str], Sequence[int]]
_NOWHERE: Final = Bound(0, "", "", "", 0)


class CommitStore:
    """Commits requests."""

    def __init__(self, runner: Runner, keys: Keys, config: Config, jobs: JobStore) -> None:
        self._runner = runner
        self._keys = keys
        self._config = config
        self._cells = config.mesh.cells
        self._jobs = jobs
        #: As long as a slot, and as long as an edge may ask after its request.
        self._bound_ms = max(config.job.lease_ms, config.job.deadline_ms)
        #: The same in every call.
        self._limits = {
            "heartbeat_timeout_ms": config.node.heartbeat_timeout_ms, "keep_ms": jobs.keep_ms,
            "leases_ms": jobs.leases_ms,
        }  # fmt: skip

    async def commit(self, requests: Sequence[CommitRequest]) -> list[Committed]:
        """Place each request on its first candidate with a free slot, once per request id. Never raises StoreError."""
        if self._runner.is_cluster:
            placed = list(await asyncio.gather(*(self._place_in_cluster(request) for request in requests)))
        else:
            placed = await self._place_together([(one, one.candidates, _expected(one)) for one in requests])
        bound = [place for place, one in enumerate(placed) if one.verdict == "bound"]
        if bound:
            looked_up = await self._with_states([placed[place] for place in bound])
            for place, one in zip(bound, looked_up, strict=True):
                placed[place] = one
        return placed

    async def find(self, request_id: str, session_id: str) -> Bound | None:
        """Where a request is bound, if it is."""
        [text] = await self._runner.call("request_get", [self._binding(request_id, session_id)], {})
        return _read(text) if text else None

    # one script
    async def _place_together(self, asked: Sequence[_Asked]) -> list[Committed]:
        answers = await self._runner.call_many("job_commit", [self._commit_call(*one) for one in asked])
        return [_committed(answer, candidates) for answer, (_, candidates, _) in zip(answers, asked, strict=True)]

    def _commit_call(self, request: CommitRequest, candidates: Sequence[str], expected: Sequence[int]) -> Call:
        keys = [self._binding(request.request_id, request.session_id)]
        each = []
        for node_id, used in zip(candidates, expected, strict=True):
            cell, node_keys = self._jobs.node_keys(node_id)
            job_id = job_id_in(cell, request.unique)
            keys += node_keys
            keys.append(self._keys.job(cell, job_id))
            each.append({"node_id": node_id, "job_id": job_id, "expected": used})
        args = {
            "request": _request_words(request), "about": _about(request), "attempt": request.attempt,
            "lease_ms": self._jobs.lease_ms, "bound_ms": self._bound_ms, "candidates": each, **self._limits,
        }  # fmt: skip
        return Call(keys, args)

    # reserve, then bind
    async def _place_in_cluster(self, request: CommitRequest) -> Committed:
        reasons: list[str] = []
        seen: list[tuple[str, int, int]] = []
        try:
            for node_id, expected in zip(request.candidates, _expected(request), strict=True):
                placed = await self._try_candidate(request, node_id, expected)
                if not placed.is_passed_over:
                    return placed._replace(seen=tuple(seen))
                reasons += placed.reasons
                seen += placed.seen
            # No candidate was taken, but perhaps only because this request is placed already.
            bound = await self.find(request.request_id, request.session_id)
        except StoreError as error:
            return Committed("unknown", reasons=(str(error),))
        if bound and bound.attempt >= request.attempt:
            return _placed("bound", bound)
        return _passed_over(reasons, seen)._replace(attempt=request.attempt)

    async def _try_candidate(self, request: CommitRequest, node_id: str, expected: int) -> Committed:
        cell, node_keys = self._jobs.node_keys(node_id)
        if self._runner.same_slot([self._binding(request.request_id, request.session_id), node_keys[0]]):
            [placed] = await self._place_together([(request, [node_id], [expected])])
            if placed.verdict == "unknown":
                raise StoreError(*placed.reasons)
            return placed
        job_id = job_id_in(cell, request.unique)
        args = {
            "node_id": node_id, "member": lease_member(job_id, request.attempt),
            "holder": holder_of(request.attempt, node_id), "request": _request_words(request),
            "about": _about(request), "expected": expected, "provisional_ms": self._config.job.provisional_lease_ms,
            **self._limits,
        }  # fmt: skip
        reserved = await self._runner.call("node_reserve", [*node_keys, self._keys.job(cell, job_id)], args)
        if reserved[0] != "ok":
            verdict, _, _, used, version, _ = reserved
            return _passed_over([verdict], [(node_id, used, version)] if used >= 0 else [])
        return await self._bind(request, node_id, job_id, reserved)

    async def _bind(self, request: CommitRequest, node_id: str, job_id: str, reserved: list[Any]) -> Committed:
        _, node_edge, node_epoch, used, version, until_ms = reserved
        args = {
            "wanted": f"{request.attempt} {job_id} {node_id} {node_edge} {node_epoch}", "job_id": job_id,
            "attempt": request.attempt, "until_ms": until_ms, "bound_ms": self._bound_ms,
        }  # fmt: skip
        binding = self._binding(request.request_id, request.session_id)
        verdict, text = await self._runner.call("request_bind", [binding], args)
        if verdict == "new":
            return _placed("new", _read(text), used, version)
        await self._release(Release(job_id, request.attempt, node_id, f"bind_{verdict}"))
        if verdict == "late":
            raise StoreError("the reserved slot lapsed before the request was bound")
        return _placed("bound", _read(text))

    async def _release(self, release: Release) -> None:
        with suppress(StoreError):  # the provisional lease expires
            await self._jobs.release(release)

    # both
    async def _with_states(self, placed: list[Committed]) -> list[Committed]:
        """Requests that were placed before: how far their jobs are. One whose record is gone was given up."""
        answers = await self._jobs.get_many([one.job_id for one in placed])
        return [
            Committed("unknown", reasons=(str(answer),)) if isinstance(answer, StoreError) else _with_state(one, answer)
            for one, answer in zip(placed, answers, strict=True)
        ]

    def _binding(self, request_id: str, session_id: str) -> str:
        return self._keys.binding(cell_of(session_id, self._cells), request_id)


def _request_words(request: CommitRequest) -> str:
    return f"{request.request_id} {request.session_id} {request.edge}"


def _about(request: CommitRequest) -> str:
    return f"{request.utterance_index} {request.deadline_ms} {request.trace_id}"


def _read(text: str) -> Bound:
    """A binding as the scripts store it."""
    try:
        attempt, job_id, node_id, node_edge, node_epoch = text.split(" ")
        return Bound(int(attempt), job_id, node_id, node_edge, int(node_epoch))
    except ValueError:
        raise StoreError(f"unreadable binding: {text!r}") from None


def _expected(request: CommitRequest) -> Sequence[int]:
    return request.expected or (ANY_USED,) * len(request.candidates)


def _placed(verdict: Any, bound: Bound, used: int = 0, version: int = 0) -> Committed:
    attempt, job_id, node_id, node_edge, node_epoch = bound
    state = JobState.CREATED if verdict == "new" else ""
    return Committed(verdict, job_id, node_id, node_edge, node_epoch, attempt, state, False, used, version)


def _passed_over(reasons: Sequence[str], seen: Sequence[tuple[str, int, int]]) -> Committed:
    """No candidate was taken. Slots are the reason only if one was passed over for them, as in job_commit."""
    return Committed("full" if seen else "unavailable", reasons=tuple(reasons), seen=tuple(seen))


def _with_state(placed: Committed, looked: list[Any]) -> Committed:
    state, outcome, _, request, _, ended_for_ms, _ = looked
    _, _, asked_by = words_of(request)
    return placed._replace(
        state=state or JobState.RELEASED, finished=outcome != "", ended_for_ms=ended_for_ms, asked_by=asked_by
    )


def _committed(answer: list[Any] | StoreError, candidates: Sequence[str]) -> Committed:
    if isinstance(answer, StoreError):
        return Committed("unknown", reasons=(str(answer),))
    verdict, text, used, version, reasons, passed_over = answer
    try:
        placed = _placed(verdict, _read(text) if text else _NOWHERE, used, version)
    except StoreError as error:
        return Committed("unknown", reasons=(str(error),))
    if not reasons and not passed_over:
        return placed
    seen = tuple(
        (candidates[passed_over[at] - 1], passed_over[at + 1], passed_over[at + 2])
        for at in range(0, len(passed_over), 3)
    )
    return placed._replace(reasons=tuple(reasons.split(",")) if reasons else (), seen=seen)
