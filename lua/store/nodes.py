"""Changes of nodes: registration, heartbeats with lease audit, detach, drain, timeouts, missing models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lua.engine.batch import Answer, sure
from lua.engine.runner import Call, Runner
from lua.store.jobs import JobStore, holder_of
from lua.store.node_view import (
    Changes,
    pack_caps,
    pack_load,
    quote_reason,
    read_changes,
    unpack_marks,
    unquote_reason,
)
from lua.store.types.nodes import Drained, Heartbeat, HeartbeatReply, Mark, Marked, Registered, StatusChange
from mesh.cells import cell_of
from mesh.config import Config
from mesh.errors import StoreError
from mesh.frames import NodeCaps, NodeLoad
from mesh.keys import Keys, lease_member
from mesh.states.job import RUNNING_JOBS_MAX
from mesh.states.node import NodeEvent

#: Optimistic locking: another process may change a node's pools between read and write. Attempts until StoreError.
POOL_ATTEMPTS_MAX: Final = 4
#: Maximum number of nodes per call of `expire`.
SCAN_MAX: Final = 64
#: Maximum number of missing services per node.
MARKS_MAX: Final = 64
#: Maximum length of a stored service name.
SERVICE_MAX: Final = 128


class NodeStore:
    """The records of nodes, the lists of their cells and their pools."""

    def __init__(self, runner: Runner, keys: Keys, config: Config, jobs: JobStore) -> None:
        self._runner = runner
        self._keys = keys
        self._cells = config.mesh.cells
        self._jobs = jobs
        self._node_keys = jobs.node_keys
        node, models = config.node, config.models
        self._timeouts = {
            "heartbeat_timeout_ms": node.heartbeat_timeout_ms,
            "record_ttl_ms": node.record_ttl_seconds * 1_000,
        }
        self._grace = {"reconnect_grace_ms": config.edge.reconnect_grace_ms}
        self._tombstones = {"tombstones_max": node.tombstones_max}
        #: Bounds by which heartbeats are judged and leases audited.
        self._health = {
            "health_checks": node.health_checks,
            "warmup_timeout_ms": node.warmup_timeout_ms,
            "failure_window": node.failure_window,
            "failures_max": node.failures_max,
            "failures_in_row_max": node.failures_in_row_max,
            "lease_ms": config.job.lease_ms,
            "provisional_ms": config.job.provisional_lease_ms,
            "leases_ms": jobs.leases_ms,
        }
        self._audit_grace_ms = node.audit_grace_ms
        self._marking = {
            "window_ms": models.node_rate_window_ms,
            "words_max": models.node_rate_max,
            "unavailable_ms": models.unavailable_ms,
            "marks_max": MARKS_MAX,
        }

    async def register(
        self, node_id: str, edge: str, caps: NodeCaps, pools: Sequence[str], ref: str = ""
    ) -> Registered:
        """Write the node's record for a new connection; a later registration always gets a higher epoch.

        `ref` numbers the registrations of an edge: a delayed duplicate is recognised by it and changes nothing.
        """
        args = {
            "node_id": node_id,
            "edge": edge,
            "ref": ref,
            "max_jobs": caps.max_jobs,
            "caps": pack_caps(caps),
            "load": pack_load(NodeLoad()),
            "leases_ms": self._jobs.leases_ms,
            **self._timeouts,
        }
        answer = await self._with_pools("node_register", node_id, args, pools)
        verdict, _, epoch, status, used, version = answer
        return Registered(epoch, status, used, version, verdict == "ok")

    # heartbeats
    async def heartbeat_many(self, beats: Sequence[Heartbeat]) -> list[HeartbeatReply | StoreError]:
        """Renew the records and correct their slots by the running jobs; an error in place of each that failed."""
        calls = [self._heartbeat_call(beat, None, (), "") for beat in beats]
        return await self._audited(beats, await self._runner.call_many("node_heartbeat", calls))

    async def heartbeat(
        self, beat: Heartbeat, caps: NodeCaps | None = None, pools: Sequence[str] | None = None
    ) -> HeartbeatReply:
        """Renew one record. `caps` and `pools` None leave the stored ones unchanged; give both or neither."""
        if caps is None or pools is None:
            assert caps is None and pools is None, "capabilities decide the pools: give both or neither"
            [reply] = await self.heartbeat_many([beat])
            return sure(reply)
        before = ""
        for _ in range(POOL_ATTEMPTS_MAX):
            call = self._heartbeat_call(beat, caps, pools, before)
            answer = await self._runner.call("node_heartbeat", *call)
            if answer[0] != "pools":
                [reply] = await self._audited([beat], [answer])
                return sure(reply)
            before = answer[1]
        raise _pools_unstable(beat.node_id)

    def _heartbeat_call(self, beat: Heartbeat, caps: NodeCaps | None, pools: Sequence[str], before: str) -> Call:
        cell = cell_of(beat.node_id, self._cells)
        runs = None if beat.jobs is None or len(beat.jobs) > RUNNING_JOBS_MAX else self._runs(beat, cell)
        args = {
            "node_id": beat.node_id,
            "edge": beat.edge,
            "epoch": beat.epoch,
            "event": NodeEvent.HEALTHY if beat.healthy else NodeEvent.UNHEALTHY,
            "load": pack_load(beat.load),
            "caps": pack_caps(caps) if caps else b"",
            "max_jobs": caps.max_jobs if caps else 0,
            "grace_ms": -1 if runs is None else self._audit_grace_ms,
            **self._timeouts,
            **self._health,
            "runs": [{"member": member, "holder": holder} for _, member, holder in runs or ()],
        }
        call = self._pool_call(beat.node_id, args, pools, before)
        return call._replace(keys=call.keys + [self._keys.job(cell, job_id) for job_id, _, _ in runs or ()])

    def _runs(self, beat: Heartbeat, cell: int) -> list[tuple[str, str, str]]:
        """Job, lease member and holder of each job that the node reports as running, without invalid ids."""
        runs = []
        for member in dict.fromkeys(beat.jobs or ()):
            job_id, attempt = _split_member(member)
            if self._jobs.cell(job_id) == cell and attempt > 0:
                runs.append((job_id, lease_member(job_id, attempt), holder_of(attempt, beat.node_id)))
        return runs

    async def _audited(
        self, beats: Sequence[Heartbeat], answers: Sequence[Answer]
    ) -> list[HeartbeatReply | StoreError]:
        """The replies to the heartbeats, after orphaned leases were released.

        The jobs of those leases are known only now, and a script may use only declared keys: so it takes a second call.
        If that fails, the next heartbeat repeats it.
        """
        replies = [_heartbeat_reply(answer) for answer in answers]
        orphaned = [
            (place, member.decode(), until_ms)
            for place, answer in enumerate(answers)
            if not isinstance(answer, StoreError)
            for member, until_ms in zip(answer[8][::2], answer[8][1::2], strict=True)
        ]
        if not orphaned:
            return replies
        calls = [self._audit_call(beats[place].node_id, member, until_ms) for place, member, until_ms in orphaned]
        for (place, _, _), answer in zip(orphaned, await self._runner.call_many("lease_audit", calls), strict=True):
            known = replies[place]
            if not isinstance(answer, StoreError) and isinstance(known, HeartbeatReply):
                verdict, used, version = answer
                replies[place] = known._replace(
                    used=used, version=max(version, known.version), leaked=known.leaked + (verdict == "freed")
                )
        return replies

    def _audit_call(self, node_id: str, member: str, until_ms: int) -> Call:
        cell, (_, *node_keys) = self._node_keys.of(node_id)
        job_id, attempt = _split_member(member)
        args = {
            "node_id": node_id,
            "member": member,
            "holder": holder_of(attempt, node_id),
            "until_ms": until_ms,
        }
        return Call([self._keys.job(cell, job_id), *node_keys], args)

    # state
    async def detach(self, node_id: str, epoch: int, reason: str) -> bool:
        """The socket of this connection closed; the node stays listed. False: not the node's connection, or known."""
        args = {"node_id": node_id, "epoch": epoch, "reason": quote_reason(reason), **self._grace}
        [verdict] = await self._runner.call("node_detach", self._node_keys.state(node_id), args)
        return bool(verdict == "ok")

    async def set_offline(self, node_id: str, epoch: int, reason: str) -> bool:
        """Remove the node from the lists if `epoch` is in force; its leases stay until released or expired."""
        args = {"node_id": node_id, "epoch": epoch, "reason": quote_reason(reason), **self._tombstones}
        answer = await self._with_pools("node_offline", node_id, args, None)
        return bool(answer[0] == "ok")

    async def drain(self, node_id: str, for_ms: int, reason: str, *, resume: bool = False) -> Drained:
        """Assign no more jobs to the node until it is resumed, or registers again after `for_ms`."""
        args = {
            "node_id": node_id,
            "event": NodeEvent.RESUME if resume else NodeEvent.DRAIN,
            "for_ms": for_ms,
            "reason": quote_reason(reason),
            **self._timeouts,
            **self._grace,
        }
        known, *rest = await self._runner.call("node_drain", self._node_keys.state(node_id), args)
        return Drained(bool(known), *rest)

    async def expire(self, cell: int) -> list[StatusChange]:
        """Apply timeouts: silent nodes become offline, long offline ones leave the lists. At most SCAN_MAX per call."""
        keys = self._keys
        [flat] = await self._runner.call("node_list_due", [keys.due(cell), keys.view(cell)], {"limit": SCAN_MAX})
        due = [(raw_id.decode(), pools.decode()) for raw_id, pools in zip(flat[::2], flat[1::2], strict=True)]
        calls = []
        for node_id, pools in due:
            args = {"node_id": node_id, **self._tombstones, **self._timeouts, **self._grace}
            calls.append(self._pool_call(node_id, args, None, pools))
        changed, failed = [], []
        for (node_id, _), answer in zip(due, await self._runner.call_many("node_expire", calls), strict=True):
            if isinstance(answer, StoreError):
                failed.append(answer)
                continue
            verdict, _, edge, epoch, status, reason = answer
            if verdict == "changed":  # "pools": they changed in between, the next call will do
                changed.append(StatusChange(node_id, edge, epoch, status, unquote_reason(reason)))
        if failed and not changed:  # no other caller gets the changes
            raise failed[0]
        return changed

    async def changes(self, cells: Sequence[tuple[int, int]], limit: int) -> list[Changes | StoreError]:
        """For each (cell, since): at most `limit` of its nodes that changed after version `since` (0 = all)."""
        calls = [Call(self._node_keys.snapshot[cell], {"since": since, "limit": limit}) for cell, since in cells]
        return read_changes(await self._runner.call_many("node_changes", calls))

    # models
    async def mark_models(self, marks: Sequence[Mark]) -> list[Marked | StoreError]:
        """Exclude nodes from jobs that need models they lack, for a while; an error in place of each that failed."""
        answers = await self._runner.call_many("model_mark", [self._mark_call(one) for one in marks])
        return [_marked(answer) for answer in answers]

    def _mark_call(self, one: Mark) -> Call:
        cell, node_keys = self._node_keys.of(one.node_id)
        args = {
            "node_id": one.node_id,
            "epoch": one.epoch,
            "service": (one.service or one.service_id)[:SERVICE_MAX],
            "count": one.count,
            **self._marking,
        }
        return Call([*node_keys, self._keys.marks(cell), self._keys.model_words(cell, one.node_id)], args)

    async def _with_pools(
        self, script: str, node_id: str, args: dict[str, Any], pools: Sequence[str] | None
    ) -> list[Any]:
        """Call a script that moves a node between pools (None: out of all).

        A script may use only declared keys, so the call names the expected stored pools. If others are stored, the
        script changes nothing and returns them, and the call is retried.
        """
        before = ""
        for _ in range(POOL_ATTEMPTS_MAX):
            answer = await self._runner.call(script, *self._pool_call(node_id, args, pools, before))
            if answer[0] != "pools":
                return answer
            before = answer[1]
        raise _pools_unstable(node_id)

    def _pool_call(self, node_id: str, args: dict[str, Any], pools: Sequence[str] | None, pools_before: str) -> Call:
        keys, pool_args = self._node_keys.with_pools(node_id, pools, pools_before)
        return Call(keys, args | pool_args)


def _split_member(member: str) -> tuple[str, int]:
    """Job and attempt of a lease member (inverse of mesh.keys.lease_member); attempt 0 if it is no number."""
    job_id, _, attempt = member.rpartition("#")
    return job_id, int(attempt) if attempt.isascii() and attempt.isdecimal() else 0


def _pools_unstable(node_id: str) -> StoreError:
    return StoreError(f"the pools of {node_id} change faster than they can be written")


def _heartbeat_reply(answer: Answer) -> HeartbeatReply | StoreError:
    if isinstance(answer, StoreError):
        return answer
    verdict, _, used, version, status, status_before, reason, missing, _ = answer
    return HeartbeatReply(verdict, used, version, status, status_before, unquote_reason(reason), 0, missing)


def _marked(answer: Answer) -> Marked | StoreError:
    if isinstance(answer, StoreError):
        return answer
    verdict, version, packed = answer
    return Marked(verdict, version, unpack_marks(packed) if packed else {})
