"""Messages of clients: each is decoded, checked to be about the connection's session, and given to it as an event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, get_args

import msgspec

from edge.audio.core.formats import audio_of
from edge.audio.core.reorder import Chunk
from edge.sessions.actor import ClientSocket
from edge.sessions.core.events import ClientAcked, CloseRequested, MessageReceived
from edge.sessions.core.utterances.intake import QUEUED
from edge.transport.websocket import internal_error
from mesh.clock import wall_ms
from mesh.errors import ErrorCode, PeerError
from mesh.ids import is_id
from mesh.log import get_logger
from mesh.messages import audio_frames, binary
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
    Utterance,
    decode_from_client,
)
from mesh.random_ids import new_trace_id

_UTTERANCE: Final = bytes((binary.UTTERANCE,))

log = get_logger()


class ClientMessages:
    """Handlers of all client messages. `chunk_bytes_max`: bound of the audio in one message."""

    def __init__(self, chunk_bytes_max: int) -> None:
        self._chunk_bytes_max = chunk_bytes_max
        self._handlers: dict[type[Message], Callable[[ClientSocket, Any], None]] = {
            AudioChunk: self._on_chunk,
            ClientHeartbeat: self._on_heartbeat,
            ResultAckMessage: self._on_ack,
            SessionClose: self._on_close,
        }
        known = {SessionInit, *QUEUED, *self._handlers}
        assert known == set(get_args(ClientMessage)), "every message of a client has a handler"

    def on_text(self, socket: ClientSocket, text: bytes) -> SessionInit | None:
        """Handle a message. A session_init is returned, for the Opener."""
        message: ClientMessage | None = None
        try:
            message = decode_from_client(text)
            if isinstance(message, SessionInit):
                return message
            handler = self._handlers.get(type(message))
            if handler is not None:
                handler(socket, message)
                return None
            _handle_in_order(socket, message, len(text))
        except PeerError as error:
            socket.send_error(_with_index(error, message))
        except Exception:
            # Our own bug costs this one message, not the socket.
            log.exception("client_message_failed", type=type(message).__name__)
            socket.send_error(internal_error())
        finally:
            socket.received[type(message)].value += 1
        return None

    def on_binary(self, socket: ClientSocket, data: bytes) -> None:
        """Handle a binary frame: a binary message, or a frame of a stream."""
        if data[:1] == _UTTERANCE:
            self._on_utterance(socket, data)
            return
        try:
            frame = audio_frames.decode(data)
            actor = socket.own()
            actor.state.check_open(frame.session_id)
            if not actor.state.session.init.binary_frames:
                text = "binary frames were not negotiated: set `binary_frames` in session_init, or send JSON text"
                raise PeerError(ErrorCode.UNSUPPORTED_FEATURE, text)
            if isinstance(frame, AudioFrame):
                self._check_size(frame.audio)
                chunk = Chunk(frame.seq, frame.audio, frame.is_final, frame.timestamp_ms)
                actor.handle(chunk, socket.heard_ms)
            elif isinstance(frame, FinalFrame):
                actor.handle(Chunk(frame.seq, b"", True, frame.timestamp_ms), socket.heard_ms)
            elif isinstance(frame, PingFrame):
                socket.outbox.put(audio_frames.encode(PongFrame(*frame)), text=False)
        except PeerError as error:
            socket.send_error(error)
        except Exception:
            log.exception("client_message_failed", type="binary")
            socket.send_error(internal_error())
        finally:
            socket.count_binary()

    def _on_utterance(self, socket: ClientSocket, data: bytes) -> None:
        message: Utterance | None = None
        try:
            if not socket.uses_binary_messages:
                text = "binary messages were not negotiated: set `binary_messages` in session_init, or send JSON text"
                raise PeerError(ErrorCode.UNSUPPORTED_FEATURE, text)
            decoded = binary.decode(data)
            assert isinstance(decoded, Utterance), "its type was read"
            message = decoded
            _handle_in_order(socket, message, len(data))
        except PeerError as error:
            socket.send_error(_with_index(error, message))
        except Exception:
            log.exception("client_message_failed", type="binary utterance")
            socket.send_error(internal_error())
        finally:
            socket.received[type(message)].inc()

    def _on_chunk(self, socket: ClientSocket, message: AudioChunk) -> None:
        actor = socket.own()
        actor.state.check_open(message.session_id)
        audio, problem = b"", None
        try:
            audio = audio_of(message.payload or "")
            self._check_size(audio)
        except PeerError as error:
            # The chunk is lost, but not its number: the next one must not wait for it.
            audio, problem = b"", error
        chunk = Chunk(message.seq, audio, message.is_final, message.client_timestamp_ms)
        actor.handle(chunk, socket.heard_ms)
        if problem is not None:
            raise PeerError(problem.code, problem.message, {"seq": message.seq})

    def _check_size(self, audio: bytes) -> None:
        bytes_max = self._chunk_bytes_max
        if len(audio) > bytes_max:
            raise PeerError(ErrorCode.MESSAGE_TOO_LARGE, f"a chunk may have {bytes_max} bytes, not {len(audio)}")

    def _on_heartbeat(self, socket: ClientSocket, message: ClientHeartbeat) -> None:
        actor = socket.own()
        actor.state.check_open(message.session_id, may_close=True)
        socket.send(ServerHeartbeat(session_id=actor.session_id, timestamp=wall_ms()))

    def _on_ack(self, socket: ClientSocket, message: ResultAckMessage) -> None:
        socket.own().handle(ClientAcked(message.session_id, message.utterance_index), socket.heard_ms)

    def _on_close(self, socket: ClientSocket, message: SessionClose) -> None:
        """Not queued, because the close timeout begins now; earlier messages that wait are still handled."""
        actor = socket.own()
        actor.state.check_open(message.session_id)
        actor.handle(CloseRequested())


def _handle_in_order(socket: ClientSocket, message: ClientMessage, size: int) -> None:
    actor = socket.own()
    actor.state.check_open(getattr(message, "session_id", None))
    if isinstance(message, Utterance) and not (message.trace_id and is_id(message.trace_id)):
        message = msgspec.structs.replace(message, trace_id=new_trace_id())
    actor.handle(MessageReceived(message, size), socket.heard_ms)


def trace_of(trace_id: str | None) -> str:
    """The client's trace id if it is valid, else a new one."""
    return trace_id if trace_id and is_id(trace_id) else new_trace_id()


def _with_index(error: PeerError, message: ClientMessage | None) -> PeerError:
    """The error with the utterance in its details."""
    if not isinstance(message, Utterance):
        return error
    details = {"session_id": message.session_id, "utterance_index": message.utterance_index}
    return PeerError(error.code, error.message, {**(error.details or {}), **details})
