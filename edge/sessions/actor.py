"""Actor: one session at this edge, and the only writer of its state.

Messages of the client wait in a bounded mailbox and are worked on one at a time, in order; results, answers of the mesh
and time come in between. Nothing here waits: what needs an answer of the mesh sets `busy`, and goes on when it came.
While the mesh takes no more of this session the mailbox fills, and the client is asked to slow down.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from edge.audio.core.reorder import Chunk
from edge.audio.core.segment import Segment, SegmentLimits, SegmentStarted
from edge.audio.core.segmenter import Segmenter
from edge.core.timers import earliest
from edge.requests.core.context import RequestContext
from edge.rooms.core.member_list import MemberList
from edge.sessions.client import ClientSocket
from edge.sessions.context import SessionContext, Unposted
from edge.sessions.core import groups, lifetime, result_order
from edge.sessions.core.groups import Groups
from edge.sessions.core.inbound_queue import InboundQueue
from edge.sessions.core.lifetime import Lifetime
from edge.sessions.core.result_order import ResultOrder
from edge.sessions.core.session import FinalizedUtterance, Session
from edge.sessions.core.unacked import Unacked
from edge.transport.websocket import internal_error, type_of
from mesh.clock import now_ms, wall_ms
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Push, SessionNote
from mesh.log import get_logger
from mesh.messages.base import Message, encode_utf8
from mesh.messages.client import Backpressure, SessionIdle, UiEvent, UiEventName, Utterance
from mesh.messages.node import JobResult

#: How soon a session that the mesh takes nothing of is looked at again.
BLOCKED_LOOK_MS: Final = 100

log = get_logger()

#: What a client said: a piece of audio, or any other message of its session.
Event = Chunk | Message


class Actor:
    """One session. `token`: the digest of its resume token."""

    def __init__(
        self,
        session: Session,
        tools: SessionContext,
        token: str,
        *,
        next_index: int | None = None,
        next_seq: int | None = None,
    ) -> None:
        config = tools.config
        self.session = session
        self.token = token
        self.resumable = bool(session.init.resumable)
        self.socket: ClientSocket | None = None
        self.order = ResultOrder(
            result_order.ResultOrderLimits(config.session.gap_ms, config.session.pending_max), next_index
        )
        self.groups = Groups(session.session_id, groups.GroupLimits.of(config.speech))
        self.acks = Unacked()
        #: Code of the room that it is in, and the order of each language's listeners there.
        self.room = ""
        self.roster = MemberList()
        self.lanes: dict[str, ResultOrder] = {}
        #: Signals to other members that nobody answered yet.
        self.signals = 0
        #: Members that an utterance is still on its way to, by its index (edge/rooms/rooms.py).
        self.fans: dict[int, int] = {}
        #: Request id -> what its result is for; and those whose end waits for its turn, by lane and index.
        self.under_way: dict[str, RequestContext] = {}
        self.untold: dict[tuple[str, int], RequestContext] = {}
        #: Of others in the room: the last index told, and what was told and not yet acknowledged (edge/rooms/relay.py).
        self.listening: dict[str, int] = {}
        self.unposted: dict[tuple[str, int], Unposted] = {}
        #: Results that came before their request did, after a resume; and the last entry of the mail that is read.
        self.adopted: dict[str, tuple[Push, JobResult | None]] = {}
        self.mail_read = ""
        #: An answer of the mesh is awaited; nothing else is begun meanwhile.
        self.busy = False
        #: It is to be closed, and all that came was cut.
        self._flushed = False
        #: It is over here; and another edge has it.
        self.ended = self.moved = False
        self.life = Lifetime(lifetime.LifetimeLimits.of(config.speech, config.session), now_ms())
        self.armed_ms = 0
        self._tools = tools
        self._mailbox: InboundQueue[Event] = InboundQueue(
            config.speech.events_max, bytes_max=config.speech.events_bytes_max
        )
        #: The first chunk that was not taken. A client that resumes sends it again, and then those after it.
        self._refused_seq: int | None = None
        self._unsent: deque[FinalizedUtterance] = deque()
        self._segments: Segmenter | None = None
        self._next = (next_index or 0, next_seq)

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.session.session_id

    @property
    def segments(self) -> Segmenter:
        """What cuts the audio; there is none before the first of it came."""
        if self._segments is None:
            session, limits = self.session, SegmentLimits.of(self._tools.config.speech)
            index, seq = self.next_index, self._next[1]
            formats = session.audio_format, session.sample_rate
            self._segments = Segmenter(session.session_id, *formats, limits, index, seq, renumbers=not self.resumable)
        return self._segments

    @property
    def next_index(self) -> int:
        """The index that the next streamed utterance gets."""
        return self._segments.next_index if self._segments else max(self._next[0], self.order.end)

    @property
    def next_seq(self) -> int | None:
        """The chunk that is expected next; None if that is open."""
        return self._segments.next_seq if self._segments else self._next[1]

    # --- the client -------------------------------------------------------------------------------

    def tell(self, message: Message) -> None:
        """Send a message to the client, if it is there."""
        if self.socket is not None:
            self.socket.tell(message)

    def tell_kept(self, index: int, message: Message) -> None:
        """The same for one that the client acknowledges, if it does such things."""
        if not self.resumable:
            self.tell(message)
            return
        data = encode_utf8(message)
        self.acks.told(index, data)
        if self.socket is not None:
            self.socket.tell_encoded(type_of(message), data)
        if self.acks.bytes > 2 * self._tools.config.session.unacked_bytes_max:
            self._tools.give_up(self, "the client does not acknowledge its results")

    def tell_event(self, event: UiEventName, index: int) -> None:
        """Progress of the client's own input."""
        session = self.session
        self.tell(
            UiEvent(
                trace_id=session.trace_id,
                session_id=session.session_id,
                job_id="",
                utterance_index=index,
                event=event,
                status="ok",
            )
        )

    # --- events -----------------------------------------------------------------------------------

    def put(self, event: Event, size: int) -> None:
        """The client said something, in `size` bytes. Worked on at once, unless something else comes first."""
        now = now_ms()
        self.life.heard(now)
        if not self._mailbox and not self.is_blocked and self._refused_seq is None:
            self._handle(event)
            self._tools.arm(self)
        else:
            overtakes = self._overtakes(event)
            advice = self._mailbox.refuse(now) if overtakes else self._mailbox.put(event, now, size)
            if advice.action is not None:
                self._tools.metrics.backpressure_total.labels(advice.action).inc()
                self.tell(Backpressure(action=advice.action, resume_after_ms=advice.resume_after_ms))
            if not advice.taken:
                self._refuse(event)
            self.pump()

    @property
    def is_blocked(self) -> bool:
        """True while no more messages of the client may be worked on."""
        if self.busy or self._unsent:
            return True
        config, acks = self._tools.config.session, self.acks
        return self.resumable and (acks.unacked >= config.unacked_max or acks.bytes >= config.unacked_bytes_max)

    def pump(self) -> None:
        """Go on with what waits, as far as it may."""
        if self.ended:
            return
        self._send()
        if self._mailbox and self._segments is not None and not self.is_blocked:
            self._segments.on_stalled(now_ms())
        while not self.is_blocked and (event := self._mailbox.pop()) is not None:
            self._handle(event)
        if self.life.closing_until_ms and not self._mailbox and not self._flushed:
            self._flushed = True
            self.flush()
        if self.life.closing_until_ms and self.is_done:
            self._tools.closed(self)
        else:
            self._tools.arm(self)

    def _handle(self, event: Event) -> None:
        try:
            if isinstance(event, Chunk):
                self._on_chunk(event)
            else:
                self._tools.handlers[type(event)](self, event)
        except PeerError as error:
            self._tell_error(_about(error, event))
        except Exception:
            # Our own bug must cost this one message, not the session.
            log.exception("event_failed", session_id=self.session_id, type=type(event).__name__)
            self._tell_error(internal_error())

    def _overtakes(self, event: Event) -> bool:
        """True for a chunk behind one that was not taken and comes again: it would be gone if this one were taken."""
        if self._refused_seq is None or not isinstance(event, Chunk):
            return False
        if event.seq == self._refused_seq:
            self._refused_seq = None
            return False
        return event.seq > self._refused_seq

    def _refuse(self, event: Event) -> None:
        if self.resumable and isinstance(event, Chunk) and self._refused_seq is None:
            self._refused_seq = event.seq
        self._tell_error(_about(PeerError(ErrorCode.SLOW_DOWN, "too many messages wait; send it again later"), event))

    def _tell_error(self, error: PeerError) -> None:
        if self.socket is not None:
            self.socket.tell_error(error)

    # --- speech -----------------------------------------------------------------------------------

    def _on_chunk(self, chunk: Chunk) -> None:
        segments = self.segments
        made = segments.on_chunk(chunk, now_ms())
        if segments.counts:
            self._count_anomalies(segments)
        if made:
            self._take(made)

    def _count_anomalies(self, segments: Segmenter) -> None:
        for kind, count in segments.counts.items():
            self._tools.metrics.chunk_anomalies_total.labels(kind).inc(count)
        segments.counts.clear()

    def _take(self, made: list[SegmentStarted | Segment]) -> None:
        for one in made:
            if isinstance(one, Segment):
                self._tools.metrics.cuts_total.labels(one.reason.name.lower()).inc()
                self.tell_event("INPUT_ENDED", one.index)
                self.say(self.session.streamed(one, wall_ms(), now_ms()))
            else:
                self.tell_event("INPUT_STARTED", one.index)

    def say(self, spoken: FinalizedUtterance) -> None:
        """An utterance is complete: send it, after those before it."""
        if spoken.cut is None and self._segments is not None:
            self._segments.passed(spoken.message.utterance_index)
        self._unsent.append(spoken)
        self._send()

    def _send(self) -> None:
        speak = self._tools.speak
        while self._unsent and not self.busy and speak.has_room(self, self._unsent[0]):
            spoken = self._unsent.popleft()
            try:
                speak.accept(self, spoken)
            except PeerError as error:
                self.refused(spoken, error)

    def refused(self, spoken: FinalizedUtterance, error: PeerError) -> None:
        """It can never be sent. A streamed one's index must not hold up those after it."""
        self._tell_error(_about(error, spoken.message))
        if spoken.cut is not None:
            self._tools.speak.refused(self, spoken.cut, spoken.trace_id)

    def unsay(self, spoken: FinalizedUtterance) -> None:
        """The mesh could not take it just now: it is tried again in a moment."""
        self._unsent.appendleft(spoken)
        self._tools.arm(self)

    def playing(self, group_id: str, playing: bool) -> None:
        """The client began or ended to play a result."""
        now = now_ms()
        self.groups.playing(group_id, playing, now)
        self.segments.on_playing(playing, now)

    def flush(self) -> None:
        """Cut what is there."""
        if self._segments is not None:
            self._take(self._segments.close(now_ms()))

    # --- coming and going ---------------------------------------------------------------------------

    def release(self, pushes: list[Push]) -> None:
        """These results are in good hands."""
        for push in pushes:
            self._tools.acknowledge(push)

    def attach(self, socket: ClientSocket) -> None:
        """The session's client is at that connection now."""
        self.socket, socket.actor = socket, self
        self._refused_seq = None
        now = now_ms()
        self.life.attached(now)
        if self._segments is not None:
            self._segments.on_resumed(now)
        self._tools.arm(self)

    def go_on_at(self, next_index: int, next_seq: int | None) -> None:
        """A resumed session: what its client sends next begins there. None: as it said itself."""
        self._next = (next_index, self._next[1] if next_seq is None else next_seq)

    def detach(self) -> None:
        """The client's connection is lost; it may come back."""
        self.socket = None
        self.life.detached(now_ms())
        self.note(away=True)
        self._tools.arm(self)

    def note(self, *, away: bool) -> None:
        """Tell the mesh how the session is, and in which room: an earlier word of it may have been lost."""
        self.life.renewed(now_ms())
        note = SessionNote(self.session_id, self._tools.link.identity, self.session.epoch, away, self.room)
        self._tools.link.to_session_cell(self.session_id, note)

    def close(self, within_ms: int) -> None:
        """Cut what is there and what waits, and end when all results are told, or after that time."""
        self.life.closing(within_ms, now_ms())
        self.pump()

    @property
    def is_done(self) -> bool:
        """True if nothing of what was said is under way any more."""
        return self._flushed and not (self.busy or self._unsent or self._mailbox or self.under_way or self.fans)

    # --- time -------------------------------------------------------------------------------------

    def due_ms(self) -> int:
        """When `tick` has something to do."""
        segments = self._listening
        segments_due = segments.next_due_ms if segments is not None else None
        first = earliest((segments_due, self.order.next_due_ms, *(lane.next_due_ms for lane in self.lanes.values())))
        due = self.life.due_ms(self.socket is not None)
        due = due if first is None else min(due, first)
        return min(due, now_ms() + BLOCKED_LOOK_MS) if self._unsent and not self.busy else due

    @property
    def _listening(self) -> Segmenter | None:
        """What cuts the audio while silence means something: the client is here, and nothing it said waits."""
        is_silence = self.socket is not None and not self._mailbox and not self.life.closing_until_ms
        return self._segments if is_silence else None

    def tick(self, now: int) -> None:
        """Do what is due."""
        life = self.life
        if life.closing_until_ms and now >= life.closing_until_ms:
            self._tools.closed(self)
            return
        segments = self._listening
        if segments is not None:
            self._take(segments.tick(now))
        for lane, of_lane in [("", self.order), *self.lanes.items()]:
            turns = of_lane.tick(now)
            if turns:
                self._tools.speak.told(self, lane, turns)
        if now >= life.renew_ms:
            self.note(away=self.socket is None)
        idle_ms = self.life.idle_for_ms(now) if self.socket is not None else 0
        if idle_ms:
            self.groups.close()
            text = "Nothing was said for a while. The session stays open: speak, and it goes on."
            self.tell(SessionIdle(session_id=self.session_id, idle_ms=idle_ms, message=text))
        self.pump()


def _about(error: PeerError, event: Event) -> PeerError:
    """The error, naming the utterance or the chunk that it is about."""
    if isinstance(event, Utterance):
        about: dict[str, Any] = {"session_id": event.session_id, "utterance_index": event.utterance_index}
    elif isinstance(event, Chunk):
        about = {"seq": event.seq}
    else:
        return error
    return PeerError(error.code, error.message, {**(error.details or {}), **about})
