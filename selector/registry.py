"""Nodes and sessions: registrations, heartbeats, departures, claims."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lua.answers import Beaten, Heartbeat
from lua.store import Store
from mesh import clock
from mesh.cells import cell_of
from mesh.config import Config
from mesh.errors import StoreError
from mesh.frames import NodeCaps, NodeHeartbeat, NodeOffline, NodeRegister, NodeRegistered, SessionClaim, SessionRelease
from mesh.link import Received
from mesh.log import get_logger
from mesh.metrics import SelectorMetrics
from selector.core import dispatching
from selector.core.columns import NodeFacts, NodeTable
from selector.core.pools import pools_of
from selector.core.status import DEGRADED, status_of
from selector.faults import Faults
from selector.snapshot import Snapshot

Send = Callable[..., str]

log = get_logger()


class Registry:
    """Handlers for the frames of nodes and sessions."""

    def __init__(
        self,
        store: Store,
        table: NodeTable,
        snapshot: Snapshot,
        config: Config,
        metrics: SelectorMetrics,
        faults: Faults,
        send: Send,
    ) -> None:
        self._store = store
        self._faults = faults
        self._table = table
        self._snapshot = snapshot
        self._config = config
        self._metrics = metrics
        self._send = send

    async def on_node_register(self, message: Received) -> None:
        """A new connection of a node, or a late copy of what its edge said."""
        frame = message.frame
        assert isinstance(frame, NodeRegister)
        try:
            registered = await self._store.register_node(
                frame.node_id, frame.edge, frame.caps, self._pools(frame.node_id, frame.caps), frame.ref
            )
        except StoreError:
            self._answer(message, frame.node_id, dispatching.store_down(frame.ref, frame.edge))
            raise
        if registered.is_new:
            self._metrics.nodes_total.labels("registered").inc()
            log.info("node_registered", node_id=frame.node_id, edge=frame.edge, epoch=registered.epoch)
        answer = NodeRegistered(frame.ref, frame.node_id, registered.epoch, registered.status)
        self._answer(message, frame.node_id, dispatching.Answer(frame.edge, answer))

    async def on_node_heartbeats(self, messages: list[Received]) -> None:
        """Nodes live. Those whose capabilities are known and unchanged, nearly all, go to Redis together."""
        known: list[tuple[Received, NodeHeartbeat, NodeFacts]] = []
        others: list[Received] = []
        for message in messages:
            frame = message.frame
            assert isinstance(frame, NodeHeartbeat)
            facts = self._table.facts_of(frame.node_id)
            if frame.caps is None and facts is not None and facts.epoch == frame.epoch:
                status = status_of(facts.caps, heard=True)
                known.append((message, frame, NodeFacts(frame.edge, frame.epoch, status, facts.caps, frame.load)))
            else:
                others.append(message)
        beats = [
            Heartbeat(frame.node_id, frame.edge, frame.epoch, frame.load, facts.status == "ready")
            for _, frame, facts in known
        ]
        for (message, frame, facts), beaten in zip(known, await self._store.heartbeat_nodes(beats), strict=True):
            if isinstance(beaten, StoreError):
                self._faults.note(message, beaten)
            else:
                self._take(message, frame, beaten, facts)
        if others:
            await asyncio.gather(*(self._faults.guard(message, self._on_heartbeat(message)) for message in others))

    async def _on_heartbeat(self, message: Received) -> None:
        """A node lives, with this load. Without capabilities in it, those that are stored hold."""
        frame = message.frame
        assert isinstance(frame, NodeHeartbeat)
        caps = frame.caps or await self._known_caps(frame)
        # Without any capabilities there is no record either, and the script will say so.
        status = status_of(caps, heard=True) if caps else DEGRADED
        pools = self._pools(frame.node_id, frame.caps) if frame.caps else None
        beat = Heartbeat(frame.node_id, frame.edge, frame.epoch, frame.load, status == "ready")
        beaten = await self._store.heartbeat_node(beat, frame.caps, pools)
        facts = NodeFacts(frame.edge, frame.epoch, status, caps, frame.load) if caps else None
        self._take(message, frame, beaten, facts)

    def _take(self, message: Received, frame: NodeHeartbeat, beaten: Beaten, facts: NodeFacts | None) -> None:
        answer = dispatching.on_beaten(frame, beaten)
        if answer is not None:
            self._metrics.nodes_total.labels(beaten.verdict).inc()
            self._answer(message, frame.node_id, answer)
        elif facts is not None:
            cell = self._cell(frame.node_id)
            self._table.apply(cell, beaten.version, frame.node_id, beaten.used, clock.now_ms(), facts)

    async def on_node_offline(self, message: Received) -> None:
        """The node's socket closed."""
        frame = message.frame
        assert isinstance(frame, NodeOffline)
        if await self._store.node_offline(frame.node_id, frame.epoch, frame.reason):
            self._metrics.nodes_total.labels("offline").inc()
            self._table.remove(frame.node_id)
            log.info("node_offline", node_id=frame.node_id, epoch=frame.epoch, reason=frame.reason)

    async def on_session_claim(self, message: Received) -> None:
        """An edge owns a session from now on."""
        frame = message.frame
        assert isinstance(frame, SessionClaim)
        try:
            claimed = await self._store.claim_session(
                frame.session_id, frame.edge, frame.epoch, frame.tenant_id, frame.src_lang, frame.tgt_lang
            )
        except StoreError:
            self._answer(message, frame.session_id, dispatching.store_down(frame.ref, frame.edge))
            raise
        self._answer(message, frame.session_id, dispatching.on_claimed(frame, claimed))

    async def on_session_release(self, message: Received) -> None:
        """A session is closed."""
        frame = message.frame
        assert isinstance(frame, SessionRelease)
        await self._store.release_session(frame.session_id, frame.edge, frame.epoch)

    async def _known_caps(self, frame: NodeHeartbeat) -> NodeCaps | None:
        """The node's capabilities from the snapshot, brought up to date if it lags behind this connection.

        None means that Redis has no such node. A wrong guess would leave the node degraded until its next heartbeat.
        """
        came_ms = clock.now_ms()
        for _ in range(2):  # the first may join a refresh that began before the node registered
            facts = self._table.facts_of(frame.node_id)
            if facts is not None and facts.epoch == frame.epoch:
                return facts.caps
            await self._snapshot.refresh()
        facts = self._table.facts_of(frame.node_id)
        if facts is None and self._snapshot.answered_ms(self._cell(frame.node_id)) < came_ms:
            raise StoreError("the snapshot could not be brought up to date")
        return None if facts is None else facts.caps

    def _pools(self, node_id: str, caps: NodeCaps) -> list[str]:
        rules = self._config.pools
        return pools_of(node_id, caps, hash_pools=rules.pool_count, pools_max=rules.sets_per_node_max)

    def _cell(self, record_id: str) -> int:
        return cell_of(record_id, self._config.mesh.cells)

    def _answer(self, message: Received, record_id: str, answer: dispatching.Answer) -> None:
        self._send(answer.to, self._cell(record_id), answer.frame, prefer=message.broker)
