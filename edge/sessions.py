"""Sessions: the rim of /ws/session. Reads clients' messages, opens, resumes and ends sessions, and lets time pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, get_args

from websockets.asyncio.server import ServerConnection

from edge.actor import Actor
from edge.client import ClientSocket
from edge.core.audio import from_base64
from edge.core.memory import Memory
from edge.core.segments import Chunk
from edge.core.session import Limits, Session
from edge.core.timers import Timers, earliest
from edge.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.opening import Opening
from edge.outbox import Bounds
from edge.posts import MOVED, Posts
from edge.requests import Requests
from edge.resuming import claim_frame
from edge.rooms import Rooms
from edge.socket import internal_error
from edge.speech import Speech
from edge.tools import Tools
from mesh import audio_frames
from mesh.audio_frames import AudioFrame, FinalFrame, PingFrame, PongFrame
from mesh.clock import now_ms, wall_ms
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import MailTrim, SessionClaimed, SessionRelease, SessionTaken
from mesh.ids import is_id, new_trace_id
from mesh.link import Received
from mesh.log import get_logger
from mesh.session_wire import (
    AudioChunk,
    ClientHeartbeat,
    ClientMessage,
    ResultAck,
    ServerHeartbeat,
    SessionClose,
    SessionCloseAck,
    SessionInit,
    TtsPlayEnded,
    TtsStarted,
    Utterance,
    decode_from_client,
)
from mesh.wire import Message

#: Close code of a socket whose session has a newer connection (docs/protocol.md).
CLOSE_SUPERSEDED: Final = 4009

log = get_logger()


class Sessions:
    """All sessions of this edge."""

    def __init__(self, config: Config, link: EdgeLink, metrics: EdgeMetrics) -> None:
        self.sockets: set[ClientSocket] = set()
        self.actors: dict[str, Actor] = {}
        self.requests = Requests(config, link, metrics, self.actors.get)
        self.custody = self.requests.custody
        self.posts = Posts(config, link, metrics, self.actors.get)
        self.rooms = Rooms(config.rooms, link, self.posts)
        self.speech = Speech(config, link, metrics, self.requests, self.rooms)
        self.requests.listener = self.speech
        self._config = config
        self._bounds = Bounds.of(config.edge)
        self._link = link
        self._metrics = metrics
        self._timers: Timers[str] = Timers()
        #: Sessions whose clients may come back, the longest absent first.
        self._away: dict[str, Actor] = {}
        #: Sessions that others got lately, and with which epoch.
        self._taken = Memory(config.edge.ended_kept_max, config.edge.ended_kept_ms)
        handlers: dict[type[Message], Callable[[Actor, Any], None]] = {
            Utterance: self._on_utterance,
            TtsStarted: self._on_tts_started,
            TtsPlayEnded: self._on_tts_ended,
            **self.rooms.handlers,
        }
        self._at_once: dict[type[Message], Callable[[ClientSocket, Any], None]] = {
            AudioChunk: self._on_chunk,
            ClientHeartbeat: self._on_heartbeat,
            ResultAck: self._on_ack,
            SessionClose: self._on_close,
        }
        known = {SessionInit, *handlers, *self._at_once}
        assert known == set(get_args(ClientMessage)), "every message of a client has a handler"
        self.tools = Tools(
            config,
            link,
            metrics,
            self.speech,
            handlers,
            self.requests.acknowledge,
            self._arm,
            self._give_up,
            self._on_closed,
        )
        limits = Limits(config.edge.utterances_per_session_max, config.edge.utterances_remembered_max)
        self._opening = Opening(self, config, link, metrics, limits)
        link.handle({SessionTaken: self._on_taken}, {})

    def __len__(self) -> int:
        return len(self.actors)

    # --- sockets ----------------------------------------------------------------------------------

    async def serve(self, connection: ServerConnection) -> None:
        """One client, from its first message to its last."""
        socket = ClientSocket(connection, "session", self._bounds, self._metrics)
        self.sockets.add(socket)
        try:
            async for data in socket.messages():
                if isinstance(data, bytes):
                    self._on_binary(socket, data)
                else:
                    opening = self._on_text(socket, data)
                    if opening is not None:
                        await opening
        finally:
            self.sockets.discard(socket)
            actor = socket.actor
            if actor is not None and actor.socket is socket and not actor.ended:
                self._on_lost(actor, socket)

    def _on_text(self, socket: ClientSocket, text: str) -> Awaitable[None] | None:
        """Work on a message; what is returned for session_init must be awaited before the next one is read."""
        message: ClientMessage | None = None
        try:
            message = decode_from_client(text)
            if isinstance(message, SessionInit):
                return self._opening.open(socket, message)
            at_once = self._at_once.get(type(message))
            if at_once is not None:
                at_once(socket, message)
            else:
                actor = self._own(socket, getattr(message, "session_id", None))
                actor.put(message, len(text))
        except PeerError as error:
            socket.tell_error(_with_index(error, message))
        except Exception:
            # The gateway from clients: our own bug must cost this one message, not the socket.
            log.exception("client_message_failed", type=type(message).__name__)
            socket.tell_error(internal_error())
        finally:
            socket.count_in(message)
        return None

    def _on_binary(self, socket: ClientSocket, data: bytes) -> None:
        try:
            frame = audio_frames.decode(data)
            actor = self._own(socket, frame.session_id)
            if not actor.session.init.binary_frames:
                text = "binary frames were not agreed upon: say `binary_frames` in session_init, or send JSON text"
                raise PeerError(ErrorCode.UNSUPPORTED_FEATURE, text)
            if isinstance(frame, AudioFrame):
                self._check_size(frame.audio)
                actor.put(Chunk(frame.seq, frame.audio, frame.is_final, frame.timestamp_ms), len(data))
            elif isinstance(frame, FinalFrame):
                actor.put(Chunk(frame.seq, b"", True, frame.timestamp_ms), len(data))
            elif isinstance(frame, PingFrame):
                socket.outbox.put(audio_frames.encode(PongFrame(*frame)), text=False)
        except PeerError as error:
            socket.tell_error(error)
        except Exception:
            log.exception("client_message_failed", type="binary")
            socket.tell_error(internal_error())
        finally:
            socket.count_binary()

    def _own(self, socket: ClientSocket, session_id: str | None) -> Actor:
        """The socket's session; PeerError if there is none, it is closed, or the message is about another."""
        actor = socket.own()
        actor.session.own(actor.session_id if session_id is None else session_id)
        if actor.life.closing_until_ms:
            raise PeerError(ErrorCode.SESSION_CLOSED, f"session {actor.session_id} is being closed")
        return actor

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

    # --- messages ---------------------------------------------------------------------------------

    def _on_chunk(self, socket: ClientSocket, message: AudioChunk) -> None:
        actor = self._own(socket, message.session_id)
        audio, problem = b"", None
        try:
            audio = from_base64(message.payload or "")
            self._check_size(audio)
        except PeerError as error:
            # The chunk is lost, but not its place: the next one must not wait for it.
            audio, problem = b"", error
        actor.put(Chunk(message.seq, audio, message.is_final, message.client_timestamp_ms), len(audio))
        if problem is not None:
            raise PeerError(problem.code, problem.message, {"seq": message.seq})

    def _check_size(self, audio: bytes) -> None:
        bytes_max = self._config.speech.utterance_bytes_max
        if len(audio) > bytes_max:
            raise PeerError(ErrorCode.MESSAGE_TOO_LARGE, f"a chunk may have {bytes_max} bytes, not {len(audio)}")

    def _on_utterance(self, actor: Actor, message: Utterance) -> None:
        session = actor.session
        actor.order.check_place(message.utterance_index)
        if not session.is_new(message, self.custody.waiting(actor.session_id)):
            return
        audio = from_base64(message.audio)
        if not audio:
            raise PeerError(ErrorCode.INVALID_AUDIO, "the audio is empty")
        if not self.custody.has_room(actor.session_id, len(audio)):
            raise PeerError(ErrorCode.SLOW_DOWN, "too much audio waits for results")
        session.remember(message)
        actor.say(session.whole(message, audio, trace_of(message.trace_id)))

    def _on_heartbeat(self, socket: ClientSocket, message: ClientHeartbeat) -> None:
        actor = socket.own()
        actor.session.own(message.session_id)
        socket.tell(ServerHeartbeat(session_id=actor.session_id, timestamp=wall_ms()))

    def _on_ack(self, socket: ClientSocket, message: ResultAck) -> None:
        actor = socket.own()
        if message.session_id != actor.session_id:
            self.posts.on_ack(actor, message.session_id, message.utterance_index)
        else:
            actor.release(actor.acks.ack(message.utterance_index))
            actor.pump()
        if not actor.mail_read or actor.unposted or len(actor.acks):
            return
        # What is of an index that has ended is not waited for: the audio was cut in other places this time.
        waits = any(push.utterance_index >= actor.order.next_index for push, _ in actor.adopted.values())
        if not waits:
            actor.adopted.clear()
            trim = MailTrim(actor.session_id, self._link.identity, actor.session.epoch, actor.mail_read)
            actor.mail_read = ""
            self._link.to_session_cell(actor.session_id, trim)

    def _on_tts_started(self, actor: Actor, message: TtsStarted) -> None:
        actor.playing(message.group_id, True)

    def _on_tts_ended(self, actor: Actor, message: TtsPlayEnded) -> None:
        actor.playing(message.group_id, False)

    def _on_close(self, socket: ClientSocket, message: SessionClose) -> None:
        """At once, because its time begins; what the client said before is worked on all the same."""
        self._own(socket, message.session_id).close(self._config.session.close_ms)

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
        self._metrics.results_total.labels("cancelled").inc(self.custody.waiting(session_id))
        self.requests.run(self.custody.close_session(session_id, now_ms()))
        actor.release(actor.acks.end())
        self.posts.gone(actor, "no_session")
        self.rooms.gone(actor)
        self._link.to_session_cell(
            session_id, SessionRelease(session_id=session_id, edge=self._link.identity, epoch=actor.session.epoch)
        )
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
        self._metrics.refused_total.labels("superseded").inc()
        text = "superseded by a newer connection of this session"
        socket.tell_error(PeerError(ErrorCode.SESSION_SUPERSEDED, text))
        socket.outbox.close(CLOSE_SUPERSEDED, text)

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


def new_session(session_id: str, message: SessionInit, limits: Limits, config: Config) -> Session:
    """A session as its client describes it; PeerError if that cannot be."""
    if message.tenant_id and not is_id(message.tenant_id):
        raise PeerError(ErrorCode.INVALID_ID, "`tenant_id` is not an id")
    return Session(session_id, message, trace_of(message.trace_id), limits, config.modules.table)


def trace_of(trace_id: str | None) -> str:
    """The client's trace id if it may be used as one, else a fresh one."""
    return trace_id if trace_id and is_id(trace_id) else new_trace_id()


def _with_index(error: PeerError, message: ClientMessage | None) -> PeerError:
    """The error, naming the utterance it is about."""
    if not isinstance(message, Utterance):
        return error
    about = {"session_id": message.session_id, "utterance_index": message.utterance_index}
    return PeerError(error.code, error.message, {**(error.details or {}), **about})
