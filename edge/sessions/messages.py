"""What clients say in their sessions: each message is read, checked, and done or put into its session's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from edge.audio.core.formats import from_base64
from edge.audio.core.reorder import Chunk
from edge.link.link import EdgeLink
from edge.requests.core.tracker import RequestTracker
from edge.rooms.relay import Relay
from edge.rooms.rooms import Rooms
from edge.sessions.actor import Actor
from edge.sessions.client import ClientSocket
from edge.transport.websocket import internal_error
from mesh.clock import wall_ms
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import MailTrim
from mesh.ids import is_id
from mesh.log import get_logger
from mesh.messages import audio_frames
from mesh.messages.audio_frames import AudioFrame, FinalFrame, PingFrame, PongFrame
from mesh.messages.base import Message
from mesh.messages.client import (
    AudioChunk,
    ClientHeartbeat,
    ClientMessage,
    ResultAckMessage,
    ServerHeartbeat,
    SessionClose,
    SessionInit,
    TtsPlayEnded,
    TtsStarted,
    Utterance,
    decode_from_client,
)
from mesh.random_ids import new_trace_id

log = get_logger()


class ClientMessages:
    """Handlers for what clients send. `handlers` are for actors, who call them when it is the message's turn."""

    def __init__(self, config: Config, link: EdgeLink, custody: RequestTracker, posts: Relay, rooms: Rooms) -> None:
        self._config = config
        self._link = link
        self._custody = custody
        self._posts = posts
        self.handlers: dict[type[Message], Callable[[Actor, Any], None]] = {
            Utterance: self._on_utterance,
            TtsStarted: self._on_tts_started,
            TtsPlayEnded: self._on_tts_ended,
            **rooms.handlers,
        }
        self._at_once: dict[type[Message], Callable[[ClientSocket, Any], None]] = {
            AudioChunk: self._on_chunk,
            ClientHeartbeat: self._on_heartbeat,
            ResultAckMessage: self._on_ack,
            SessionClose: self._on_close,
        }
        known = {SessionInit, *self.handlers, *self._at_once}
        assert known == set(get_args(ClientMessage)), "every message of a client has a handler"

    # --- reading ----------------------------------------------------------------------------------

    def on_text(self, socket: ClientSocket, text: str) -> SessionInit | None:
        """Work on a message. A session_init is returned: it is for whoever opens sessions."""
        message: ClientMessage | None = None
        try:
            message = decode_from_client(text)
            if isinstance(message, SessionInit):
                return message
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

    def on_binary(self, socket: ClientSocket, data: bytes) -> None:
        """Work on a binary frame."""
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

    # --- doing ------------------------------------------------------------------------------------

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
        if not session.is_new(message, self._custody.waiting(actor.session_id)):
            return
        audio = from_base64(message.audio)
        if not audio:
            raise PeerError(ErrorCode.INVALID_AUDIO, "the audio is empty")
        if not self._custody.has_room(actor.session_id, len(audio)):
            raise PeerError(ErrorCode.SLOW_DOWN, "too much audio waits for results")
        session.remember(message)
        actor.say(session.whole(message, audio, trace_of(message.trace_id)))

    def _on_heartbeat(self, socket: ClientSocket, message: ClientHeartbeat) -> None:
        actor = socket.own()
        actor.session.own(message.session_id)
        socket.tell(ServerHeartbeat(session_id=actor.session_id, timestamp=wall_ms()))

    def _on_ack(self, socket: ClientSocket, message: ResultAckMessage) -> None:
        actor = socket.own()
        if message.session_id != actor.session_id:
            self._posts.on_ack(actor, message.session_id, message.utterance_index)
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


def trace_of(trace_id: str | None) -> str:
    """The client's trace id if it may be used as one, else a fresh one."""
    return trace_id if trace_id and is_id(trace_id) else new_trace_id()


def _with_index(error: PeerError, message: ClientMessage | None) -> PeerError:
    """The error, naming the utterance it is about."""
    if not isinstance(message, Utterance):
        return error
    about = {"session_id": message.session_id, "utterance_index": message.utterance_index}
    return PeerError(error.code, error.message, {**(error.details or {}), **about})
