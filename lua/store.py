"""The store: one typed method per script. Chooses keys and slots; decides nothing about jobs or nodes itself.

What a snapshot reads and what a commit checks are kept apart, see docs/adr/0003-view-and-ledger.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from lua.answers import (
    Advance,
    Advanced,
    Beaten,
    Bound,
    ChangedNode,
    Changes,
    Claimed,
    CommitRequest,
    Committed,
    Heartbeat,
    Presence,
    Registered,
    Release,
    Released,
)
from lua.jobs import Jobs
from lua.placing import Placing
from lua.runner import Call, Runner
from lua.view import pack_caps, pack_load, unpack_view
from mesh.cells import cell_of
from mesh.config import Config
from mesh.errors import ConfigError, StoreError
from mesh.frames import NodeCaps, NodeLoad
from mesh.ids import is_id
from mesh.keys import Keys

__all__ = [
    "Advance", "Advanced", "Beaten", "Bound", "ChangedNode", "Changes", "Claimed", "CommitRequest", "Committed",
    "Heartbeat",
    "Presence", "Registered", "Release", "Released", "Store",
]  # fmt: skip

#: Somebody else may change a node's pools between our look and our write; so often we look again.
POOL_TRIES: Final = 4
#: Fields of one row of node_changes.
ROW: Final = 6
#: Nodes forgotten in one go.
FORGET_MAX: Final = 64
T = TypeVar("T")


class Store:
    """All that a selector may do to Redis. Every method raises StoreError when Redis cannot be used."""

    def __init__(self, runner: Runner, keys: Keys, config: Config) -> None:
        self._runner = runner
        self._keys = keys
        self._config = config
        self._cells = config.mesh.cells
        self._jobs = Jobs(runner, keys, config)
        self._placing = Placing(runner, keys, config, self._jobs)
        self._lists = [
            [keys.nodes(cell), keys.ledger(cell), keys.changes(cell), keys.view(cell)] for cell in range(self._cells)
        ]

    # nodes
    async def register_node(
        self, node_id: str, edge: str, caps: NodeCaps, pools: Sequence[str], ref: str = ""
    ) -> Registered:
        """Write the node's record for a new connection; a later registration always gets a higher epoch.

        `ref` numbers the registrations of an edge: a late copy of one is recognised by it and changes nothing.
        """
        args = {
            "node_id": node_id, "edge": edge, "ref": ref, "status": "registering", "max_jobs": caps.max_jobs,
            "caps": pack_caps(caps), "load": pack_load(NodeLoad()), "ttl_ms": self._record_ms(),
            "leases_ms": self._jobs.leases_ms,
        }  # fmt: skip
        verdict, epoch, now, used, version, _ = await self._with_pools("node_register", node_id, args, pools)
        return Registered(epoch, now, used, version, verdict == "ok")

    async def heartbeat_nodes(self, beats: Sequence[Heartbeat]) -> list[Beaten | StoreError]:
        """Renew the records; an error in place of each that failed."""
        calls = [Call(*self._pool_call("node_heartbeat", b.node_id, self._beat_args(b, None), (), "")) for b in beats]
        answers = await self._runner.call_many("node_heartbeat", calls)
        return [answer if isinstance(answer, StoreError) else Beaten(*answer[:3]) for answer in answers]

    async def heartbeat_node(
        self, beat: Heartbeat, caps: NodeCaps | None = None, pools: Sequence[str] | None = None
    ) -> Beaten:
        """Renew one record. `caps` and `pools` None leave what is stored; give both or neither."""
        assert (caps is None) == (pools is None), "capabilities decide the pools, so they come together"
        verdict, used, version, _ = await self._with_pools(
            "node_heartbeat", beat.node_id, self._beat_args(beat, caps), pools or ()
        )
        return Beaten(verdict, used, version)

    def _beat_args(self, beat: Heartbeat, caps: NodeCaps | None) -> dict[str, Any]:
        return {
            "node_id": beat.node_id, "edge": beat.edge, "epoch": beat.epoch,
            "status": "ready" if beat.healthy else "degraded",
            "load": pack_load(beat.load), "caps": pack_caps(caps) if caps else b"",
            "max_jobs": caps.max_jobs if caps else 0, "ttl_ms": self._record_ms(), "leases_ms": self._jobs.leases_ms,
        }  # fmt: skip

    async def node_offline(self, node_id: str, epoch: int, reason: str) -> bool:
        """Take the node off the lists if `epoch` is in force; its leases stay until released or lapsed."""
        args = {
            "node_id": node_id,
            "epoch": epoch,
            "reason": reason,
            "tombstones_max": self._config.node.tombstones_max,
        }
        answer = await self._with_pools("node_offline", node_id, args, None)
        return bool(answer[0] == "ok")

    async def changes_of(self, asked: Sequence[tuple[int, int]], limit: int) -> list[Changes | StoreError]:
        """For each (cell, since): at most `limit` of its nodes that changed after version `since` (0 = all)."""
        calls = [Call(self._lists[cell], {"since": since, "limit": limit}) for cell, since in asked]
        return [_changes(answer) for answer in await self._runner.call_many("node_changes", calls)]

    async def node_changes(self, cell: int, since: int, limit: int) -> Changes:
        """The same for one cell."""
        [changes] = await self.changes_of([(cell, since)], limit)
        return _sure(changes)

    async def forget_silent_nodes(self, cell: int) -> int:
        """Remove what is left of nodes whose record has lapsed; how many. Bounded per call."""
        keys = self._keys
        limits = {"silent_ms": self._record_ms(), "limit": FORGET_MAX}
        [flat] = await self._runner.call("node_silent", [keys.nodes(cell), keys.view(cell)], limits)
        forgotten = 0
        for raw_id, raw_pools in zip(flat[::2], flat[1::2], strict=True):
            node_id, pools = raw_id.decode(), raw_pools.decode()
            leave = _split(pools)
            args = {
                "node_id": node_id, "silent_ms": self._record_ms(), "pools_before": pools, "leaves": [{}] * len(leave),
                "tombstones_max": self._config.node.tombstones_max,
            }  # fmt: skip
            names = [keys.node(cell, node_id), *self._lists[cell], *(keys.pool(cell, pool) for pool in leave)]
            [verdict] = await self._runner.call("node_forget", names, args)
            forgotten += verdict == "ok"
        return forgotten

    # jobs
    async def commit(self, requests: Sequence[CommitRequest]) -> list[Committed]:
        """Place each request on its first candidate with room, once per request id. Never raises StoreError."""
        return await self._placing.place(requests)

    async def advance_jobs(self, asked: Sequence[Advance]) -> list[Advanced | StoreError]:
        """Apply events of mesh.jobs; an error in place of each that failed."""
        return await self._jobs.advance(asked)

    async def advance_job(
        self, job_id: str, attempt: int, node_id: str, events: str, *, success: bool = True
    ) -> Advanced:
        """The same for one."""
        [advanced] = await self._jobs.advance([Advance(job_id, attempt, node_id, events, success)])
        return _sure(advanced)

    async def release_jobs(self, asked: Sequence[Release]) -> list[Released | StoreError]:
        """Give back the slots of exactly these attempts; an error in place of each that failed."""
        return await self._jobs.release(asked)

    async def release_job(self, job_id: str, attempt: int, node_id: str, reason: str, epoch: int = 0) -> Released:
        """The same for one."""
        [released] = await self._jobs.release([Release(job_id, attempt, node_id, reason, epoch)])
        return _sure(released)

    async def find_request(self, request_id: str, session_id: str) -> Bound | None:
        """Where a request is bound, if it is."""
        return await self._placing.look(request_id, session_id)

    # sessions
    async def claim_session(
        self, session_id: str, edge: str, epoch: int, tenant_id: str, src_lang: str, tgt_lang: str
    ) -> Claimed:
        """Make `edge` the owner: epoch 0 takes over, otherwise it must be the epoch in force."""
        args = {
            "edge": edge, "epoch": epoch, "tenant_id": tenant_id, "src_lang": src_lang, "tgt_lang": tgt_lang,
            "ttl_ms": self._config.session.idle_ttl_seconds * 1000,
        }  # fmt: skip
        ok, owner, in_force = await self._runner.call("session_claim", [self._session(session_id)], args)
        return Claimed(bool(ok), owner, in_force)

    async def release_session(self, session_id: str, edge: str, epoch: int) -> bool:
        """Forget the session if owner and epoch match."""
        args = {"edge": edge, "epoch": epoch}
        [released] = await self._runner.call("session_release", [self._session(session_id)], args)
        return bool(released)

    async def session_owners(self, session_ids: Sequence[str]) -> list[str | StoreError]:
        """The edge that owns each session now, "" if none does; an error in place of each that failed."""
        calls = [Call([self._session(session_id)], {}) for session_id in session_ids]
        answers = await self._runner.call_many("session_look", calls)
        return [answer if isinstance(answer, StoreError) else answer[0] for answer in answers]

    async def session_owner(self, session_id: str) -> str | None:
        """The same for one."""
        [owner] = await self.session_owners([session_id])
        return _sure(owner) or None

    # processes
    async def announce(self, kind: str, identity: str, facts: Presence) -> None:
        """Say that a process lives, for `selector.presence_ttl_ms`."""
        args = {
            "host": facts.host, "pid": facts.pid, "version": facts.version, "started_at_ms": facts.started_at_ms,
            "ttl_ms": self._config.selector.presence_ttl_ms,
        }  # fmt: skip
        await self._runner.call("presence_announce", [self._keys.presence(kind, identity)], args)

    async def withdraw(self, kind: str, identity: str) -> None:
        """Say that a process ends."""
        await self._runner.call("presence_withdraw", [self._keys.presence(kind, identity)], {})

    # deployment
    async def check_deployment(self, cells: int) -> None:
        """ConfigError when the deployment in Redis was born with another number of cells; writes it when new."""
        [born_with] = await self._runner.call("deployment_check", [self._keys.deployment()], {"cells": cells})
        if born_with != cells:
            raise ConfigError(
                f"mesh.cells is {cells}, but this deployment was born with {born_with}: set it to {born_with}, "
                f"or use another mesh.key_prefix for a new deployment"
            )

    def _record_ms(self) -> int:
        return self._config.node.record_ttl_seconds * 1000

    def _session(self, session_id: str) -> str:
        return self._keys.session(cell_of(session_id, self._cells), session_id)

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
            before = answer[-1]
        raise StoreError(f"the pools of {node_id} change faster than they can be written")

    def _pool_call(
        self, script: str, node_id: str, args: dict[str, Any], pools: Sequence[str] | None, before: str
    ) -> tuple[list[str], dict[str, Any]]:
        keys, cell = self._keys, cell_of(node_id, self._cells)
        now = sorted(set(pools or ()))
        assert all(is_id(pool) for pool in now), f"pool names are ids: {now}"
        leave = sorted(set(_split(before)) - set(now))
        names = [keys.node(cell, node_id)]
        if script != "node_offline":
            names.append(keys.leases(cell, node_id))
        names += self._lists[cell]
        args = args | {"pools_before": before, "leaves": [{}] * len(leave)}
        if pools is not None:
            names += [keys.pool(cell, pool) for pool in now]
            args |= {"pools": ",".join(now), "joins": [{}] * len(now)}
        return names + [keys.pool(cell, pool) for pool in leave], args


def _split(pools: str) -> list[str]:
    return pools.split(",") if pools else []


def _sure(answer: T | StoreError) -> T:
    if isinstance(answer, StoreError):
        raise answer
    return answer


def _changes(answer: list[Any] | StoreError) -> Changes | StoreError:
    if isinstance(answer, StoreError):
        return answer
    version, now_ms, more, reset, flat = answer
    rows, unreadable = [], 0
    for start in range(0, len(flat), ROW):
        try:
            rows.append(_row(*flat[start : start + ROW]))
        except (ValueError, msgspec.DecodeError):
            unreadable += 1  # others wrote what lies in Redis
    return Changes(version, now_ms, bool(more), rows, bool(reset), unreadable)


def _row(node_id: bytes, version: int, used: int, last_seen_ms: int, caps: bytes, now: bytes) -> ChangedNode:
    name = node_id.decode()
    return ChangedNode(name, used, last_seen_ms, unpack_view(name, caps, now) if caps else None, version)
