"""Endpoint of /ws/session: the sockets of clients, the table of sessions, and their timers."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any

import msgspec

from edge.core.recent_keys import RecentKeys
from edge.core.timers import Schedule, Timers
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.requests.runner import RequestRunner
from edge.rooms.relay import Relay
from edge.rooms.rooms import RoomCalls
from edge.sessions.actor import Actor, ClientSocket
from edge.sessions.context import SessionContext, limits_of
from edge.sessions.core.events import Attached, Detached, Evicted, OwnerReported, Ticked
from edge.sessions.core.session import Session
from edge.sessions.core.state import Phase, SessionState
from edge.sessions.messages import ClientMessages
from edge.sessions.open import Opener
from edge.sessions.ownership import release
from edge.transport.connection import EdgeConnection
from edge.transport.send_buffer import SendLimits
from mesh.clock import now_ms
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import SessionTaken
from mesh.log import get_logger
from mesh.words import CloseCode, ConnectionRefusal, ResultOutcome, SocketKind

log = get_logger()


class Sessions:
    """All sessions of this edge."""

    def __init__(self, config: Config, link: EdgeLink, metrics: EdgeMetrics, schedule: Schedule) -> None:
        self.sockets: set[ClientSocket] = set()
        self.actors: dict[str, Actor] = {}
        self.requests = RequestRunner(config, link, metrics, schedule, self.actors.get)
        self.tracker = self.requests.tracker
        self.relay = Relay(config, link, metrics, schedule, self.actors.get)
        self._bounds = SendLimits.of(config.edge)
        self._limits = limits_of(config)
        self._link = link
        self._metrics = metrics
        self._context = SessionContext(link, metrics, self.requests, self.relay, RoomCalls(link), self)
        self._messages = ClientMessages(config.speech.utterance_bytes_max)
        self._opener = Opener(self, config, link, metrics)
        self._timers: Timers[str] = Timers(schedule.waker(self.tick))
        #: Sessions whose clients may resume, the longest detached first.
        self._detached: dict[str, Actor] = {}
        self._detached_max = config.session.away_max
        #: Sessions that other edges claimed recently, and with which epoch.
        self._taken = RecentKeys(config.edge.ended_kept_max, config.edge.ended_kept_ms)

    def __len__(self) -> int:
        return len(self.actors)

    # --- sockets ----------------------------------------------------------------------------------

    async def serve(self, connection: EdgeConnection) -> None:
        """Serve one client connection."""
        socket = ClientSocket(connection, SocketKind.SESSION, self._bounds, self._metrics)
        self.sockets.add(socket)
        try:
            await socket.receive(partial(self._on_data, socket))
        finally:
            self.sockets.discard(socket)
            actor = socket.actor
            if actor is not None and actor.socket is socket:
                self._on_lost(actor, socket)

    def _on_data(self, socket: ClientSocket, data: bytes, is_text: bool) -> Awaitable[None] | None:
        """Handle a message; session_init is awaited before the next one."""
        if not is_text:
            self._messages.on_binary(socket, data)
            return None
        init = self._messages.on_text(socket, data)
        return None if init is None else self._opener.open(socket, init)

    def _on_lost(self, actor: Actor, socket: ClientSocket) -> None:
        """The connection is lost without a session_close."""
        resumable = actor.state.outcomes.delivery.is_resumable
        log.info("session_lost", session_id=actor.session_id, reason=socket.close_reason, resumable=resumable)
        actor.socket = None
        actor.handle(Detached())
        if actor.state.phase is not Phase.DETACHED:
            return
        self._detached[actor.session_id] = actor
        if len(self._detached) > self._detached_max:
            oldest = next(iter(self._detached.values()))
            oldest.handle(Evicted())
            log.warning("session_evicted", session_id=oldest.session_id)

    def close_superseded(self, socket: ClientSocket) -> None:
        """Close a connection whose session has a newer one."""
        socket.actor = None
        self._metrics.refused_total.labels(ConnectionRefusal.SUPERSEDED).inc()
        text = "superseded by a newer connection of this session"
        socket.send_error(PeerError(ErrorCode.SESSION_SUPERSEDED, text))
        socket.outbox.close(CloseCode.SUPERSEDED, text)

    # --- the table of sessions --------------------------------------------------------------------

    def add(self, session: Session, token: str, *, resumed: bool = False, **position: Any) -> Actor:
        """Add a session that this edge has claimed. `position`: where it continues (SessionState)."""
        edge = self._link.identity
        state = SessionState(session, token, edge, self._limits, self.tracker.table, now_ms(), **position)
        actor = self.actors[session.session_id] = Actor(state, self._context)
        self.tracker.open_session(session.session_id, resumed=resumed)
        log.info("session_opened", session_id=session.session_id, trace_id=session.trace_id, resumed=resumed)
        return actor

    def attach(self, actor: Actor, socket: ClientSocket, event: Attached) -> None:
        """The session's client is at that connection now."""
        self._detached.pop(actor.session_id, None)
        actor.attach(socket, msgspec.structs.replace(event, binary_messages=socket.uses_binary_messages))

    def end(self, actor: Actor, reason: str, pending: int) -> None:
        """Forget a session that is over, and release its ownership."""
        self._forget(actor)
        self._metrics.results_total.labels(ResultOutcome.CANCELLED).inc(pending)
        self.requests.close_session(actor.session_id)
        release(self._link, actor.session_id, actor.state.session.epoch)
        log.info("session_closed", session_id=actor.session_id, reason=reason)

    def move(self, actor: Actor, owner: str) -> None:
        """Forget a session that moves; its next owner submits its pending requests anew."""
        self._forget(actor)
        self.requests.leave(actor.session_id, owner)
        if owner:
            log.info("session_taken", session_id=actor.session_id)

    def _forget(self, actor: Actor) -> None:
        actor.socket = None
        self.actors.pop(actor.session_id, None)
        self._detached.pop(actor.session_id, None)
        self._timers.drop(actor.session_id)

    def on_taken(self, taken: SessionTaken, payload: list[bytes], now: int) -> None:
        """Another edge owns the session; or the mesh lost its record."""
        if taken.edge not in ("", self._link.identity):
            epoch = max(taken.epoch, self.taken_epoch(taken.session_id))
            self._taken.add(taken.session_id, now, str(epoch))
        actor = self.actors.get(taken.session_id)
        if actor is not None:
            actor.handle(OwnerReported(taken.edge, taken.epoch))

    def taken_epoch(self, session_id: str) -> int:
        """The epoch with which another edge claimed the session recently; its report may overtake our own claim."""
        return int(self._taken.how(session_id, now_ms()) or 0)

    # --- time -------------------------------------------------------------------------------------

    def arm(self, actor: Actor, due_ms: int) -> None:
        """Tick the session then."""
        self._timers.set(actor.session_id, due_ms)

    def tick(self, now: int) -> None:
        """Tick the sessions that are due."""
        for session_id in self._timers.pop_due(now):
            actor = self.actors.get(session_id)
            if actor is None:
                continue
            actor.armed_ms = 0
            try:
                actor.handle(Ticked())
            except Exception:
                # A failure costs one session its tick, and no other session anything.
                log.exception("session_tick_failed", session_id=session_id)
                actor.arm(now)
