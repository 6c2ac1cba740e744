"""Handlers for nodes: registration, heartbeats, departures, drains; and the scan for expired nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from lua.store.types.nodes import Drained, Heartbeat, HeartbeatReply, NodeFacts
from mesh import clock
from mesh.cells import cell_of
from mesh.errors import StoreError
from mesh.frames import NodeCaps, NodeHeartbeat, NodeOffline, NodeRegister, NodeRegistered
from mesh.jitter import sleep_jittered
from mesh.link.link import Received
from mesh.log import get_logger
from mesh.states.job import RUNNING_JOBS_MAX
from mesh.states.node import Status
from mesh.words import LedgerRepair, NodeChange
from selector.context import SelectorContext
from selector.core.reply import Reply, store_down
from selector.fleet.core import node_replies
from selector.fleet.core.node_health import is_healthy
from selector.operators.core.report_json import LEDGER_COUNTS

#: The store returns a few changes of a cell per call; at most this many calls per scan.
SCAN_PAGES_MAX: Final = 16

log = get_logger()


class NodeRegistration:
    """Handlers for the frames of nodes. `slots_freed` is called when a node may have a free slot."""

    def __init__(self, context: SelectorContext, slots_freed: Callable[[], None]) -> None:
        #: Repairs by this selector's audits.
        self._repaired = dict.fromkeys(LEDGER_COUNTS, 0)
        self._store = context.store
        self._guard = context.guard
        self._table = context.table
        self._snapshot = context.snapshot
        self._plan = context.plan
        self._config = context.config
        self._metrics = context.metrics
        self._send = context.send
        self._slots_freed = slots_freed

    # --- registrations --------------------------------------------------------------------------------------

    async def on_node_register(self, frame: NodeRegister, message: Received) -> None:
        """A new connection of a node, or a late duplicate."""
        pools = self._plan.sets_of(frame.node_id, frame.caps)
        try:
            registered = await self._store.nodes.register(frame.node_id, frame.edge, frame.caps, pools, frame.ref)
        except StoreError:
            self._reply(message, frame.node_id, store_down(frame.ref, frame.edge))
            raise
        if registered.is_new:
            self._metrics.nodes_total.labels(NodeChange.REGISTERED).inc()
            log.info("node_registered", node_id=frame.node_id, edge=frame.edge, epoch=registered.epoch)
        answer = NodeRegistered(frame.ref, frame.node_id, registered.epoch, registered.status)
        self._reply(message, frame.node_id, Reply(frame.edge, answer))

    # --- heartbeats -----------------------------------------------------------------------------------------

    async def on_node_heartbeats(self, messages: list[Received]) -> None:
        """Nodes are live. Those with known, unchanged capabilities (nearly all) go to Redis in one call."""
        known: list[tuple[Received, NodeHeartbeat, NodeFacts]] = []
        others: list[tuple[NodeHeartbeat, Received]] = []
        for message in messages:
            frame = message.frame
            assert isinstance(frame, NodeHeartbeat)
            facts = self._table.facts_of(frame.node_id)
            if frame.caps is None and facts is not None and facts.epoch == frame.epoch:
                known.append((message, frame, facts))
            else:
                others.append((frame, message))
        beats = [_beat(frame, facts.caps, facts.status) for _, frame, facts in known]
        for (message, frame, facts), beaten in zip(known, await self._store.nodes.heartbeat_many(beats), strict=True):
            if isinstance(beaten, StoreError):
                self._guard.note(message, beaten)
            else:
                self._take(message, frame, beaten, facts)
        if others:
            calls = (self._guard.run(message, self._on_heartbeat(frame, message)) for frame, message in others)
            await asyncio.gather(*calls)

    async def _on_heartbeat(self, frame: NodeHeartbeat, message: Received) -> None:
        """A heartbeat with new capabilities, or of a node that the snapshot lacks."""
        facts = await self._known_facts(frame)
        caps = frame.caps or (facts.caps if facts else None)
        pools = self._plan.sets_of(frame.node_id, frame.caps) if frame.caps else None
        # Without any capabilities there is no record either, and the script will return `unknown`.
        beat = _beat(frame, caps, facts.status if facts else Status.REGISTERING)
        beaten = await self._store.nodes.heartbeat(beat, frame.caps, pools)
        if caps is None:
            facts = None
        elif facts is None or facts.epoch != frame.epoch:
            facts = NodeFacts(frame.edge, frame.epoch, beaten.status, caps, frame.load, _joined(pools or ()))
        elif pools is not None:
            facts = facts._replace(caps=caps, pools=_joined(pools))
        self._take(message, frame, beaten, facts)

    def _take(self, message: Received, frame: NodeHeartbeat, beaten: HeartbeatReply, facts: NodeFacts | None) -> None:
        """Apply the store's answer to a heartbeat, and notify the node's edge if needed."""
        answer = node_replies.on_beaten(frame, beaten)
        if answer is not None:
            self._metrics.nodes_total.labels(beaten.verdict).inc()
            self._reply(message, frame.node_id, answer)
            return
        if facts is not None:
            # The script preserves a drain and a closed socket: a heartbeat in flight ends neither, also if the
            # snapshot brought them meanwhile.
            latest = self._table.facts_of(frame.node_id)
            if latest is not None and latest.epoch == facts.epoch:
                facts = facts._replace(detached_ms=latest.detached_ms, drain_until_ms=latest.drain_until_ms)
            facts = facts._replace(edge=frame.edge, status=beaten.status, load=frame.load, reason=beaten.reason)
            self._write(frame.node_id, beaten.used, beaten.version, facts)
        self._take_audit(frame, beaten)
        if beaten.status != beaten.status_before:
            self._changed(frame.node_id, frame.edge, frame.epoch, beaten.status, beaten.reason, message.broker)

    def _take_audit(self, frame: NodeHeartbeat, beaten: HeartbeatReply) -> None:
        if beaten.leaked or beaten.missing:
            for name, count in zip(LEDGER_COUNTS, (beaten.leaked, beaten.missing), strict=True):
                self._repaired[name] += count
            self._metrics.ledger_repairs_total.labels(LedgerRepair.LEAKED).inc(beaten.leaked)
            self._metrics.ledger_repairs_total.labels(LedgerRepair.MISSING).inc(beaten.missing)
            log.warning("ledger_repaired", node_id=frame.node_id, leaked=beaten.leaked, missing=beaten.missing)
        if beaten.leaked:
            self._slots_freed()

    async def _known_facts(self, frame: NodeHeartbeat) -> NodeFacts | None:
        """The node by the snapshot, refreshed if it is older than this connection.

        None means that Redis has no such node. A wrong guess would degrade the node until its next heartbeat.
        """
        came_ms = clock.now_ms()
        for _ in range(2):  # the first may join a refresh that began before the node registered
            facts = self._table.facts_of(frame.node_id)
            if facts is not None and facts.epoch == frame.epoch:
                return facts
            if frame.caps is not None and facts is not None:
                return facts  # the frame's own capabilities count
            await self._snapshot.refresh()
        facts = self._table.facts_of(frame.node_id)
        if facts is None and self._snapshot.answered_ms(self._cell(frame.node_id)) < came_ms:
            raise StoreError("the snapshot could not be brought up to date")
        return facts

    def ledger_counts(self) -> dict[str, int]:
        """Repairs by this selector's audits; written to its presence, so that any selector can add them up."""
        return dict(self._repaired)

    # --- departures, expiry, drains --------------------------------------------------------------------------

    async def on_node_offline(self, frame: NodeOffline, message: Received) -> None:
        """The node's socket closed. It stays listed, at a higher cost, until the reconnect grace ends."""
        if await self._store.nodes.detach(frame.node_id, frame.epoch, frame.reason):
            self._metrics.nodes_total.labels(NodeChange.DETACHED).inc()
            self._snapshot.look_soon()
            log.info("node_detached", node_id=frame.node_id, epoch=frame.epoch, reason=frame.reason)

    async def scan(self) -> None:
        """Scan for nodes whose status expired, until cancelled. Every selector scans; each change is found by one."""
        while True:
            await sleep_jittered(self._config.node.status_scan_ms)
            await asyncio.gather(*(self._scan_cell(cell) for cell in range(self._config.mesh.cells)))

    async def _scan_cell(self, cell: int) -> None:
        for _ in range(SCAN_PAGES_MAX):
            try:
                found = await self._store.nodes.expire(cell)
            except StoreError as error:
                self._metrics.store_errors_total.labels("node_scan").inc()
                log.warning("scan_failed", cell=cell, error=str(error))
                return
            if not found:
                return
            for one in found:
                self._metrics.nodes_total.labels(NodeChange.OFFLINE).inc(one.status == Status.OFFLINE)
                self._changed(one.node_id, one.edge, one.epoch, one.status, one.reason)
            self._snapshot.look_soon()

    async def drain(self, node_id: str, deadline_ms: int, reason: str, *, resume: bool) -> Drained:
        """Start or end the drain of a node. Its edge notifies it, and reassigns unfinished jobs at the deadline."""
        drained = await self._store.nodes.drain(node_id, deadline_ms, reason, resume=resume)
        if drained.known:
            control = node_replies.on_drained(node_id, drained, reason, 0 if resume else clock.wall_ms() + deadline_ms)
            self._send(control.to, self._cell(node_id), control.frame)
            self._changed(node_id, drained.edge, drained.epoch, drained.status, reason)
            self._snapshot.look_soon()
        return drained

    def _changed(self, node_id: str, edge: str, epoch: int, status: str, reason: str, broker: str = "") -> None:
        """A node's status changed: notify its edge."""
        self._metrics.node_status_total.labels(status).inc()
        log.info("node_status", node_id=node_id, epoch=epoch, status=status, reason=reason)
        answer = node_replies.on_status(node_id, edge, epoch, status, reason)
        if answer is not None:
            self._send(answer.to, self._cell(node_id), answer.frame, prefer=broker)
        if status == Status.READY:
            self._slots_freed()

    # --- inside -----------------------------------------------------------------------------------------------

    def _write(self, node_id: str, used: int, version: int, facts: NodeFacts) -> None:
        self._table.apply(self._cell(node_id), version, node_id, used, clock.now_ms(), facts)

    def _cell(self, record_id: str) -> int:
        return cell_of(record_id, self._config.mesh.cells)

    def _reply(self, message: Received, record_id: str, answer: Reply) -> None:
        self._send(answer.to, self._cell(record_id), answer.frame, prefer=message.broker)


def _beat(frame: NodeHeartbeat, caps: NodeCaps | None, status: str) -> Heartbeat:
    healthy = caps is not None and is_healthy(caps, frame.load, status == Status.REGISTERING)
    jobs = frame.jobs
    listed = None if jobs is None or len(jobs) > RUNNING_JOBS_MAX else tuple(jobs)
    return Heartbeat(frame.node_id, frame.edge, frame.epoch, frame.load, healthy, listed)


def _joined(pools: Iterable[str]) -> str:
    """In the store's format."""
    return ",".join(sorted(set(pools)))
