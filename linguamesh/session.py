"""The session SDK: speak to the mesh and get translations.

    async with Session("ws://127.0.0.1:5010", src="en", tgt="es") as session:
        result = await session.translate(audio)
        print(result.text_translated)

Utterances may be translated concurrently. A session lives on one connection: when that is lost, everything that waits
fails with WS_DISCONNECTED, and a new Session must be opened.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from linguamesh.dial import OPEN_TIMEOUT_S, dial, with_path
from linguamesh.errors import SessionError, Unreachable
from linguamesh.session_result import Translation, translation_of
from linguamesh.session_waiting import Waiter, Waiting
from mesh import session_wire as wire
from mesh.clock import now_ms, wall_ms
from mesh.errors import ErrorCode, PeerError

__all__ = ["Session", "SessionError", "Translation", "Unreachable"]

CLIENT_VERSION: Final = "linguamesh-0.1.0"
PLATFORM: Final = "api-gateway"
HEARTBEAT_INTERVAL_S: Final = 30.0
#: A little more than the mesh itself allows a job, so that its own, better reason comes first.
TRANSLATE_TIMEOUT_S: Final = 35.0
SEND_TIMEOUT_S: Final = 5.0
CLOSE_ACK_TIMEOUT_S: Final = 2.0
#: Utterances on their way at once; more wait here. The mesh's own limit is the same.
UTTERANCES_WAITING_MAX: Final = 200
#: Longest pause that a `backpressure` message can cause.
HOLD_MS_MAX: Final = 5_000
HOLD_MS_DEFAULT: Final = 500
#: ui_event ERROR says what failed, `error` says why; the second may come a moment later.
REASON_GRACE_S: Final = 0.2

#: Codes that end the session, not one utterance.
_FATAL: Final = frozenset({ErrorCode.INVALID_SESSION.name, ErrorCode.SESSION_CLOSED.name})

_log = logging.getLogger("linguamesh.session")


class Session:
    """One conversation direction, from `src` to `tgt`. Use it with `async with`.

    url         ws://host:port of any edge; /ws/session is added
    src, tgt    language codes; src "auto" lets the node detect it
    on_event    called with every other message of the mesh: ui_event, asr_partial, backpressure, error
    timeout     seconds that `translate` waits unless told otherwise
    options     more fields of session_init, such as tenant_id, pairing_code, mode, lang_a, lang_b
    """

    def __init__(
        self,
        url: str,
        *,
        tgt: str,
        src: str = "auto",
        on_event: Callable[[wire.ServerMessage], None] | None = None,
        timeout: float = TRANSLATE_TIMEOUT_S,
        open_timeout: float = OPEN_TIMEOUT_S,
        heartbeat_interval: float = HEARTBEAT_INTERVAL_S,
        **options: Any,
    ) -> None:
        self.url = with_path(url, "/ws/session")
        self.src = src
        self.tgt = tgt
        self._init = wire.SessionInit(
            client_version=CLIENT_VERSION, platform=PLATFORM, src_lang=src, tgt_lang=tgt, **options
        )
        self._on_event = on_event
        self._timeout = timeout
        self._open_timeout = open_timeout
        self._heartbeat_interval = heartbeat_interval
        self._session_id = ""
        self._connection: ClientConnection | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._close_ack = asyncio.Event()
        self._waiting = Waiting()
        self._room = asyncio.Semaphore(UTTERANCES_WAITING_MAX)
        self._next_index = 0
        self._hold_until_ms = 0  # no new utterance before (backpressure)
        self._failing: int | None = None  # an utterance whose failure was announced; the reason comes next
        self._over: SessionError | None = None  # why the session cannot be used any more

    @property
    def session_id(self) -> str:
        """The id that the mesh gave; "" before the session is open."""
        return self._session_id

    # --- life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Session:
        connection = await dial(self.url, open_timeout_s=self._open_timeout)
        try:
            await connection.send(wire.encode(self._init))
            async with asyncio.timeout(self._open_timeout):
                ack = await self._await_ack(connection)
        except BaseException as error:
            await connection.close()
            if isinstance(error, TimeoutError):
                raise Unreachable(f"{self.url} did not answer session_init within {self._open_timeout:g} s") from None
            if isinstance(error, ConnectionClosed):
                raise Unreachable(f"{self.url} closed the connection on session_init: {error}") from None
            raise
        self._session_id = ack.session_id
        self._connection = connection
        self._tasks = [
            asyncio.create_task(self._read(connection), name="session reader"),
            asyncio.create_task(self._heartbeat(), name="session heartbeat"),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(wait=error is None)

    async def close(self, *, wait: bool = True) -> None:
        """Say goodbye and end; what still waits fails with SESSION_CLOSED. Safe to repeat."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if self._over is None:
                goodbye = wire.SessionClose(session_id=self._session_id, reason="client closed")
                async with asyncio.timeout(CLOSE_ACK_TIMEOUT_S):
                    await connection.send(wire.encode(goodbye))
                    if wait:
                        await self._close_ack.wait()
        except (ConnectionClosed, TimeoutError):
            pass  # the mesh notices the closed socket
        self._end(ErrorCode.SESSION_CLOSED, "the session was closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await connection.close()

    def _end(self, code: ErrorCode, message: str) -> None:
        if self._over is None:
            self._over = SessionError(code.name, message)
        self._close_ack.set()
        self._waiting.fail_all(self._over.code, self._over.message)

    # --- speaking ---------------------------------------------------------------------------------

    async def translate(
        self,
        audio: bytes,
        *,
        format: str = "pcm16",
        sample_rate: int = 16_000,
        src: str | None = None,
        tgt: str | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> Translation:
        """The translation of one utterance; SessionError if there is none."""
        seconds = self._timeout if timeout is None else timeout
        future: asyncio.Future[Translation] = asyncio.get_running_loop().create_future()
        index = None
        try:
            async with asyncio.timeout(seconds):
                async with self._room:
                    index = await self._speak(audio, format, sample_rate, src, tgt, future, options)
                    translation = await future
        except TimeoutError:
            code = ErrorCode.JOB_TIMEOUT.name
            raise SessionError(code, f"no result within {seconds:g} s", utterance_index=index) from None
        finally:
            if index is not None:
                self._waiting.drop(index)
        if translation.error:
            raise translation.error
        return translation

    async def send(
        self,
        audio: bytes,
        *,
        format: str = "pcm16",
        sample_rate: int = 16_000,
        src: str | None = None,
        tgt: str | None = None,
        **options: Any,
    ) -> int:
        """Send one utterance and return its index; its end comes from `results()`."""
        if len(self._waiting) >= UTTERANCES_WAITING_MAX:
            code = ErrorCode.TOO_MANY_UTTERANCES
            raise SessionError(code.name, f"{len(self._waiting)} utterances wait for their results")
        return await self._speak(audio, format, sample_rate, src, tgt, None, options)

    async def results(self) -> AsyncIterator[Translation]:
        """What was sent with `send`, as it ends; failed ones have `error` set. Ends with the session."""
        while (translation := await self._waiting.next_unread()) is not None:
            yield translation

    async def _speak(
        self,
        audio: bytes,
        audio_format: str,
        sample_rate: int,
        src: str | None,
        tgt: str | None,
        future: asyncio.Future[Translation] | None,
        options: dict[str, Any],
    ) -> int:
        await self._hold()
        index, self._next_index = self._next_index, self._next_index + 1
        message = wire.Utterance(
            session_id=self._session_id,
            utterance_index=index,
            manual_cut=options.pop("manual_cut", True),
            src_lang=src or self.src,
            tgt_lang=tgt or self.tgt,
            audio=base64.b64encode(audio).decode(),
            audio_format=audio_format,
            sample_rate=sample_rate,
            **options,
        )
        self._waiting.add(index, Waiter(now_ms(), future))
        try:
            await self._say(message)
        except BaseException:
            self._waiting.drop(index)
            raise
        return index

    async def _hold(self) -> None:
        """Wait while the mesh asked for less."""
        rest_ms = self._hold_until_ms - now_ms()
        if rest_ms > 0:
            await asyncio.sleep(rest_ms / 1_000)

    async def _say(self, message: wire.ClientMessage) -> None:
        if self._over:
            raise SessionError(self._over.code, self._over.message)
        if self._connection is None:
            raise SessionError(ErrorCode.INVALID_SESSION.name, "the session is not open: use `async with`")
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._connection.send(wire.encode(message))
        except ConnectionClosed:
            raise SessionError(ErrorCode.WS_DISCONNECTED.name, "the connection is lost") from None
        except TimeoutError:
            self._connection.transport.abort()
            raise SessionError(ErrorCode.WS_DISCONNECTED.name, "the connection is stuck") from None

    # --- listening --------------------------------------------------------------------------------

    async def _await_ack(self, connection: ClientConnection) -> wire.SessionInitAck:
        while True:
            message = _decoded(await connection.recv())
            if isinstance(message, wire.SessionInitAck):
                return message
            if isinstance(message, wire.ErrorMessage):
                raise _error_of(message)

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_interval)
            try:
                await self._say(wire.ClientHeartbeat(session_id=self._session_id, timestamp=wall_ms()))
            except SessionError:
                return  # the reader notices as well, and tells those who wait

    async def _read(self, connection: ClientConnection) -> None:
        try:
            async for text in connection:
                self._on_message(_decoded(text))
        except ConnectionClosed as error:
            _log.info("connection to %s lost: %s", self.url, error)
        finally:
            self._end(ErrorCode.WS_DISCONNECTED, "the connection is lost")

    def _on_message(self, message: wire.ServerMessage | None) -> None:
        if isinstance(message, wire.TranslationResult):
            sent_ms = self._waiting.sent_ms(message.utterance_index)
            if sent_ms is not None:
                self._waiting.end(translation_of(message, now_ms() - sent_ms))
            return
        if isinstance(message, wire.SessionCloseAck):
            self._close_ack.set()
        elif isinstance(message, wire.MissingResult):
            self._waiting.fail(message.utterance_index, SessionError("MISSING_RESULT", message.reason))
        elif isinstance(message, wire.ErrorMessage):
            self._on_error(message)
        elif isinstance(message, wire.UiEvent) and message.event == "ERROR":
            self._on_error_event(message)
        elif isinstance(message, wire.Backpressure):
            hold_ms = min(message.resume_after_ms or HOLD_MS_DEFAULT, HOLD_MS_MAX)
            self._hold_until_ms = max(self._hold_until_ms, now_ms() + hold_ms)
        if message is not None and not isinstance(message, wire.ServerHeartbeat):
            self._tell(message)

    def _on_error(self, message: wire.ErrorMessage) -> None:
        error = _error_of(message)
        if message.code in _FATAL:
            self._end(ErrorCode[message.code], message.message)
            return
        announced, self._failing = self._failing, None
        index = error.details.get("utterance_index", self._waiting.only() if announced is None else announced)
        if isinstance(index, int):
            self._waiting.fail(index, error)

    def _on_error_event(self, event: wire.UiEvent) -> None:
        error = SessionError(event.error_code or ErrorCode.INTERNAL_ERROR.name, event.hint or "")
        self._failing = event.utterance_index
        loop = asyncio.get_running_loop()
        loop.call_later(REASON_GRACE_S, self._waiting.fail, event.utterance_index, error)

    def _tell(self, message: wire.ServerMessage) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(message)
        except Exception:  # noqa: BLE001 - the user's code; it must not end the session
            _log.exception("the event callback failed")


def _decoded(text: str | bytes) -> wire.ServerMessage | None:
    """The message, or None for one that this version does not know."""
    try:
        return wire.decode_from_server(text)
    except PeerError as error:
        _log.warning("ignored a message of the mesh: %s", error)
        return None


def _error_of(message: wire.ErrorMessage) -> SessionError:
    return SessionError(message.code, message.message, message.details if isinstance(message.details, dict) else None)
