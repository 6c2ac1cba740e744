"""The store: one typed method for each thing that a selector may do to Redis. Decides nothing itself.

What a snapshot reads and what a commit checks are kept apart, see docs/adr/0003-view-and-ledger.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from lua.engine.batch import sure
from lua.engine.runner import Call, Runner
from lua.store.commit import CommitStore
from lua.store.deployment import DeploymentStore
from lua.store.jobs import JobStore
from lua.store.node_changes import read_changes
from lua.store.nodes import NodeStore
from lua.store.pairing import PairingStore
from lua.store.rooms import RoomStore
from lua.store.sessions import SessionStore
from lua.store.types import (
    Advance,
    Advanced,
    Bound,
    ChangedNode,
    Changes,
    Claim,
    Claimed,
    CommitRequest,
    Committed,
    Drained,
    Heartbeat,
    HeartbeatReply,
    JobRecord,
    MailEntry,
    MailPage,
    Mark,
    Marked,
    Noted,
    PairingPlan,
    PairingTry,
    Parked,
    Presence,
    Registered,
    Release,
    Released,
    Room,
    SessionOwner,
    StatusChange,
    StoredWeights,
)
from mesh.config import Config
from mesh.config.weights import Weights
from mesh.errors import StoreError
from mesh.frames import NodeCaps
from mesh.keys import Keys

__all__ = [
    "Advance",
    "Advanced",
    "Bound",
    "ChangedNode",
    "Changes",
    "Claim",
    "Claimed",
    "CommitRequest",
    "Committed",
    "Drained",
    "Heartbeat",
    "HeartbeatReply",
    "JobRecord",
    "MailEntry",
    "MailPage",
    "Mark",
    "Marked",
    "Noted",
    "PairingPlan",
    "PairingTry",
    "Parked",
    "Presence",
    "Registered",
    "Release",
    "Released",
    "Room",
    "SessionOwner",
    "StatusChange",
    "Store",
    "StoredWeights",
]


class Store:
    """All that a selector may do to Redis. Every method raises StoreError when Redis cannot be used."""

    def __init__(self, runner: Runner, keys: Keys, config: Config) -> None:
        self._runner = runner
        self._keys = keys
        self._cells = config.mesh.cells
        self._jobs = JobStore(runner, keys, config)
        self._nodes = NodeStore(runner, keys, config, self._jobs)
        self._placing = CommitStore(runner, keys, config, self._jobs)
        self._sessions = SessionStore(runner, keys, config)
        self._deployment = DeploymentStore(runner, keys, config)
        #: What may be done to rooms, and to pairing codes.
        self.rooms = RoomStore(runner, keys, config)
        self.pairing = PairingStore(runner, keys, config)
        self._seen_by_snapshots = [
            [keys.nodes(cell), keys.ledger(cell), keys.changes(cell), keys.view(cell), keys.speeds(cell),
             keys.marks(cell)]
            for cell in range(self._cells)
        ]  # fmt: skip

    # nodes
    async def register_node(
        self, node_id: str, edge: str, caps: NodeCaps, pools: Sequence[str], ref: str = ""
    ) -> Registered:
        """Write the node's record for a new connection; a later registration always gets a higher epoch.

        `ref` numbers the registrations of an edge: a late copy of one is recognised by it and changes nothing.
        """
        return await self._nodes.register(node_id, edge, caps, pools, ref)

    async def heartbeat_nodes(self, beats: Sequence[Heartbeat]) -> list[HeartbeatReply | StoreError]:
        """Renew the records and set slots right by the jobs that run; an error in place of each that failed."""
        return await self._nodes.beat(beats)

    async def heartbeat_node(
        self, beat: Heartbeat, caps: NodeCaps | None = None, pools: Sequence[str] | None = None
    ) -> HeartbeatReply:
        """The same for one. `caps` and `pools` None leave what is stored; give both or neither."""
        if caps is None or pools is None:
            assert caps is None and pools is None, "capabilities decide the pools, so they come together"
            [beaten] = await self._nodes.beat([beat])
            return sure(beaten)
        return await self._nodes.beat_with(beat, caps, pools)

    async def detach_node(self, node_id: str, epoch: int, reason: str) -> bool:
        """The socket of this connection closed. False: it is not the node's own, or known. The node stays listed."""
        return await self._nodes.detach(node_id, epoch, reason)

    async def node_offline(self, node_id: str, epoch: int, reason: str) -> bool:
        """Take the node off the lists if `epoch` is in force; its leases stay until released or lapsed."""
        return await self._nodes.leave(node_id, epoch, reason)

    async def scan_nodes(self, cell: int) -> list[StatusChange]:
        """Let time pass: silent nodes are offline, those away for too long leave the lists. Bounded per call."""
        return await self._nodes.scan(cell)

    async def drain_node(
        self, node_id: str, deadline_ms_from_now: int, reason: str, *, resume: bool = False
    ) -> Drained:
        """Give the node no more work until it is resumed, or registers again after the deadline."""
        return await self._nodes.drain(node_id, deadline_ms_from_now, reason, resume=resume)

    async def changes_of(self, asked: Sequence[tuple[int, int]], limit: int) -> list[Changes | StoreError]:
        """For each (cell, since): at most `limit` of its nodes that changed after version `since` (0 = all)."""
        calls = [Call(self._seen_by_snapshots[cell], {"since": since, "limit": limit}) for cell, since in asked]
        return [read_changes(answer) for answer in await self._runner.call_many("node_changes", calls)]

    async def node_changes(self, cell: int, since: int, limit: int) -> Changes:
        """The same for one cell."""
        [changes] = await self.changes_of([(cell, since)], limit)
        return sure(changes)

    async def mark_models(self, asked: Sequence[Mark]) -> list[Marked | StoreError]:
        """Nodes lack models: they get no jobs that need those, for a while. An error in place of each that failed."""
        return await self._nodes.mark(asked)

    async def debounce(self, service_id: str, version: str) -> bool:
        """True for the first word about a service and version in `models.debounce_ms`, in the whole deployment."""
        return await self._deployment.debounce(service_id, version)

    # jobs
    async def commit(self, requests: Sequence[CommitRequest]) -> list[Committed]:
        """Place each request on its first candidate with room, once per request id. Never raises StoreError."""
        return await self._placing.place(requests)

    async def advance_jobs(self, asked: Sequence[Advance]) -> list[Advanced | StoreError]:
        """Apply events of mesh.states.job; an error in place of each that failed."""
        return await self._jobs.advance(asked)

    async def advance_job(
        self, job_id: str, attempt: int, node_id: str, events: str, *, success: bool = True
    ) -> Advanced:
        """The same for one."""
        [advanced] = await self._jobs.advance([Advance(job_id, attempt, node_id, events, success)])
        return sure(advanced)

    async def release_jobs(self, asked: Sequence[Release]) -> list[Released | StoreError]:
        """Give back the slots of exactly these attempts; an error in place of each that failed."""
        return await self._jobs.release(asked)

    async def release_job(self, job_id: str, attempt: int, node_id: str, reason: str, epoch: int = 0) -> Released:
        """The same for one."""
        [released] = await self._jobs.release([Release(job_id, attempt, node_id, reason, epoch)])
        return sure(released)

    async def find_request(self, request_id: str, session_id: str) -> Bound | None:
        """Where a request is bound, if it is."""
        return await self._placing.look(request_id, session_id)

    async def look_job(self, job_id: str) -> JobRecord | None:
        """What is kept of a job, if anything."""
        return await self._jobs.record(job_id)

    # sessions
    async def claim_session(
        self, session_id: str, edge: str, epoch: int, tenant_id: str, src_lang: str, tgt_lang: str
    ) -> Claimed:
        """Make `edge` the owner: epoch 0 takes over, otherwise it must be the epoch in force."""
        return await self._sessions.claim(Claim(session_id, edge, epoch, tenant_id, src_lang, tgt_lang))

    async def claim(self, claim: Claim) -> Claimed:
        """The same with all that a claim may say: resuming, and what a new record shall hold."""
        return await self._sessions.claim(claim)

    async def note_session(
        self, session_id: str, edge: str, epoch: int, *, away: bool = False, room: str | None = None
    ) -> Noted:
        """The session lives, and its client is there or `away`; `room` None leaves the room that is stored."""
        return await self._sessions.note(session_id, edge, epoch, away=away, room=room)

    async def release_session(self, session_id: str, edge: str, epoch: int) -> bool:
        """Forget the session and its mail if owner and epoch match."""
        return await self._sessions.release(session_id, edge, epoch)

    async def session_seats(self, session_ids: Sequence[str]) -> list[SessionOwner | StoreError]:
        """Where each session is; an error in place of each that failed."""
        return await self._sessions.look(session_ids)

    async def session_owner(self, session_id: str) -> str | None:
        """The edge that owns a session, None if none does."""
        [seat] = await self._sessions.look([session_id])
        return sure(seat).owner or None

    # mail
    async def park_mail(self, letters: Sequence[MailEntry]) -> list[Parked | StoreError]:
        """Keep each for its session until that is resumed; an error in place of each that failed."""
        return await self._sessions.park(letters)

    async def read_mail(self, session_id: str, edge: str, epoch: int, after: str = "") -> MailPage | None:
        """The mail after that entry, a page of it; None unless owner and epoch match. ValueError if it is no entry."""
        return await self._sessions.read(session_id, edge, epoch, after)

    async def trim_mail(self, session_id: str, edge: str, epoch: int, last: str) -> int | None:
        """Forget the mail up to that entry; how many went, None unless owner and epoch match. ValueError as above."""
        return await self._sessions.trim(session_id, edge, epoch, last)

    # the deployment
    async def announce(self, kind: str, identity: str, facts: Presence) -> None:
        """Say that a process lives, for `selector.presence_ttl_ms`."""
        await self._deployment.announce(kind, identity, facts)

    async def withdraw(self, kind: str, identity: str) -> None:
        """Say that a process ends."""
        await self._deployment.withdraw(kind, identity)

    async def present(self, kind: str) -> list[tuple[str, Presence]]:
        """The live processes of a kind, by identity."""
        return await self._deployment.present(kind)

    async def living(self, kind: str) -> list[str]:
        """Only their identities, complete or not at all."""
        return await self._deployment.living(kind)

    async def weights(self) -> StoredWeights:
        """The weights in force."""
        return await self._deployment.weights()

    async def set_weights(self, weights: Weights, expected_version: int | None, by: str) -> StoredWeights | None:
        """Put other weights in force; None if `expected_version` is given and is not in force any more."""
        return await self._deployment.set_weights(weights, expected_version, by)

    async def check_deployment(self, cells: int) -> None:
        """ConfigError when the deployment in Redis was born with another number of cells; writes it when new."""
        await self._deployment.check(cells)
