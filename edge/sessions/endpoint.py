"""Sessions: the rim of /ws/session. Whose they are, how they begin and end, and what is due when."""

from __future__ import annotations

from websockets.asyncio.server import ServerConnection

from edge.core.recent_keys import RecentKeys
from edge.core.timers import Timers, earliest
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.requests.runner import RequestRunner
from edge.rooms.relay import MOVED, Relay
from edge.rooms.rooms import Rooms
from edge.sessions.actor import Actor
from edge.sessions.client import ClientSocket
from edge.sessions.context import SessionContext
from edge.sessions.core.session import SessionLimits
from edge.sessions.dispatcher import UtteranceDispatcher
from edge.sessions.messages import ClientMessages
from edge.sessions.open import SessionOpener
from edge.sessions.ownership import claim_frame, release
from edge.transport.send_buffer import SendLimits
from mesh.clock import now_ms
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import SessionClaimed, SessionTaken
from mesh.link.link import Received
from mesh.log import get_logger
from mesh.messages.client import SessionCloseAck
from mesh.words import CloseCode, ConnectionRefusal, PostVerdict, ResultOutcome, SocketKind

log = get_logger()


class SessionEndpoint:
    """All sessions of this edge."""

    def __init__(self, config: Config, link: EdgeLink, metrics: EdgeMetrics) -> None:
        self.sockets: set[ClientSocket] = set()
        self.actors: dict[str, Actor] = {}
        self.requests = RequestRunner(config, link, metrics, self.actors.get)
        self.custody = self.requests.custody
        self.posts = Relay(config, link, metrics, self.actors.get)
        self.rooms = Rooms(config.rooms, link, self.posts)
        self.speech = UtteranceDispatcher(config, link, metrics, self.requests, self.rooms)
        self.requests.listener = self.speech
        self._config = config
        self._bounds = SendLimits.of(config.edge)
        self._link = link
        self._metrics = metrics
        self._timers: Timers[str] = Timers()
        #: Sessions whose clients may come back, the longest absent first.
        self._away: dict[str, Actor] = {}
        #: Sessions that others got lately, and with which epoch.
        self._taken = RecentKeys(config.edge.ended_kept_max, config.edge.ended_kept_ms)
        self._messages = ClientMessages(config, link, self.custody, self.posts, self.rooms)
        self.tools = SessionContext(
            config,
            link,
            metrics,
            self.speech,
            self._messages.handlers,
            self.requests.acknowledge,
            self._arm,
            self._give_up,
            self._on_closed,
        )
        limits = SessionLimits(config.edge.utterances_per_session_max, config.edge.utterances_remembered_max)
        self._opening = SessionOpener(self, config, link, metrics, limits)
        link.handle({SessionTaken: self._on_taken}, {})

    def __len__(self) -> int:
        return len(self.actors)

    # --- sockets ----------------------------------------------------------------------------------

    async def serve(self, connection: ServerConnection) -> None:
        """One client, from its first message to its last."""
        socket = ClientSocket(connection, SocketKind.SESSION, self._bounds, self._metrics)
        self.sockets.add(socket)
        try:
            async for data in socket.messages():
                if isinstance(data, bytes):
                    self._messages.on_binary(socket, data)
                    continue
                init = self._messages.on_text(socket, data)
                if init is not None:
                    await self._opening.open(socket, init)  # before the next one is read
        finally:
            self.sockets.discard(socket)
            actor = socket.actor
            if actor is not None and actor.socket is socket and not actor.ended:
                self._on_lost(actor, socket)

    def _on_lost(self, actor: Actor, socket: ClientSocket) -> None:
        """The connection is gone without a goodbye."""
        log.info("session_lost", session_id=actor.session_id, reason=socket.close_reason, resumable=actor.resumable)
        if actor.life.closing_until_ms:
            actor.socket = None
        elif actor.resumable:
            self._away[actor.session_id] = actor
            actor.detach()
            if len(self._away) > self._config.session.away_max:
                self._let_go(next(iter(self._away.values())))
        elif actor.room:
            actor.socket = None
            actor.close(self._config.session.close_ms)  # those in the room shall hear its last words
        else:
            self.end(actor, "connection lost")

    # --- life -------------------------------------------------------------------------------------

    def opened(self, actor: Actor, *, resumed: bool) -> None:
        """The mesh knows that the session is ours."""
        self.actors[actor.session_id] = actor
        self.custody.open_session(actor.session_id, resumed=resumed)
        self._arm(actor)
        log.info("session_opened", session_id=actor.session_id, trace_id=actor.session.trace_id, resumed=resumed)

    def attach(self, actor: Actor, socket: ClientSocket) -> None:
        """The session's client is at that connection now."""
        self._away.pop(actor.session_id, None)
        actor.attach(socket)

    def _on_closed(self, actor: Actor) -> None:
        """A session that was closed has told everything, or its time is up."""
        if actor.ended:
            return
        socket = actor.socket
        self.end(actor, "closed")
        if socket is not None:
            socket.tell(SessionCloseAck(session_id=actor.session_id))

    def _give_up(self, actor: Actor, reason: str) -> None:
        """End a session for its client's fault, and tell it."""
        socket = actor.socket
        if actor.ended:
            return
        self.end(actor, reason)
        if socket is not None:
            socket.tell_error(PeerError(ErrorCode.SESSION_CLOSED, reason))

    def end(self, actor: Actor, reason: str) -> None:
        """The session is over, and nobody waits for its results."""
        session_id = actor.session_id
        self._forget(actor)
        self._metrics.results_total.labels(ResultOutcome.CANCELLED).inc(self.custody.waiting(session_id))
        self.requests.run(self.custody.close_session(session_id, now_ms()))
        actor.release(actor.acks.end())
        self.posts.gone(actor, PostVerdict.NO_SESSION)
        self.rooms.gone(actor)
        release(self._link, session_id, actor.session.epoch)
        log.info("session_closed", session_id=session_id, reason=reason)

    def _forget(self, actor: Actor) -> None:
        actor.ended = actor.session.closed = True
        actor.socket = None
        self.actors.pop(actor.session_id, None)
        self._away.pop(actor.session_id, None)
        self._timers.drop(actor.session_id)

    def _on_taken(self, message: Received) -> None:
        """Another edge has the session; or the mesh lost its record."""
        taken = message.frame
        assert isinstance(taken, SessionTaken)
        actor = self.actors.get(taken.session_id)
        if taken.edge not in ("", self._link.identity):
            epoch = max(taken.epoch, self.taken_epoch(taken.session_id))
            self._taken.add(taken.session_id, now_ms(), str(epoch))
        if actor is None:
            return
        if not taken.edge:
            self._claim_again(actor)
        elif taken.edge == self._link.identity:
            actor.session.epoch = max(actor.session.epoch, taken.epoch)
        elif taken.epoch > actor.session.epoch:
            self._superseded(actor, taken.edge)

    def taken_epoch(self, session_id: str) -> int:
        """The epoch with which another edge got the session lately. Word of it may come before our own claim's."""
        return int(self._taken.how(session_id) or 0)

    def _claim_again(self, actor: Actor) -> None:
        def on_answer(answer: object) -> None:
            if isinstance(answer, SessionClaimed) and not actor.ended:
                actor.session.epoch = max(actor.session.epoch, answer.epoch)
                actor.note(away=actor.socket is None)

        session, edge = actor.session, self._link.identity
        self._link.ask(lambda ref: claim_frame(ref, edge, session, actor.token, False), actor.session_id, on_answer)

    def _superseded(self, actor: Actor, owner: str) -> None:
        """The client resumed the session on another edge, which asks for whatever is under way."""
        socket = actor.socket
        self._leave(actor, owner)
        if socket is not None:
            self.cut_off(socket)
        log.info("session_taken", session_id=actor.session_id)

    def _let_go(self, actor: Actor) -> None:
        """Too many clients are away: this one finds its session as if its edge had died, in the mail and by itself."""
        self._leave(actor, "")
        log.warning("session_let_go", session_id=actor.session_id)

    def _leave(self, actor: Actor, owner: str) -> None:
        """The session goes on, but not here."""
        actor.moved = True
        self._forget(actor)
        self.requests.leave(actor.session_id, owner)
        self.posts.gone(actor, MOVED)

    def cut_off(self, socket: ClientSocket) -> None:
        """Close the older connection of a session that has a newer one."""
        socket.actor = None
        self._metrics.refused_total.labels(ConnectionRefusal.SUPERSEDED).inc()
        text = "superseded by a newer connection of this session"
        socket.tell_error(PeerError(ErrorCode.SESSION_SUPERSEDED, text))
        socket.outbox.close(CloseCode.SUPERSEDED, text)

    # --- time -------------------------------------------------------------------------------------

    def _arm(self, actor: Actor) -> None:
        """Look at the session when something is due. A due time that moves later is found when the old one comes."""
        if actor.ended:
            return
        due_ms = actor.due_ms()
        if not actor.armed_ms or due_ms < actor.armed_ms:
            actor.armed_ms = due_ms
            self._timers.set(actor.session_id, due_ms)
            self._link.changed()

    def next_due_ms(self) -> int | None:
        """When `tick` has something to do; None while there is no session."""
        return earliest((self._timers.next_due_ms(), self.posts.next_due_ms()))

    def tick(self, now: int) -> None:
        """Do what is due."""
        self._taken.forget(now)
        self.posts.tick(now)
        for session_id in self._timers.pop_due(now):
            actor = self.actors.get(session_id)
            if actor is None:
                continue
            actor.armed_ms = 0
            try:
                if actor.life.detached_until_ms and now >= actor.life.detached_until_ms:
                    self.end(actor, "the client did not come back")
                else:
                    actor.tick(now)
            except Exception:
                # Whatever went wrong with one session, time must go on for all the others.
                log.exception("session_tick_failed", session_id=session_id)
            self._arm(actor)
