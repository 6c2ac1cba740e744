"""Dispatches the messages that a session receives: results, errors, backpressure, room messages, events.

Nothing here waits: replies are left to the sender, and the order of results to `results`. Connections and handshakes
are the lifecycle's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from linguamesh.errors import SessionError
from linguamesh.session.messages import error_from
from linguamesh.session.results import PeerIndices, PendingResults, Translation, UnreadResults, translation_from
from linguamesh.session.rooms import Rooms
from linguamesh.session.send_buffer import SendBuffer
from linguamesh.session.sender import Sender
from linguamesh.websocket import ignore
from mesh.clock import now_ms
from mesh.errors import ErrorCode, PeerError
from mesh.messages import audio_frames, binary
from mesh.messages import client as wire
from mesh.websocket import Payload

#: ui_event ERROR announces a failure, `error` has its details and may follow a moment later.
ERROR_GRACE_S: Final = 0.2
#: Bound on announced errors whose missing_result is still to come.
ANNOUNCED_ERRORS_MAX: Final = 1_000

#: Codes that end the session, not one utterance.
_FATAL_CODES: Final = frozenset(
    code.name for code in (ErrorCode.INVALID_SESSION, ErrorCode.SESSION_CLOSED, ErrorCode.SESSION_SUPERSEDED)
)

_TRANSLATION_RESULT: Final = bytes((binary.TRANSLATION_RESULT,))

_log = logging.getLogger("linguamesh.session")


class Receiver:
    """The inbound side of one session. `end_session` is called with the error of a fatal message."""

    def __init__(
        self,
        buffer: SendBuffer,
        results: PendingResults,
        sender: Sender,
        rooms: Rooms,
        on_event: Callable[[wire.ServerMessage], None] | None,
        end_session: Callable[[SessionError], None],
    ) -> None:
        #: Results of other members of the room.
        self.peer_results = UnreadResults()
        #: session_close_ack was received, or the session is closed.
        self.close_ack = asyncio.Event()
        #: server_heartbeat was received.
        self.heartbeat = asyncio.Event()
        self._buffer = buffer
        self._results = results
        self._sender = sender
        self._on_event = on_event
        self._end_session = end_session
        self._session_id = ""
        self._peers = PeerIndices()
        self._has_gap = False  # the mesh has lost results: an index may be missing without a message
        self._announced_errors: OrderedDict[int, SessionError] = OrderedDict()  # of streamed utterances, by wire index
        self._announced_index: int | None = None  # of the last ui_event ERROR; its `error` comes next
        self._handlers: dict[type, Callable[[Any], None]] = {
            wire.TranslationResult: self._on_result,
            wire.MissingResult: self._on_missing,
            wire.UtteranceEnded: self._on_utterance_ended,
            wire.SessionCloseAck: self._on_close_ack,
            wire.ErrorMessage: self._on_error,
            wire.UiEvent: self._on_ui_event,
            wire.Backpressure: self._on_backpressure,
            wire.RoomCreateAck: rooms.on_created,
            wire.RoomMembers: rooms.on_members,
            wire.RoomErrorMessage: rooms.on_error,
            wire.RoomExpired: rooms.on_expired,
        }

    # --- the lifecycle ----------------------------------------------------------------------------

    def resume(self, session_id: str, *, has_gap: bool) -> None:
        """The session was resumed. `has_gap`: the mesh has lost results between the last one and the next."""
        self._session_id, self._has_gap = session_id, has_gap

    def restart(self, session_id: str) -> None:
        """A new session: the first, or one that replaces a lost one."""
        self._session_id, self._has_gap = session_id, False
        self._announced_errors.clear()

    def suspend(self) -> None:
        """The connection is lost."""
        self._announced_index = None

    def close(self) -> None:
        """The session is closed: wake all waiters."""
        self.close_ack.set()
        self.peer_results.close()

    def emit(self, message: wire.ServerMessage) -> None:
        """Call the user's event callback."""
        if self._on_event is None:
            return
        try:
            self._on_event(message)
        except Exception:  # noqa: BLE001 - the user's code; it must not end the session
            _log.exception("the event callback failed")

    # --- messages ---------------------------------------------------------------------------------

    def on_message(self, data: Payload, is_text: bool) -> None:
        """Any message or frame after the handshake."""
        try:
            message = wire.decode_from_server(bytes(data)) if is_text else self._from_binary(data)
        except PeerError as error:
            ignore(error)
            return
        if message is None:
            return
        if isinstance(message, wire.ServerHeartbeat):
            self.heartbeat.set()
            return
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(message)
        if self._on_event is not None and not isinstance(message, wire.TranslationResult):
            self.emit(message)

    def _from_binary(self, data: Payload) -> wire.TranslationResult | None:
        """The result in a binary message; a frame of a stream is handled here."""
        if data[:1] == _TRANSLATION_RESULT:
            number, head, audio = binary.split(data)
            # Copied, because a view would keep all that was received with it.
            result: wire.TranslationResult = binary.decode_parts(number, head, bytes(audio))
            return result
        frame = audio_frames.decode(bytes(data))
        if isinstance(frame, audio_frames.PingFrame):
            self._sender.on_ping(frame)
        return None

    def _on_backpressure(self, message: wire.Backpressure) -> None:
        self._sender.flow.on_backpressure(message.action, message.resume_after_ms, now_ms())
        self._sender.wake()

    def _on_close_ack(self, message: wire.SessionCloseAck) -> None:
        self.close_ack.set()

    # --- results ----------------------------------------------------------------------------------

    def _on_result(self, message: wire.TranslationResult) -> None:
        if message.session_id != self._session_id:
            if self._is_new_of_peer(message.session_id, message.utterance_index):
                translation = translation_from(message, message.utterance_index, 0, speaker=message.session_id)
                self.peer_results.extend([translation])
            return
        sent_ms = self._buffer.sent_ms(message.utterance_index, message.last_seq)
        index = self._acknowledge(message.utterance_index, message.last_seq)
        if index is not None:
            total_ms = 0 if sent_ms is None else now_ms() - sent_ms
            self._results.complete(translation_from(message, index, total_ms))

    def _on_missing(self, message: wire.MissingResult) -> None:
        error = _missing(message.reason)
        if message.session_id != self._session_id:
            if self._is_new_of_peer(message.session_id, message.utterance_index):
                error.utterance_index = message.utterance_index
                translation = Translation(message.utterance_index, error=error, speaker=message.session_id)
                self.peer_results.extend([translation])
            return
        error = self._announced_errors.pop(message.utterance_index, error)
        index = self._acknowledge(message.utterance_index, message.last_seq)
        if index is not None:
            self._results.fail(index, error)

    def _on_utterance_ended(self, message: wire.UtteranceEnded) -> None:
        """The results went to the other members of the room."""
        if message.session_id != self._session_id:
            return
        index = self._acknowledge(message.utterance_index, message.last_seq, in_order=False)
        if index is not None:
            self._results.complete(Translation(index, for_room=True))

    def _acknowledge(self, wire_index: int, last_seq: int | None, *, in_order: bool = True) -> int | None:
        """An utterance has ended; the user's index of it, None for a duplicate."""
        if self._has_gap and in_order:
            for lost in self._buffer.acknowledge_lost_before(wire_index):
                self._results.fail(lost, _missing("lost"))
        index = self._buffer.acknowledge(wire_index, last_seq)
        if index is not None:
            self._announced_errors.pop(wire_index, None)
        if self._buffer.is_resumable and self._buffer.last_index >= 0:
            self._sender.acknowledge(self._session_id, self._buffer.last_index)
        else:
            self._sender.wake()
        return index

    def _is_new_of_peer(self, peer: str, wire_index: int) -> bool:
        """False for a duplicate; both are acknowledged."""
        is_new = self._peers.add(peer, wire_index)
        if self._buffer.is_resumable:
            self._sender.acknowledge(peer, self._peers.last_index(peer))
        return is_new

    # --- errors -----------------------------------------------------------------------------------

    def _on_error(self, message: wire.ErrorMessage) -> None:
        error = error_from(message)
        if error.code in _FATAL_CODES:
            self._end_session(error)
            return
        announced, self._announced_index = self._announced_index, None
        # An utterance that the mesh had accepted has a request id, or was announced.
        accepted = announced is not None or "request_id" in error.details
        is_busy = error.code == ErrorCode.SLOW_DOWN.name
        if is_busy and self._on_rejected(error):
            return
        wire_index = error.details.get("utterance_index", announced)
        only = self._buffer.only_pending_utterance()
        if isinstance(wire_index, int):
            self._fail(wire_index, error, accepted)
        elif only is not None and not is_busy and "seq" not in error.details:
            self._fail(only.wire_index, error, accepted)

    def _on_rejected(self, error: SessionError) -> bool:
        """SLOW_DOWN: True if the rejected chunk or utterance is retried."""
        seq, wire_index = error.details.get("seq"), error.details.get("utterance_index")
        is_retried = self._buffer.on_rejected(
            seq if isinstance(seq, int) else None, wire_index if isinstance(wire_index, int) else None
        )
        if is_retried:
            self._sender.flow.on_rejected(now_ms())
            self._sender.wake()
        return is_retried

    def _fail(self, wire_index: int, error: SessionError, accepted: bool) -> None:
        """An utterance failed. A whole one ends at once; for a streamed one missing_result follows, in order."""
        if error.code == ErrorCode.UTTERANCE_ENDED.name and self._buffer.is_resumable:
            return  # a retry of an utterance that had ended; its result is on its way
        index = self._buffer.on_failed(wire_index, accepted=accepted)
        if index is not None:
            self._results.fail(index, error)
            self._sender.wake()
        elif wire_index > self._buffer.last_index:
            self._announced_errors[wire_index] = error
            if len(self._announced_errors) > ANNOUNCED_ERRORS_MAX:
                self._announced_errors.popitem(last=False)

    def _on_ui_event(self, event: wire.UiEvent) -> None:
        if event.event != "ERROR":
            return
        error = SessionError(event.error_code or ErrorCode.INTERNAL_ERROR.name, event.hint or "")
        self._announced_index = event.utterance_index
        utterance = self._buffer.pending_utterance(event.utterance_index)
        if utterance is None:
            self._fail(event.utterance_index, error, True)
            return

        def fail() -> None:
            if self._buffer.pending_utterance(event.utterance_index) is utterance:
                self._fail(event.utterance_index, error, True)

        asyncio.get_running_loop().call_later(ERROR_GRACE_S, fail)


def _missing(reason: str) -> SessionError:
    return SessionError("MISSING_RESULT", reason, {"reason": reason})
