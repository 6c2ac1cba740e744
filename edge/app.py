"""Edge: one edge process put together. Owns start, stop and the one timer that drives all cores."""

from __future__ import annotations

import asyncio
from typing import Final

from edge.core.timers import Schedule, no_wake
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.nodes.endpoint import NodeEndpoint
from edge.operators.control import ControlEndpoint
from edge.operators.http_api import HttpApi
from edge.presence import PresenceReporter
from edge.sessions.core.utterances.features import check_modules
from edge.sessions.endpoint import Sessions
from edge.transport.listener import EdgeListener, Endpoints
from edge.transport.websocket import CLOSE_GOING_AWAY, Socket
from mesh.clock import now_ms
from mesh.config import Config
from mesh.frames import (
    Assign,
    CancelJob,
    ControlNode,
    Dispatch,
    Finished,
    FinishedAck,
    JobDone,
    NodeHeartbeat,
    NodeStale,
    Notice,
    Placed,
    Post,
    Push,
    Refused,
    ResultAcks,
    SessionTaken,
    StatusChanged,
    Undone,
    Waiting,
)
from mesh.log import get_logger
from mesh.metrics import LinkMetrics
from mesh.words import ConnectionRefusal, EdgeCount

#: The timer never fires more often than this, however much is due.
TICK_MS_MIN: Final = 10
#: Checks for idle sockets within the idle timeout.
_IDLE_CHECKS: Final = 5

log = get_logger()


class Edge:
    """One edge: sockets of clients, nodes and operators on one side, the mesh on the other."""

    def __init__(
        self, config: Config, identity: str, metrics: EdgeMetrics, link_metrics: LinkMetrics | None = None
    ) -> None:
        check_modules(config.modules.table)
        self.config = config
        self.identity = identity
        self.metrics = metrics
        self._schedule = Schedule(self._arm)
        self.link = EdgeLink(config, identity, self._schedule, link_metrics)
        self.sessions = Sessions(config, self.link, metrics, self._schedule)
        self.nodes = NodeEndpoint(config, self.link, metrics, self._schedule)
        self.control = ControlEndpoint(config.edge, self.link, metrics)
        self.pages = HttpApi(config.edge, self.link, metrics, self.sessions.requests.counts)
        rooms = Endpoints(self.sessions.serve, self.nodes.serve, self.control, self.pages)
        self.server = EdgeListener(config.edge, rooms, metrics)
        self._presence = PresenceReporter(config.selector.presence_ms, self.link, self._schedule, self._counts)
        metrics.waiting.set_function(lambda: len(self.sessions.tracker.requests))
        metrics.results_kept.set_function(lambda: len(self.nodes.tracker.results))
        metrics.sessions.set_function(lambda: len(self.sessions))
        metrics.nodes.set_function(lambda: len(self.nodes))
        self._register_handlers()
        self._timer: asyncio.TimerHandle | None = None

    def _register_handlers(self) -> None:
        """Every frame for edges that is not the reply to a call (edge/link/link.py), and own frames that may return."""
        link, sessions, nodes = self.link, self.sessions, self.nodes
        requests, jobs = sessions.requests, nodes.jobs
        link.on(SessionTaken, sessions.on_taken)
        link.on(Post, sessions.relay.on_post)
        link.on(Placed, requests.on_placed)
        link.on(Refused, requests.on_refused)
        link.on(Waiting, requests.on_waiting)
        link.on(Undone, requests.on_undone)
        link.on(Notice, requests.on_notice)
        link.on(Push, requests.on_push)
        link.on(NodeStale, nodes.on_stale)
        link.on(StatusChanged, nodes.on_status)
        link.on(Assign, jobs.on_assign)
        link.on(CancelJob, jobs.on_cancel)
        link.on(ControlNode, jobs.on_control)
        link.on(ResultAcks, jobs.on_result_acks)
        link.on(FinishedAck, jobs.on_finished_ack)
        link.on_return(Dispatch, requests.on_dispatch_back)
        link.on_return(Push, jobs.on_push_back)
        link.on_return(Finished, jobs.on_finished_back)
        link.on_return(JobDone, jobs.on_done_back)
        link.on_return(NodeHeartbeat, nodes.on_heartbeat_back)

    async def start(self) -> None:
        """Join the mesh, then open the doors. LinkError if no broker answers, ConfigError if a port cannot be had."""
        await self.link.start()
        await self.link.ready(self.config.edge.answer_timeout_ms)
        await self.server.start()
        self._presence.start()
        self._schedule_idle_check(now_ms())

    async def stop(self) -> None:
        """Let results under way arrive, close every socket with its code, withdraw from the mesh, and leave."""
        self.server.refuse_more()
        await self._drained()
        sockets = self._sockets()
        for socket in sockets:
            socket.outbox.close(CLOSE_GOING_AWAY, "the edge is going away")
        await asyncio.gather(*(socket.outbox.closed() for socket in sockets))
        await self.server.stop()
        self._schedule.wake = no_wake
        if self._timer is not None:
            self._timer.cancel()
        await self.link.close()

    async def _drained(self) -> None:
        for _ in range(self.config.edge.drain_ms // TICK_MS_MIN):
            if not (self.sessions.tracker.requests or self.nodes.tracker.results):
                return
            await asyncio.sleep(TICK_MS_MIN / 1_000)

    def _counts(self) -> dict[str, int]:
        return {
            **self.sessions.requests.counts(),
            EdgeCount.SESSIONS: len(self.sessions),
            EdgeCount.NODES: len(self.nodes),
        }

    def _sockets(self) -> list[Socket]:
        return [*self.sessions.sockets, *self.nodes.sockets, *self.control.sockets]

    # --- time ---------------------------------------------------------------------------------

    def _arm(self, due_ms: int) -> None:
        """Set the one timer to the head of the schedule."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()  # its clock is that of now_ms
        self._timer = loop.call_at(max(due_ms / 1_000, loop.time() + TICK_MS_MIN / 1_000), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = now_ms()
        for tick in self._schedule.pop_due(now):
            try:
                tick(now)
            except Exception:
                # A failure in one component must not stop the timers of the others, nor its own.
                log.exception("tick_failed", step=tick.__qualname__)
                self._schedule.bring_forward(tick, now)

    def _schedule_idle_check(self, now: int) -> None:
        self._schedule.set(self._close_idle, now + self.config.edge.idle_timeout_seconds * 1_000 // _IDLE_CHECKS)

    def _close_idle(self, now: int) -> None:
        self._schedule_idle_check(now)
        silent_ms = self.config.edge.idle_timeout_seconds * 1_000
        for socket in self._sockets():
            if now - socket.heard_ms >= silent_ms and socket.outbox.is_open:
                self.metrics.refused_total.labels(ConnectionRefusal.IDLE).inc()
                log.info("socket_idle", peer=socket.peer, silent_ms=now - socket.heard_ms)
                socket.outbox.close(CLOSE_GOING_AWAY, "idle: nothing was heard for too long")
