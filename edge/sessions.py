"""Sessions: the rim of /ws/session. Reads clients' messages, runs the session core, answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, get_args

import msgspec
from websockets.asyncio.server import ServerConnection

from edge.core.asks import Answer
from edge.core.audio import duration_ms, from_base64
from edge.core.session import Limits, Session
from edge.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.outbox import Bounds
from edge.requests import ClientSocket, Requests
from edge.socket import internal_error
from mesh.clock import now_ms, wall_ms
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import (
    Failed,
    SessionClaim,
    SessionClaimed,
    SessionRelease,
    encode,
)
from mesh.ids import is_id, new_session_id, new_trace_id
from mesh.log import get_logger
from mesh.session_wire import (
    PROTOCOL_VERSION,
    AudioChunk,
    ClientHeartbeat,
    ClientMessage,
    RoomCreate,
    RoomJoin,
    RoomLeave,
    RoomRawVoicePreference,
    ServerHeartbeat,
    SessionClose,
    SessionCloseAck,
    SessionInit,
    SessionInitAck,
    TtsPlayEnded,
    TtsStarted,
    Utterance,
    WebrtcAnswer,
    WebrtcIce,
    WebrtcOffer,
    decode_from_client,
)
from mesh.wire import Message

#: What streamed audio is, as the original always says.
STREAM_CODEC: Final = "opus"
STREAM_SAMPLE_RATE: Final = 16_000

log = get_logger()


class Sessions:
    """All sessions of this edge."""

    def __init__(self, config: Config, link: EdgeLink, metrics: EdgeMetrics) -> None:
        edge = config.edge
        self.sockets: set[ClientSocket] = set()
        self._by_id: dict[str, ClientSocket] = {}
        self.requests = Requests(config, link, metrics, self._by_id.get)
        self.custody = self.requests.custody
        self._config = config
        self._bounds = Bounds.of(edge)
        self._limits = Limits(edge.utterances_per_session_max, edge.utterances_remembered_max)
        self._link = link
        self._metrics = metrics
        self._on_message: dict[type[Message], Callable[[ClientSocket, Any], Awaitable[None]]] = {
            SessionInit: self._on_init,
            Utterance: self._on_utterance,
            ClientHeartbeat: self._on_heartbeat,
            SessionClose: self._on_close,
            TtsStarted: self._on_playback,
            TtsPlayEnded: self._on_playback,
            AudioChunk: self._on_unsupported,
            RoomCreate: self._on_unsupported,
            RoomJoin: self._on_unsupported,
            RoomLeave: self._on_unsupported,
            RoomRawVoicePreference: self._on_unsupported,
            WebrtcOffer: self._on_unsupported,
            WebrtcAnswer: self._on_unsupported,
            WebrtcIce: self._on_unsupported,
        }
        assert set(self._on_message) == set(get_args(ClientMessage)), "every message of a client has a handler"

    def __len__(self) -> int:
        return len(self._by_id)

    # --- sockets ------------------------------------------------------------------------------

    async def serve(self, connection: ServerConnection) -> None:
        """One client, from its first message to its last."""
        socket = ClientSocket(connection, "session", self._bounds, self._metrics)
        self.sockets.add(socket)
        try:
            async for text in socket.messages():
                await self._on_text(socket, text)
        finally:
            self.sockets.discard(socket)
            self._release(socket)

    async def _on_text(self, socket: ClientSocket, text: str | bytes) -> None:
        message: ClientMessage | None = None
        try:
            if isinstance(text, bytes):
                raise PeerError(ErrorCode.UNSUPPORTED_FEATURE, "binary frames were not negotiated: send JSON text")
            message = decode_from_client(text)
            await self._on_message[type(message)](socket, message)
        except PeerError as error:
            socket.tell_error(_with_index(error, message))
        except Exception:
            # The gateway from clients: our own bug must cost this one message, not the socket.
            log.exception("client_message_failed", type=type(message).__name__)
            socket.tell_error(internal_error())
        finally:
            socket.count_in(message)

    def _release(self, socket: ClientSocket) -> None:
        """The socket's session ends, and nobody waits for its results."""
        old, socket.session = socket.session, None
        if old is None or old.closed:
            return
        old.closed = True
        self._by_id.pop(old.session_id, None)
        self._metrics.results_total.labels("cancelled").inc(self.custody.waiting(old.session_id))
        self.requests.run(self.custody.close_session(old.session_id, now_ms()))
        self._link.to_session_cell(
            old.session_id, SessionRelease(session_id=old.session_id, edge=self._link.identity, epoch=old.epoch)
        )
        log.info("session_closed", session_id=old.session_id, reason=socket.close_reason)

    # --- messages -----------------------------------------------------------------------------

    async def _on_init(self, socket: ClientSocket, message: SessionInit) -> None:
        if message.tenant_id and not is_id(message.tenant_id):
            raise PeerError(ErrorCode.INVALID_ID, "`tenant_id` is not an id")
        opened = Session(
            new_session_id(), message, _trace_of(message.trace_id), self._limits, self._config.modules.table
        )
        self._release(socket)
        answer = await self._claim(opened)
        if answer is None:
            raise PeerError(ErrorCode.SCHEDULER_DEPENDENCY_DOWN, "the mesh did not answer in time")
        if isinstance(answer, Failed):
            code = ErrorCode.__members__.get(answer.code, ErrorCode.INTERNAL_ERROR)
            raise PeerError(code, answer.message)
        socket.session = opened
        self._by_id[opened.session_id] = socket
        self.custody.open_session(opened.session_id)
        log.info("session_opened", session_id=opened.session_id, trace_id=opened.trace_id)
        socket.tell(
            SessionInitAck(
                session_id=opened.session_id,
                trace_id=opened.trace_id,
                protocol_version=PROTOCOL_VERSION,
                use_binary_frame=False,
                negotiated_codec=STREAM_CODEC,
                negotiated_audio_format=STREAM_CODEC,
                negotiated_sample_rate=STREAM_SAMPLE_RATE,
                negotiated_channel_count=1,
            )
        )

    async def _claim(self, opened: Session) -> Answer | None:
        answered: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

        def on_answer(answer: Answer | None) -> None:
            if isinstance(answer, SessionClaimed):
                opened.epoch = max(opened.epoch, answer.epoch)
            if not answered.done():
                answered.set_result(answer)

        def question(ref: str) -> SessionClaim:
            return SessionClaim(
                ref=ref,
                session_id=opened.session_id,
                edge=self._link.identity,
                epoch=0,
                tenant_id=opened.tenant_id,
                src_lang=opened.init.src_lang,
                tgt_lang=opened.init.tgt_lang,
            )

        self._link.ask(question, opened.session_id, on_answer)
        return await answered

    async def _on_utterance(self, socket: ClientSocket, message: Utterance) -> None:
        own = socket.own(message.session_id)
        if not own.is_new(message, self.custody.waiting(own.session_id)):
            return
        audio = from_base64(message.audio)
        if not audio:
            raise PeerError(ErrorCode.INVALID_AUDIO, "the audio is empty")
        if not self.custody.has_room(len(audio)):
            raise PeerError(ErrorCode.SLOW_DOWN, "too much audio waits for results")
        dispatch, work = own.dispatch(
            message,
            edge=self._link.identity,
            audio_ms=duration_ms(audio, message.audio_format, message.sample_rate),
            trace_id=_trace_of(message.trace_id),
            deadline_ms=wall_ms() + self._config.job.deadline_ms,
        )
        now = now_ms()
        self._metrics.utterances_total.inc()
        self.requests.run(self.custody.submit(dispatch, encode(work), audio, now + self._config.job.deadline_ms, now))
        self._link.changed()

    async def _on_heartbeat(self, socket: ClientSocket, message: ClientHeartbeat) -> None:
        own = socket.own(message.session_id)
        socket.tell(ServerHeartbeat(session_id=own.session_id, timestamp=wall_ms()))

    async def _on_close(self, socket: ClientSocket, message: SessionClose) -> None:
        own = socket.own(message.session_id)
        self._release(socket)
        socket.session = own  # closed: what still comes for it is answered with SESSION_CLOSED
        socket.tell(SessionCloseAck(session_id=own.session_id))

    async def _on_playback(self, socket: ClientSocket, message: TtsStarted | TtsPlayEnded) -> None:
        socket.own(message.session_id)

    async def _on_unsupported(self, socket: ClientSocket, message: Message) -> None:
        name = message.__struct_config__.tag
        raise PeerError(ErrorCode.UNSUPPORTED_FEATURE, f"`{name}` is not supported yet", {"type": name})


def _trace_of(trace_id: str | None) -> str:
    """The client's trace id if it may be used as one, else a fresh one."""
    return trace_id if trace_id and is_id(trace_id) else new_trace_id()


def _with_index(error: PeerError, message: ClientMessage | None) -> PeerError:
    """The error, naming the utterance it is about."""
    if not isinstance(message, Utterance):
        return error
    about = msgspec.structs.asdict(message)
    details = {**(error.details or {}), **{name: about[name] for name in ("session_id", "utterance_index")}}
    return PeerError(error.code, error.message, details)
