"""Calls about nodes: registration, heartbeats with their audit, and all that ends a node or holds it back."""

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
    read_changes,
    read_reason,
    spell_reason,
    unpack_marks,
)
from lua.store.types.nodes import Drained, Heartbeat, HeartbeatReply, Mark, Marked, Registered, StatusChange
from mesh.cells import cell_of
from mesh.config import Config
from mesh.errors import StoreError
from mesh.frames import NodeCaps, NodeLoad
from mesh.ids import is_id
from mesh.keys import Keys, lease_member
from mesh.states.job import RUNNING_JOBS_MAX
from mesh.states.node import NodeEvent

#: Somebody else may change a node's pools between our look and our write; so often we look again.
POOL_TRIES: Final = 4
#: Nodes that one scan of a cell looks at.
SCAN_MAX: Final = 64
#: Services that one node can lack at a time.
MARKS_MAX: Final = 64
#: Characters of a service's name that are kept.
SERVICE_MAX: Final = 128


class NodeStore:
    """The records of nodes, their lists and pools."""

    def __init__(self, runner: Runner, keys: Keys, config: Config, jobs: JobStore) -> None:
        self._runner = runner
        self._keys = keys
        self._cells = config.mesh.cells
        self._jobs = jobs
        node, models = config.node, config.models
        #: When time changes a node.
        self._times = {
            "heartbeat_timeout_ms": node.heartbeat_timeout_ms, "record_ttl_ms": node.record_ttl_seconds * 1_000,
        }  # fmt: skip
        self._grace = {"reconnect_grace_ms": config.edge.reconnect_grace_ms}
        self._tombstones = {"tombstones_max": node.tombstones_max}
        #: What heartbeats are judged by, and leases compared by.
        self._health = {
            "health_checks": node.health_checks, "warmup_timeout_ms": node.warmup_timeout_ms,
            "failure_window": node.failure_window, "failures_max": node.failures_max,
            "failures_in_row_max": node.failures_in_row_max, "lease_ms": config.job.lease_ms,
            "provisional_ms": config.job.provisional_lease_ms, "leases_ms": jobs.leases_ms,
        }  # fmt: skip
        self._audit_grace_ms = node.audit_grace_ms
        self._marking = {
            "window_ms": models.node_rate_window_ms, "words_max": models.node_rate_max,
            "unavailable_ms": models.unavailable_ms, "marks_max": MARKS_MAX,
        }  # fmt: skip
        self._snapshot_keys = [self._make_snapshot_keys(cell) for cell in range(self._cells)]

    async def register(
        self, node_id: str, edge: str, caps: NodeCaps, pools: Sequence[str], ref: str = ""
    ) -> Registered:
        """Write the node's record for a new connection; a later registration always gets a higher epoch.

        `ref` numbers the registrations of an edge: a delayed duplicate is recognised by it and changes nothing.
        """
        args = {
            "node_id": node_id, "edge": edge, "ref": ref, "max_jobs": caps.max_jobs, "caps": pack_caps(caps),
            "load": pack_load(NodeLoad()), "leases_ms": self._jobs.leases_ms, **self._times,
        }  # fmt: skip
        answer = await self._with_pools("node_register", node_id, args, pools)
        verdict, _, epoch, status, used, version = answer
        return Registered(epoch, status, used, version, verdict == "ok")

    # heartbeats
    async def heartbeat_many(self, beats: Sequence[Heartbeat]) -> list[HeartbeatReply | StoreError]:
        """Renew the records and correct their slots by the running jobs; an error in place of each that failed."""
        calls = [self._beat_call(beat, None, (), "") for beat in beats]
        return await self._audited(beats, await self._runner.call_many("node_heartbeat", calls))

    async def heartbeat(
        self, beat: Heartbeat, caps: NodeCaps | None = None, pools: Sequence[str] | None = None
    ) -> HeartbeatReply:
        """Renew one record. `caps` and `pools` None leave the stored ones unchanged; give both or neither."""
        if caps is None or pools is None:
            assert caps is None and pools is None, "capabilities decide the pools: give both or neither"
            [beaten] = await self.heartbeat_many([beat])
            return sure(beaten)
        before = ""
        for _ in range(POOL_TRIES):
            call = self._beat_call(beat, caps, pools, before)
            answer = await self._runner.call("node_heartbeat", *call)
            if answer[0] != "pools":
                [beaten] = await self._audited([beat], [answer])
                return sure(beaten)
            before = answer[1]
        raise _restless(beat.node_id)

    def _beat_call(self, beat: Heartbeat, caps: NodeCaps | None, pools: Sequence[str], before: str) -> Call:
        cell = cell_of(beat.node_id, self._cells)
        runs = None if beat.jobs is None or len(beat.jobs) > RUNNING_JOBS_MAX else self._runs(beat, cell)
        args = {
            "node_id": beat.node_id, "edge": beat.edge, "epoch": beat.epoch,
            "event": NodeEvent.HEALTHY if beat.healthy else NodeEvent.UNHEALTHY, "load": pack_load(beat.load),
            "caps": pack_caps(caps) if caps else b"", "max_jobs": caps.max_jobs if caps else 0,
            "grace_ms": -1 if runs is None else self._audit_grace_ms, **self._times, **self._health,
            "runs": [{"member": member, "holder": holder} for _, member, holder in runs or ()],
        }  # fmt: skip
        keys, args = self._pool_call("node_heartbeat", beat.node_id, args, pools, before)
        return Call(keys + [self._keys.job(cell, job_id) for job_id, _, _ in runs or ()], args)

    def _runs(self, beat: Heartbeat, cell: int) -> list[tuple[str, str, str]]:
        """Job, lease and holder of each job that the node says it runs. What cannot be a job of its own is left out."""
        runs = []
        for member in dict.fromkeys(beat.jobs or ()):
            job_id, attempt = _parts(member)
            if self._jobs.cell(job_id) == cell and attempt > 0:
                runs.append((job_id, lease_member(job_id, attempt), holder_of(attempt, beat.node_id)))
        return runs

    async def _audited(
        self, beats: Sequence[Heartbeat], answers: Sequence[Answer]
    ) -> list[HeartbeatReply | StoreError]:
        """What became of the heartbeats, once the slots that nobody uses have been given back.

        Their jobs are known only now, and a script may use no key that it was not given: so it takes a second call. One
        that fails is made up for by the next heartbeat.
        """
        beaten = [_beaten(answer) for answer in answers]
        held = [
            (place, member.decode(), until_ms)
            for place, answer in enumerate(answers)
            if not isinstance(answer, StoreError)
            for member, until_ms in zip(answer[8][::2], answer[8][1::2], strict=True)
        ]
        if not held:
            return beaten
        calls = [self._audit_call(beats[place].node_id, member, until_ms) for place, member, until_ms in held]
        for (place, _, _), answer in zip(held, await self._runner.call_many("lease_audit", calls), strict=True):
            known = beaten[place]
            if not isinstance(answer, StoreError) and isinstance(known, HeartbeatReply):
                verdict, used, version = answer
                beaten[place] = known._replace(
                    used=used, version=max(version, known.version), leaked=known.leaked + (verdict == "freed")
                )
        return beaten

    def _audit_call(self, node_id: str, member: str, until_ms: int) -> Call:
        cell, (_, *node_keys) = self._jobs.node_keys(node_id)
        job_id, attempt = _parts(member)
        args = {
            "node_id": node_id, "member": member, "holder": holder_of(attempt, node_id), "until_ms": until_ms,
        }  # fmt: skip
        return Call([self._keys.job(cell, job_id), *node_keys], args)

    # what ends a node or holds it back
    async def detach(self, node_id: str, epoch: int, reason: str) -> bool:
        """The socket of this connection closed; the node stays listed. False: not the node's connection, or known."""
        args = {"node_id": node_id, "epoch": epoch, "reason": spell_reason(reason), **self._grace}
        [verdict] = await self._runner.call("node_detach", self._life_keys(node_id), args)
        return bool(verdict == "ok")

    async def set_offline(self, node_id: str, epoch: int, reason: str) -> bool:
        """Remove the node from the lists if `epoch` is in force; its leases stay until released or expired."""
        args = {"node_id": node_id, "epoch": epoch, "reason": spell_reason(reason), **self._tombstones}
        answer = await self._with_pools("node_offline", node_id, args, None)
        return bool(answer[0] == "ok")

    async def drain(self, node_id: str, for_ms: int, reason: str, *, resume: bool = False) -> Drained:
        """Assign no more jobs to the node until it is resumed, or registers again after `for_ms`."""
        args = {
            "node_id": node_id, "event": NodeEvent.RESUME if resume else NodeEvent.DRAIN, "for_ms": for_ms,
            "reason": spell_reason(reason), **self._times, **self._grace,
        }  # fmt: skip
        known, *rest = await self._runner.call("node_drain", self._life_keys(node_id), args)
        return Drained(bool(known), *rest)

    async def expire(self, cell: int) -> list[StatusChange]:
        """Apply timeouts: silent nodes become offline, long offline ones leave the lists. At most SCAN_MAX per call."""
        keys = self._keys
        [flat] = await self._runner.call("node_list_due", [keys.due(cell), keys.view(cell)], {"limit": SCAN_MAX})
        due = [(raw_id.decode(), pools.decode()) for raw_id, pools in zip(flat[::2], flat[1::2], strict=True)]
        calls = []
        for node_id, pools in due:
            args = {"node_id": node_id, **self._tombstones, **self._times, **self._grace}
            calls.append(Call(*self._pool_call("node_expire", node_id, args, None, pools)))
        changed, failed = [], []
        for (node_id, _), answer in zip(due, await self._runner.call_many("node_expire", calls), strict=True):
            if isinstance(answer, StoreError):
                failed.append(answer)
                continue
            verdict, _, edge, epoch, status, reason = answer
            if verdict == "changed":  # "pools": they moved in between, the next scan will do
                changed.append(StatusChange(node_id, edge, epoch, status, read_reason(reason)))
        if failed and not changed:  # what did change is told to nobody else
            raise failed[0]
        return changed

    async def changes(self, asked: Sequence[tuple[int, int]], limit: int) -> list[Changes | StoreError]:
        """For each (cell, since): at most `limit` of its nodes that changed after version `since` (0 = all)."""
        calls = [Call(self._snapshot_keys[cell], {"since": since, "limit": limit}) for cell, since in asked]
        return [read_changes(answer) for answer in await self._runner.call_many("node_changes", calls)]

    # models
    async def mark_models(self, asked: Sequence[Mark]) -> list[Marked | StoreError]:
        """Exclude nodes from jobs that need models they lack, for a while; an error in place of each that failed."""
        answers = await self._runner.call_many("model_mark", [self._mark_call(one) for one in asked])
        return [_marked(answer) for answer in answers]

    def _mark_call(self, one: Mark) -> Call:
        cell, node_keys = self._jobs.node_keys(one.node_id)
        args = {
            "node_id": one.node_id, "epoch": one.epoch, "service": (one.service or one.service_id)[:SERVICE_MAX],
            "count": one.count, **self._marking,
        }  # fmt: skip
        return Call([*node_keys, self._keys.marks(cell), self._keys.model_words(cell, one.node_id)], args)

    # keys
    def _make_snapshot_keys(self, cell: int) -> list[str]:
        keys = self._keys
        lists = [keys.nodes(cell), keys.ledger(cell), keys.changes(cell)]
        return [*lists, keys.view(cell), keys.speeds(cell), keys.marks(cell)]

    def _life_keys(self, node_id: str) -> list[str]:
        keys, cell = self._keys, cell_of(node_id, self._cells)
        return [keys.node(cell, node_id), keys.due(cell), keys.ledger(cell), keys.changes(cell), keys.view(cell)]

    async def _with_pools(
        self, script: str, node_id: str, args: dict[str, Any], pools: Sequence[str] | None
    ) -> list[Any]:
        """Call a script that moves a node between pools (None: out of all).

        A script may use only keys that were declared, so it is told which pools we believe are stored, and does
        nothing but correct us if they are others.
        """
        before = ""
        for _ in range(POOL_TRIES):
            answer = await self._runner.call(script, *self._pool_call(script, node_id, args, pools, before))
            if answer[0] != "pools":
                return answer
            before = answer[1]
        raise _restless(node_id)

    def _pool_call(
        self, script: str, node_id: str, args: dict[str, Any], pools: Sequence[str] | None, before: str
    ) -> tuple[list[str], dict[str, Any]]:
        keys, cell = self._keys, cell_of(node_id, self._cells)
        now = sorted(set(pools or ()))
        assert all(is_id(pool) for pool in now), f"pool names are ids: {now}"
        leave = sorted(set(before.split(",") if before else ()) - set(now))
        lists = [keys.nodes(cell), keys.due(cell), keys.ledger(cell), keys.changes(cell), keys.view(cell)]
        args = args | {"pools_before": before, "leaves": [{}] * len(leave)}
        if pools is None:  # the node leaves, and all that is known of it
            names = [keys.node(cell, node_id), *lists, keys.speeds(cell), keys.marks(cell)]
        else:
            names = [keys.node(cell, node_id), keys.leases(cell, node_id), *lists]
            names += [keys.pool(cell, pool) for pool in now]
            args |= {"pools": ",".join(now), "joins": [{}] * len(now)}
        return names + [keys.pool(cell, pool) for pool in leave], args


def _parts(member: str) -> tuple[str, int]:
    """Job and attempt of a lease, as mesh.keys.lease_member joined them; attempt 0 if that is no number."""
    job_id, _, attempt = member.rpartition("#")
    return job_id, int(attempt) if attempt.isascii() and attempt.isdecimal() else 0


def _restless(node_id: str) -> StoreError:
    return StoreError(f"the pools of {node_id} change faster than they can be written")


def _beaten(answer: Answer) -> HeartbeatReply | StoreError:
    if isinstance(answer, StoreError):
        return answer
    verdict, _, used, version, status, status_before, reason, missing, _ = answer
    return HeartbeatReply(verdict, used, version, status, status_before, read_reason(reason), 0, missing)


def _marked(answer: Answer) -> Marked | StoreError:
    if isinstance(answer, StoreError):
        return answer
    verdict, version, packed = answer
    return Marked(verdict, version, unpack_marks(packed) if packed else {})
