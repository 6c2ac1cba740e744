"""Sessions: the rim of /ws/session. Reads clients' messages, runs the session and custody cores, tells clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, get_args

import msgspec
from websockets.asyncio.server import ServerConnection

from edge.core import custody as core
from edge.core import results
from edge.core.asks import Answer
from edge.core.audio import duration_ms, from_base64
from edge.core.session import Limits, Session
from edge.link import EdgeLink
from edge.outbox import Bounds
from edge.socket import Socket, internal_error
from mesh.clock import now_ms, wall_ms
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import (
    Cancel,
    Dispatch,
    Failed,
    Frame,
    Notice,
    Placed,
    Push,
    Refused,
    ResultAck,
    SessionClaim,
    SessionClaimed,
    SessionRelease,
    Undone,
    encode,
)
from mesh.handover import is_silence
from mesh.ids import is_id, new_session_id, new_trace_id
from mesh.link import Received
from mesh.log import get_logger
from mesh.metrics import EdgeMetrics
from mesh.node_wire import AsrPartial, JobResult, decode_from_node, decode_job_result
from mesh.session_wire import (
    PROTOCOL_VERSION,
    AudioChunk,
    Backpressure,
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


class ClientSocket(Socket):
    """One connection on /ws/session and the session it carries."""

    session: Session | None = None

    def own(self, session_id: str) -> Session:
        """The socket's session; PeerError if there is none, or the message is about another."""
        if self.session is None:
            raise PeerError(ErrorCode.INVALID_SESSION, "there is no session on this connection yet")
        self.session.own(session_id)
        return self.session


class Sessions:
    """All sessions of this edge."""

    def __init__(self, config: Config, link: EdgeLink, metrics: EdgeMetrics) -> None:
        edge = config.edge
        self.sockets: set[ClientSocket] = set()
        self.custody = core.Custody(
            core.Limits(
                resend_ms=edge.resend_ms,
                resend_ms_max=edge.resend_ms_max,
                attempts_max=config.job.attempts_max,
                audio_bytes_max=edge.audio_kept_bytes_max,
                ended_kept_max=edge.ended_kept_max,
                ended_kept_ms=edge.ended_kept_ms,
            )
        )
        self._config = config
        self._bounds = Bounds.of(edge)
        self._limits = Limits(edge.utterances_per_session_max, edge.utterances_remembered_max)
        self._link = link
        self._metrics = metrics
        self._by_id: dict[str, ClientSocket] = {}
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
        self._run_effect: dict[type, Callable[[Any], None]] = {
            core.SendDispatch: self._send_dispatch,
            core.SendCancel: self._send_cancel,
            core.TellPlaced: self._tell_placed,
            core.Deliver: self._deliver,
            core.Fail: self._fail,
            core.AckResult: self._ack_result,
            core.TellBackpressure: self._tell_backpressure,
        }
        assert set(self._run_effect) == set(get_args(core.Effect)), "every effect is carried out"
        handlers: dict[type[Frame], Callable[[Received], None]] = {
            Placed: self._on_placed,
            Refused: self._on_refused,
            Undone: self._on_undone,
            Push: self._on_push,
            Notice: self._on_notice,
        }
        link.handle(handlers, {Dispatch: self._on_dispatch_back})

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
        self.run(self.custody.close_session(old.session_id, now_ms()))
        self._link.to_session_cell(
            old.session_id, SessionRelease(session_id=old.session_id, edge=self._link.identity, epoch=old.epoch)
        )
        self._metrics.sessions.set(len(self._by_id))
        log.info("session_closed", session_id=old.session_id, reason=socket.close_reason)

    # --- messages -----------------------------------------------------------------------------

    async def _on_init(self, socket: ClientSocket, message: SessionInit) -> None:
        if message.tenant_id and not is_id(message.tenant_id):
            raise PeerError(ErrorCode.INVALID_ID, "`tenant_id` is not an id")
        opened = Session(new_session_id(), message, _trace_of(message.trace_id), self._limits)
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
        self._metrics.sessions.set(len(self._by_id))
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
        self.run(self.custody.submit(dispatch, encode(work), audio, now + self._config.job.deadline_ms, now))
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

    # --- frames -------------------------------------------------------------------------------

    def _on_placed(self, message: Received) -> None:
        assert isinstance(message.frame, Placed)
        self.run(self.custody.on_placed(message.frame, now_ms()))

    def _on_refused(self, message: Received) -> None:
        assert isinstance(message.frame, Refused)
        self.run(self.custody.on_refused(message.frame, now_ms()))

    def _on_undone(self, message: Received) -> None:
        assert isinstance(message.frame, Undone)
        self.run(self.custody.on_undone(message.frame, now_ms()))

    def _on_push(self, message: Received) -> None:
        assert isinstance(message.frame, Push)
        self.run(self.custody.on_push(message.frame, message.payload[0], now_ms()))

    def _on_notice(self, message: Received) -> None:
        notice = message.frame
        assert isinstance(notice, Notice)
        request = self.custody.requests.get(notice.request_id)
        if request is None or request.attempt != notice.attempt:
            return
        now = now_ms()
        if notice.event == "accepted":
            self._tell(request, [results.ui_event(request, "NODE_ACCEPTED", now, notice.job_id)])
        elif notice.event == "asr_partial":
            partial = decode_from_node(message.payload[0])
            assert isinstance(partial, AsrPartial)
            self._tell(request, results.for_partial(request, partial, now))

    def _on_dispatch_back(self, frame: Frame, retry_after_ms: int) -> None:
        assert isinstance(frame, Dispatch)
        if retry_after_ms:
            self.run(self.custody.on_busy(frame, retry_after_ms, now_ms()))
        else:
            self.run(self.custody.on_bounce(frame, now_ms()))

    # --- effects ------------------------------------------------------------------------------

    def run(self, effects: Iterable[core.Effect]) -> None:
        """Carry out what the custody core decided."""
        for effect in effects:
            self._run_effect[type(effect)](effect)

    def _send_dispatch(self, effect: core.SendDispatch) -> None:
        request = effect.request
        if request.sends > 1:
            self._metrics.resends_total.labels("Dispatch").inc()
        elif request.attempt > 1:
            self._metrics.attempts_total.inc()
        broker = self._link.to_session_cell(
            request.session_id,
            request.frame(),
            request.work,
            request.audio,
            deadline_ms=request.dispatch.deadline_ms,
            avoid=effect.avoid,
        )
        self.custody.sent(request.request_id, broker)

    def _send_cancel(self, effect: core.SendCancel) -> None:
        request = effect.request
        cancel = Cancel(
            request_id=request.request_id,
            job_id=request.job_id,
            attempt=request.attempt,
            node_id=request.node_id,
            session_id=request.session_id,
            reason=effect.reason,
        )
        if effect.reason == "session_closed":
            self._metrics.results_total.labels("cancelled").inc()
        if request.job_id:
            self._link.to_job_cell(request.job_id, cancel)
        else:
            # The job, if there is one, is known by its request only: that binding lives in the session's cell.
            self._link.to_session_cell(request.session_id, cancel)

    def _tell_placed(self, effect: core.TellPlaced) -> None:
        self._tell(effect.request, [results.ui_event(effect.request, "DISPATCHED", now_ms())])

    def _deliver(self, effect: core.Deliver) -> None:
        request, now = effect.request, now_ms()
        try:
            result = decode_job_result(effect.text)
        except PeerError as error:
            # Its edge read it before it kept it, so this is a mesh of mixed versions; the client must still hear.
            log.error("result_unreadable", job_id=effect.push.job_id, error=error.message)
            told = results.for_failure(request, ErrorCode.PROCESSING_ERROR, "the result is unreadable", None, now)
            self._tell(request, told)
            return
        self._metrics.results_total.labels(_outcome_of(result)).inc()
        self._metrics.result_seconds.observe((now - request.created_ms) / 1_000)
        self._tell(request, results.for_result(request, effect.push, result, now, wall_ms()))

    def _fail(self, effect: core.Fail) -> None:
        request = effect.request
        outcome = {ErrorCode.JOB_TIMEOUT: "timeout", ErrorCode.NO_AVAILABLE_NODE: "no_node"}.get(effect.code, "failed")
        self._metrics.results_total.labels(outcome).inc()
        log.info(
            "utterance_failed",
            session_id=request.session_id,
            job_id=request.job_id,
            trace_id=request.dispatch.trace_id,
            code=effect.code.name,
            attempts=request.attempt,
        )
        details = effect.details and {str(key): value for key, value in effect.details.items()}
        self._tell(request, results.for_failure(request, effect.code, effect.message, details, now_ms()))

    def _ack_result(self, effect: core.AckResult) -> None:
        push = effect.push
        if effect.verdict != "delivered":
            self._metrics.results_total.labels("duplicate" if effect.verdict == "duplicate" else "late").inc()
        ack = ResultAck(job_id=push.job_id, attempt=push.attempt, node_id=push.node_id, verdict=effect.verdict)
        self._link.to_peer(push.node_edge, ack)

    def _tell_backpressure(self, effect: core.TellBackpressure) -> None:
        socket = self._by_id.get(effect.session_id)
        if socket is not None and socket.session is not None and socket.session.may_slow_down(now_ms()):
            self._metrics.backpressure_total.labels("SLOW_DOWN").inc()
            socket.tell(Backpressure(action="SLOW_DOWN", resume_after_ms=effect.resume_after_ms))

    def _tell(self, request: core.Request, messages: Iterable[Message]) -> None:
        socket = self._by_id.get(request.session_id)
        if socket is not None:
            for message in messages:
                socket.tell(message)


def _trace_of(trace_id: str | None) -> str:
    """The client's trace id if it may be used as one, else a fresh one."""
    return trace_id if trace_id and is_id(trace_id) else new_trace_id()


def _outcome_of(result: JobResult) -> str:
    if not result.success:
        return "failed"
    return "silence" if is_silence(result) else "result"


def _with_index(error: PeerError, message: ClientMessage | None) -> PeerError:
    """The error, naming the utterance it is about."""
    if not isinstance(message, Utterance):
        return error
    about = msgspec.structs.asdict(message)
    details = {**(error.details or {}), **{name: about[name] for name in ("session_id", "utterance_index")}}
    return PeerError(error.code, error.message, details)
