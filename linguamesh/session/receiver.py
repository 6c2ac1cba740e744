"""What the mesh says to a session, and what follows from it: ends, refusals, wishes, news.

The listener of its connection. Nothing here waits; what is to be answered is left to the sender.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from linguamesh.errors import SessionError
from linguamesh.session.connection import decoded, error_from
from linguamesh.session.flow_control import FlowControl
from linguamesh.session.result_order import Speakers
from linguamesh.session.results import PendingResults, UnreadResults
from linguamesh.session.rooms import Rooms
from linguamesh.session.send_buffer import SendBuffer
from linguamesh.session.sender import Sender
from linguamesh.session.translation import Translation, translation_of
from mesh.clock import now_ms
from mesh.errors import ErrorCode, PeerError
from mesh.messages import audio_frames
from mesh.messages import client as wire

#: ui_event ERROR says what failed, `error` says why; the second may come a moment later.
REASON_GRACE_S: Final = 0.2
#: Reasons of failures that wait for their index's turn.
REASONS_MAX: Final = 1_000

#: Codes that end the session, not one utterance.
_FATAL: Final = frozenset({
    ErrorCode.INVALID_SESSION.name,
    ErrorCode.SESSION_CLOSED.name,
    ErrorCode.SESSION_SUPERSEDED.name,
})  # fmt: skip

_log = logging.getLogger("linguamesh.session")


class Receiver:
    """One session's ears."""

    def __init__(
        self,
        init: wire.SessionInit,
        speech: SendBuffer,
        pace: FlowControl,
        waiting: PendingResults,
        heard: UnreadResults,
        sender: Sender,
        rooms: Rooms,
        on_event: Callable[[wire.ServerMessage], None] | None,
    ) -> None:
        self.session_id = ""
        #: The latest answer to session_init.
        self.ack: wire.SessionInitAck | None = None
        #: Something that was said, or was to be heard, may be lost.
        self.lost = False
        self.over: SessionError | None = None
        self.closing = False
        self.close_ack = asyncio.Event()
        #: The mesh answered a heartbeat.
        self.beat = asyncio.Event()
        self._cut = asyncio.Event()  # the connection was lost
        self._init = init
        self._speech = speech
        self._pace = pace
        self._waiting = waiting
        self._heard = heard
        self._sender = sender
        self._rooms = rooms
        self._on_event = on_event
        self._speakers = Speakers()
        self._token = ""
        self._may_skip = False  # the mesh said that it lost something: an index may be missing without a word
        self._reasons: OrderedDict[int, SessionError] = OrderedDict()  # streamed utterances that failed
        self._failing: int | None = None  # an utterance whose failure was announced; the reason comes next
        self._on_message: dict[type, Callable[[Any], None]] = {
            wire.TranslationResult: self._on_result,
            wire.MissingResult: self._on_missing,
            wire.UtteranceEnded: self._on_ended,
            wire.SessionCloseAck: self._on_close_ack,
            wire.ErrorMessage: self._on_error,
            wire.UiEvent: self._on_ui_event,
            wire.Backpressure: self._on_backpressure,
            wire.RoomCreateAck: rooms.on_created,
            wire.RoomMembers: rooms.on_members,
            wire.RoomErrorMessage: rooms.on_error,
            wire.RoomExpired: rooms.on_expired,
        }

    # --- the connection ---------------------------------------------------------------------------

    @property
    def may_resume(self) -> bool:
        """True if a lost connection can be replaced."""
        return self._speech.keeps and self.over is None and not self.close_ack.is_set()

    def hello(self) -> wire.SessionInit:
        """session_init, with what the mesh must know to go on."""
        if not self._token:
            return self._init
        return msgspec.structs.replace(
            self._init,
            pairing_code=None,  # it was good for one use
            resume_token=self._token,
            last_index=self._speech.last_index,
            last_seq=self._speech.last_seq,
        )

    def on_open(self, ack: wire.SessionInitAck) -> None:
        """The session is there, or there again."""
        is_first, resumed = self.ack is None, bool(ack.resumed)
        if is_first:
            self._speech.keeps = bool(self._init.resumable and ack.resume_token)
        elif not resumed:
            self._reasons.clear()
        self.lost = self.lost or bool(ack.lost) or not (is_first or resumed)
        self._may_skip = resumed and bool(ack.lost)
        self.ack, self.session_id = ack, ack.session_id
        if self.closing and not resumed:
            self.end(SessionError(ErrorCode.SESSION_CLOSED.name, "the session was closed"))
            return
        self._cut.clear()
        self._token = (ack.resume_token or self._token) if self._speech.keeps else ""
        self._speech.connected(
            resumed=resumed, resend_from_seq=ack.resend_from_seq, next_wire_index=ack.next_utterance_index
        )
        first = self._rooms.on_open(ack.session_id, ack.room_code if resumed else None, is_first, resumed)
        self._sender.on_open(ack.session_id, bool(ack.use_binary_frame), first)
        if not is_first:
            self._tell(ack)

    def on_lost(self) -> None:
        """The connection is gone, for now or for good."""
        self._cut.set()
        self._speech.disconnected()
        self._sender.on_lost()
        self._failing = None

    def end(self, error: SessionError) -> None:
        """The session is over: whoever waits is told why. The first reason counts."""
        self.over = self.over or error
        self.close_ack.set()
        self._sender.close(self.over)
        self._rooms.close(self.over)
        self._waiting.close(self.over.code, self.over.message)
        self._heard.close()

    async def closed_or_lost(self) -> None:
        """Returns when the mesh has acknowledged the end of the session, or the connection is lost."""
        await self._happens_or_lost(self.close_ack)

    async def beat_or_lost(self) -> None:
        """Returns when the mesh has answered a heartbeat, or the connection is lost."""
        await self._happens_or_lost(self.beat)

    async def _happens_or_lost(self, event: asyncio.Event) -> None:
        waiters = [asyncio.create_task(one.wait()) for one in (event, self._cut)]
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()

    def on_data(self, data: str | bytes) -> None:
        """Anything that the mesh says."""
        if isinstance(data, bytes):
            self._on_binary(data)
            return
        message = decoded(data)
        if isinstance(message, wire.ServerHeartbeat):
            self.beat.set()
            return
        if message is None:
            return
        handler = self._on_message.get(type(message))
        if handler is not None:
            handler(message)
        if not isinstance(message, wire.TranslationResult):
            self._tell(message)

    def _on_binary(self, data: bytes) -> None:
        try:
            frame = audio_frames.decode(data)
        except PeerError as error:
            _log.warning("ignored a frame of the mesh: %s", error)
            return
        if isinstance(frame, audio_frames.PingFrame):
            self._sender.answer_ping(frame)

    # --- ends -------------------------------------------------------------------------------------

    def _on_result(self, message: wire.TranslationResult) -> None:
        if message.session_id != self.session_id:
            if self._is_news(message.session_id, message.utterance_index):
                self._heard.put(translation_of(message, message.utterance_index, 0, speaker=message.session_id))
            return
        sent_ms = self._speech.sent_ms(message.utterance_index, message.last_seq)
        index = self._ended(message.utterance_index, message.last_seq)
        if index is not None:
            total_ms = 0 if sent_ms is None else now_ms() - sent_ms
            self._waiting.end(translation_of(message, index, total_ms))

    def _on_missing(self, message: wire.MissingResult) -> None:
        error = _missing(message.reason)
        if message.session_id != self.session_id:
            if self._is_news(message.session_id, message.utterance_index):
                error.utterance_index = message.utterance_index
                self._heard.put(Translation(message.utterance_index, error=error, speaker=message.session_id))
            return
        reason = self._reasons.pop(message.utterance_index, error)
        index = self._ended(message.utterance_index, message.last_seq)
        if index is not None:
            self._waiting.fail(index, reason)

    def _on_ended(self, message: wire.UtteranceEnded) -> None:
        if message.session_id != self.session_id:
            return
        index = self._ended(message.utterance_index, message.last_seq, in_order=False)
        if index is not None:
            self._waiting.end(Translation(index, for_room=True))

    def _ended(self, wire_index: int, last_seq: int | None, *, in_order: bool = True) -> int | None:
        """The mesh ended an index; the user's index of it, None for a repeat."""
        if self._may_skip and in_order:
            for lost in self._speech.lost_before(wire_index):
                self._waiting.fail(lost, _missing("lost"))
        index = self._speech.ended(wire_index, last_seq)
        if index is not None:
            self._reasons.pop(wire_index, None)
        if self._speech.keeps and self._speech.last_index >= 0:
            self._sender.acknowledge(self.session_id, self._speech.last_index)
        self._sender.changed()
        return index

    def _is_news(self, speaker: str, wire_index: int) -> bool:
        """True if another member's utterance was not heard before."""
        is_new = self._speakers.is_new(speaker, wire_index)
        if self._speech.keeps:
            self._sender.acknowledge(speaker, self._speakers.last_index(speaker))
        return is_new

    # --- failures and wishes ----------------------------------------------------------------------

    def _on_error(self, message: wire.ErrorMessage) -> None:
        error = error_from(message)
        if error.code in _FATAL:
            self.end(error)
            return
        announced, self._failing = self._failing, None
        # What the mesh had taken has a request id, or was announced.
        taken = announced is not None or "request_id" in error.details
        is_busy = error.code == ErrorCode.SLOW_DOWN.name
        if is_busy and self._refused(error):
            return
        wire_index = error.details.get("utterance_index", announced)
        only = self._speech.only_whole()
        if isinstance(wire_index, int):
            self._fail(wire_index, error, taken)
        elif only is not None and not is_busy and "seq" not in error.details:
            self._fail(only.wire_index, error, taken)

    def _refused(self, error: SessionError) -> bool:
        """True if the mesh was too busy for something that will be sent again."""
        seq, wire_index = error.details.get("seq"), error.details.get("utterance_index")
        again = isinstance(seq, int) and self._speech.refused_chunk(seq)
        again = again or (isinstance(wire_index, int) and self._speech.refused_whole(wire_index))
        if again:
            self._pace.refused(now_ms())
            self._sender.changed()
        return again

    def _fail(self, wire_index: int, error: SessionError, taken: bool) -> None:
        """An utterance failed. A whole one ends at once; of a streamed one the mesh says so at its turn."""
        if error.code == ErrorCode.UTTERANCE_ENDED.name and self._speech.keeps:
            return  # it was sent again, and its end is on its way
        index = self._speech.failed(wire_index, taken=taken)
        if index is not None:
            self._waiting.fail(index, error)
            self._sender.changed()
        elif wire_index > self._speech.last_index:
            self._reasons[wire_index] = error
            if len(self._reasons) > REASONS_MAX:
                self._reasons.popitem(last=False)

    def _on_ui_event(self, event: wire.UiEvent) -> None:
        if event.event != "ERROR":
            return
        error = SessionError(event.error_code or ErrorCode.INTERNAL_ERROR.name, event.hint or "")
        self._failing = event.utterance_index
        whole = self._speech.whole(event.utterance_index)
        if whole is None:
            self._fail(event.utterance_index, error, True)
            return

        def fail() -> None:
            if self._speech.whole(event.utterance_index) is whole:
                self._fail(event.utterance_index, error, True)

        asyncio.get_running_loop().call_later(REASON_GRACE_S, fail)

    def _on_backpressure(self, message: wire.Backpressure) -> None:
        self._pace.asked(message.action, message.resume_after_ms, now_ms())
        self._sender.changed()

    def _on_close_ack(self, message: wire.SessionCloseAck) -> None:
        self.close_ack.set()

    def _tell(self, message: wire.ServerMessage) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(message)
        except Exception:  # noqa: BLE001 - the user's code; it must not end the session
            _log.exception("the event callback failed")


def _missing(reason: str) -> SessionError:
    return SessionError("MISSING_RESULT", reason, {"reason": reason})
