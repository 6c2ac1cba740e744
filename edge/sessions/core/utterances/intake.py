"""Intake: messages of a client, in order: chunks become utterances, utterances become requests.

One message at a time. Admission decides which of them has to wait or is refused; intake handles each at its turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from edge.audio.core.formats import audio_of, duration_ms
from edge.audio.core.reorder import Chunk
from edge.audio.core.segment import Segment, SegmentStarted
from edge.audio.core.segmenter import Segmenter
from edge.rooms.core.events import RoomCall, RoomReplied
from edge.rooms.core.fanout import Fan
from edge.sessions.core.effects import CallRoom, Count, CounterName, ReportBug
from edge.sessions.core.limits import SessionLimits
from edge.sessions.core.membership import Membership
from edge.sessions.core.results.outcomes import Outcomes
from edge.sessions.core.session import FinalizedUtterance, Session
from edge.sessions.core.turn import Turn
from edge.sessions.core.utterances.admission import Admission, Gate, Inbound
from edge.sessions.core.utterances.submission import Submission
from mesh.errors import ErrorCode, PeerError
from mesh.messages.base import Message
from mesh.messages.client import (
    Backpressure,
    RoomCreate,
    RoomJoin,
    RoomLeave,
    RoomRawVoicePreference,
    TtsPlayEnded,
    TtsStarted,
    UiEvent,
    UiEventName,
    Utterance,
    WebrtcAnswer,
    WebrtcIce,
    WebrtcOffer,
)
from mesh.words import RoomAction


class Intake:
    """Of one session. `next_seq`: the chunk that is expected first; None: any may be."""

    __slots__ = (
        "_admission",
        "_awaiting_members",
        "_limits",
        "_membership",
        "_next_index",
        "_next_seq",
        "_outcomes",
        "_session",
        "_submission",
        "_turn",
        "segments",
    )

    def __init__(
        self,
        turn: Turn,
        session: Session,
        limits: SessionLimits,
        admission: Admission,
        submission: Submission,
        outcomes: Outcomes,
        membership: Membership,
        next_index: int | None,
        next_seq: int | None,
    ) -> None:
        self._turn = turn
        self._session = session
        self._limits = limits
        self._admission = admission
        self._submission = submission
        self._outcomes = outcomes
        self._membership = membership
        #: The segmenter of the stream; None before the first chunk.
        self.segments: Segmenter | None = None
        self._next_index = next_index or 0
        self._next_seq = next_seq
        #: The utterance that waits for the reply to its SPEAK call.
        self._awaiting_members: FinalizedUtterance | None = None

    @property
    def next_index(self) -> int:
        """The index that the next streamed utterance gets."""
        return self.segments.next_index if self.segments else max(self._next_index, self._outcomes.order.end)

    @property
    def next_seq(self) -> int | None:
        """The chunk that is expected next; None: any may be."""
        return self.segments.next_seq if self.segments else self._next_seq

    def continue_at(self, next_index: int, next_seq: int | None) -> None:
        """A resumed session: the next utterance begins there. None: at the chunk that the client named."""
        self._next_index = next_index
        if next_seq is not None:
            self._next_seq = next_seq

    # --- in turn ------------------------------------------------------------------------------------

    def receive(self, event: Inbound, size: int) -> None:
        """A message arrived, of `size` bytes: handle it at once, unless others are before it."""
        if self._admission.is_clear:
            self._handle(event)
            return
        gate, advice = self._admission.put(event, size, self._turn.now_ms)
        if advice.action is not None:
            self._turn.do(Count(CounterName.BACKPRESSURE, advice.action))
            self._turn.send(Backpressure(action=advice.action, resume_after_ms=advice.resume_after_ms))
        if gate is not None:
            self._refuse(gate, event)
        self.pump()

    def pump(self) -> None:
        """Handle waiting messages until a gate blocks them."""
        admission = self._admission
        if admission.unsent:
            self._submit_unsent()
        if admission.waiting and self.segments is not None and not admission.is_blocked:
            self.segments.on_stalled(self._turn.now_ms)
        while (event := admission.next()) is not None:
            self._handle(event)

    @property
    def is_empty(self) -> bool:
        """True if no message waits for its turn or at a gate."""
        admission = self._admission
        return not (admission.waiting or admission.unsent or admission.is_calling)

    def _handle(self, event: Inbound) -> None:
        try:
            if type(event) is Chunk:
                segments = self.segments or self._segmenter()
                made = segments.on_chunk(event, self._turn.now_ms)
                if made or segments.counts:
                    self.take(made)
            else:
                _ON_MESSAGE[type(event)](self, event)
        except PeerError as error:
            self._turn.send_error(_with_details(error, event))
        except Exception as error:  # noqa: BLE001 - the effect logs it
            # Our own bug costs this one message, not the session.
            self._turn.do(ReportBug(type(event).__name__, error))
            self._turn.send_error(PeerError(ErrorCode.INTERNAL_ERROR, "the message could not be handled"))

    def _refuse(self, gate: Gate, event: Inbound, index: int = 0) -> None:
        error = self._admission.error(gate, index)
        if error is not None:
            self._turn.send_error(_with_details(error, event))

    # --- audio --------------------------------------------------------------------------------------

    def _segmenter(self) -> Segmenter:
        if self.segments is None:
            session = self._session
            self.segments = Segmenter(
                session.session_id,
                session.audio_format,
                session.sample_rate,
                self._limits.segments,
                self.next_index,
                self._next_seq,
                renumbers=not self._outcomes.delivery.is_resumable,
            )
        return self.segments

    def take(self, made: list[SegmentStarted | Segment]) -> None:
        """Utterances began or are complete. Also counts the anomalies that the segmenter found."""
        turn = self._turn
        if self.segments is not None and self.segments.counts:
            for anomaly, amount in self.segments.counts.items():
                turn.do(Count(CounterName.CHUNK_ANOMALIES, anomaly, amount))
            self.segments.counts.clear()
        for one in made:
            if isinstance(one, Segment):
                turn.do(Count(CounterName.SEGMENTS, one.reason.name.lower()))
                self._send_event("INPUT_ENDED", one.index)
                # After earlier ones that wait at a gate.
                self._admission.unsent.append(self._session.streamed(one, turn.wall_us, turn.now_ms))
                self._submit_unsent()
            else:
                self._send_event("INPUT_STARTED", one.index)

    def flush(self) -> None:
        """Finalize the buffered audio: no more will arrive."""
        if self.segments is not None:
            self.take(self.segments.close(self._turn.now_ms))

    def _send_event(self, event: UiEventName, index: int) -> None:
        session = self._session
        self._turn.send(
            UiEvent(
                trace_id=session.trace_id,
                session_id=session.session_id,
                job_id="",
                utterance_index=index,
                event=event,
                status="ok",
            )
        )

    def _on_tts_started(self, message: TtsStarted) -> None:
        self._play(message.group_id, True)

    def _on_tts_ended(self, message: TtsPlayEnded) -> None:
        self._play(message.group_id, False)

    def _play(self, group_id: str, is_playing: bool) -> None:
        now_ms = self._turn.now_ms
        self._outcomes.groups.playing(group_id, is_playing, now_ms)
        self._segmenter().on_playing(is_playing, now_ms)

    # --- utterances ---------------------------------------------------------------------------------

    def _on_utterance(self, message: Utterance) -> None:
        index = message.utterance_index
        gate = self._admission.gate_of(message)
        if gate is None:
            audio = audio_of(message.audio)
            if not audio:
                raise PeerError(ErrorCode.INVALID_AUDIO, "the audio is empty")
            gate = self._admission.gate_of_audio(len(audio))
        if gate is not None:
            self._refuse(gate, message, index)
            return
        trace_id = message.trace_id
        assert trace_id is not None, "MessageReceived has a valid trace id"
        self._session.remember(message)
        if self.segments is not None:
            self.segments.passed(index)
        audio_ms = duration_ms(audio, message.audio_format, message.sample_rate)
        if self._membership.code:
            message = msgspec.structs.replace(message, audio="")  # it waits for the reply of the room's cell
        # A message is handled only while none waits at a gate, and this one has passed all gates.
        self._submit(FinalizedUtterance(message, audio, audio_ms, trace_id, arrived_us=self._turn.wall_us))

    def _submit_unsent(self) -> None:
        admission = self._admission
        while admission.unsent and not admission.is_calling and admission.blocking_gate(admission.unsent[0]) is None:
            self._submit(admission.unsent.pop(0))

    def _submit(self, utterance: FinalizedUtterance) -> None:
        """Submit an utterance that no gate blocks: for the client, or for its listeners once they are known."""
        if self._membership.code:
            # The mesh has the current list of listeners, which may have changed.
            self._awaiting_members = utterance
            self._call(RoomCall(RoomAction.SPEAK, self._membership.code))
        else:
            self._submit_for(utterance, None)

    def _submit_for(self, utterance: FinalizedUtterance, fans: list[Fan] | None) -> None:
        """Submit an utterance for these listeners; None: for the client itself."""
        try:
            if fans is None:
                self._submission.submit_own(utterance, utterance.message.tgt_lang)
            else:
                self._submission.submit(utterance, fans)
        except PeerError as error:
            # It can never be submitted. The index of a streamed one must not hold up those after it.
            self._turn.send_error(_with_details(error, utterance.message))
            if utterance.segment is not None:
                self._outcomes.refuse(utterance.segment.index, utterance.segment.last_seq, utterance.trace_id)

    # --- rooms --------------------------------------------------------------------------------------

    def _call(self, call: RoomCall | None) -> None:
        """Call the room's cell; later messages of the client wait for the reply."""
        if call is not None:
            self._admission.is_calling = True
            self._turn.do(CallRoom(call))

    def on_room_reply(self, event: RoomReplied) -> bool:
        """The reply to a call that later messages wait for. False: the mesh has no answer now; retried later."""
        self._admission.is_calling = False
        if event.call.action != RoomAction.SPEAK:
            self._membership.on_reply(event.call, event.reply)
            return True
        utterance, self._awaiting_members = self._awaiting_members, None
        assert utterance is not None, "an utterance waits for its listeners"
        members = self._membership.members_for(event.reply)
        if members is None:
            self._admission.unsent.insert(0, utterance)
            return False
        self._submit_for(utterance, self._membership.plan(members))
        return True

    def _on_room_create(self, message: RoomCreate) -> None:
        self._call(self._membership.create(message))

    def _on_room_join(self, message: RoomJoin) -> None:
        self._call(self._membership.join(message))

    def _on_room_leave(self, message: RoomLeave) -> None:
        self._call(self._membership.leave(message))

    def _on_preference(self, message: RoomRawVoicePreference) -> None:
        self._call(self._membership.prefer(message))

    def _on_signal(self, message: WebrtcOffer | WebrtcAnswer | WebrtcIce) -> None:
        self._membership.signal(message)


_ON_MESSAGE: Final[dict[type, Callable[[Intake, Any], None]]] = {
    Utterance: Intake._on_utterance,
    TtsStarted: Intake._on_tts_started,
    TtsPlayEnded: Intake._on_tts_ended,
    RoomCreate: Intake._on_room_create,
    RoomJoin: Intake._on_room_join,
    RoomLeave: Intake._on_room_leave,
    RoomRawVoicePreference: Intake._on_preference,
    WebrtcOffer: Intake._on_signal,
    WebrtcAnswer: Intake._on_signal,
    WebrtcIce: Intake._on_signal,
}
#: Messages that are handled in order.
QUEUED: Final[frozenset[type[Message]]] = frozenset(_ON_MESSAGE)


def _with_details(error: PeerError, event: Inbound) -> PeerError:
    """The error with the utterance or the chunk in its details."""
    if isinstance(event, Utterance):
        details: dict[str, Any] = {"session_id": event.session_id, "utterance_index": event.utterance_index}
    elif isinstance(event, Chunk):
        details = {"seq": event.seq}
    else:
        return error
    return PeerError(error.code, error.message, {**(error.details or {}), **details})
