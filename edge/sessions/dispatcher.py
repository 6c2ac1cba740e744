"""Speech: what was spoken goes to nodes, and what they answer goes to its listeners, in order.

Owns the way of an utterance between its actor and custody. Outside a room an utterance is one request, and the speaker
hears its result; in a room it is one request for each language of the others (edge/rooms/rooms.py), and they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from edge.audio.core.segment import Segment
from edge.core.convert import is_silence
from edge.link.link import EdgeLink
from edge.metrics import EdgeMetrics
from edge.requests.core.context import RequestContext
from edge.requests.core.request import Attempt, Request
from edge.requests.runner import RequestRunner
from edge.rooms.core.fanout import Fan
from edge.rooms.rooms import Rooms
from edge.sessions.actor import Actor
from edge.sessions.core import client_messages
from edge.sessions.core.result_order import Missing, Release, ResultOrder, ResultOrderLimits
from edge.sessions.core.session import FinalizedUtterance, language_of
from mesh.clock import now_ms, wall_ms
from mesh.config import Config
from mesh.errors import ErrorCode, PeerError
from mesh.frames import Dispatch, Push, RoomMember, encode
from mesh.log import get_logger
from mesh.messages.base import Message
from mesh.messages.client import MissingResult, TranslationResult
from mesh.messages.node import JobResult
from mesh.words import CancelReason, MissingReason

log = get_logger()


class Heard(NamedTuple):
    """A result that waits for its turn."""

    request: Request
    push: Push
    result: JobResult
    about: RequestContext


class UtteranceDispatcher:
    """The way of every utterance of this edge."""

    def __init__(
        self, config: Config, link: EdgeLink, metrics: EdgeMetrics, requests: RequestRunner, rooms: Rooms
    ) -> None:
        self._config = config
        self._link = link
        self._metrics = metrics
        self._requests = requests
        self._custody = requests.custody
        self._rooms = rooms
        self._order_limits = ResultOrderLimits(config.session.gap_ms, config.session.pending_max)

    # --- to the nodes -------------------------------------------------------------------------------

    def has_room(self, actor: Actor, spoken: FinalizedUtterance) -> bool:
        """False while the mesh takes no more of this session."""
        if not actor.order.reaches(spoken.message.utterance_index):
            return False
        waiting_max = self._config.edge.utterances_per_session_max
        if self._custody.waiting(actor.session_id) >= waiting_max:
            return False
        return self._custody.has_room(actor.session_id, len(spoken.audio))

    def accept(self, actor: Actor, spoken: FinalizedUtterance) -> None:
        """Find nodes for it. In a room it depends on who is there by now, which the mesh must tell."""
        if actor.room:
            self._rooms.speak(actor, spoken, partial(self._spread, actor, spoken))
        else:
            target = language_of(spoken.message.tgt_lang, "tgt_lang")
            self._dispatch(actor, spoken, [Fan(target, (actor.session_id,))])

    def _spread(self, actor: Actor, spoken: FinalizedUtterance, members: Sequence[RoomMember]) -> None:
        """The members of the room are known."""
        try:
            self._dispatch(actor, spoken, self._rooms.plan(actor, members))
        except PeerError as error:
            actor.refused(spoken, error)

    def _dispatch(self, actor: Actor, spoken: FinalizedUtterance, fans: list[Fan]) -> None:
        now, index, own = now_ms(), spoken.message.utterance_index, actor.session_id
        is_for_others = fans[0].listeners != (own,)
        place = actor.groups.join(wall_ms(), now, None if spoken.cut is None else spoken.cut.began_ms)
        deadline_ms = wall_ms() + self._config.job.deadline_ms
        made = [
            actor.session.dispatch(spoken, fan.target, place, edge=self._link.identity, deadline_ms=deadline_ms)
            for fan in fans
        ]
        self._take_places(actor, index, {fan.target for fan in fans} if is_for_others else set(), now)
        if is_for_others:
            self._rooms.expect(actor, index, fans)
        for number, (fan, (dispatch, work)) in enumerate(zip(fans, made, strict=True)):
            lane = fan.target if is_for_others else ""
            last_seq = None if spoken.cut is None else spoken.cut.last_seq
            about = RequestContext(
                index,
                lane,
                fan.listeners if lane else (),
                spoken.trace_id,
                last_seq,
                spoken.way_in_ms,
                place,
                is_first=number == 0,
            )
            actor.under_way[dispatch.request_id] = about
            self._metrics.utterances_total.inc()
            self._submit(actor, dispatch, encode(work), spoken.audio, now)
        self._link.changed()

    def _take_places(self, actor: Actor, index: int, languages: set[str], now: int) -> None:
        """Every listener's order hears of this index: to wait for it, or to pass it over."""
        if not languages:
            actor.order.expect(index, now)
        for language in languages - actor.lanes.keys():
            actor.lanes[language] = ResultOrder(self._order_limits, index)
        for language, lane in list(actor.lanes.items()):
            if language in languages:
                lane.expect(index, now)
                continue
            self.told(actor, language, lane.skip(index, now))
            if lane.end == lane.next_index:
                del actor.lanes[language]  # nothing of it is under way; it may begin anew
        if languages:
            actor.fans[index] = len(languages)
            self.told(actor, "", actor.order.skip(index, now))

    def _submit(self, actor: Actor, dispatch: Dispatch, work: bytes, audio: bytes, now: int) -> None:
        deadline_ms = now + self._config.job.deadline_ms
        adopted = actor.adopted.pop(dispatch.request_id, None)
        if adopted is None:
            self._requests.run(self._custody.submit(dispatch, work, audio, deadline_ms, now))
            return
        # Its result was there before it was asked for again: it waited in the mail.
        push, result = adopted
        request = Request(dispatch, b"", b"", now, deadline_ms, Attempt(push.attempt, now))
        self.came(actor, request, push, result)

    def refused(self, actor: Actor, cut: Segment, trace_id: str) -> None:
        """It can never be sent: its index is missing, here and for all who listen."""
        now = now_ms()
        for language, lane in list(actor.lanes.items()):
            self.told(actor, language, lane.skip(cut.index, now))
        self._miss(actor, RequestContext(cut.index, "", (), trace_id, cut.last_seq), MissingReason.JOB_FAILED)

    # --- from the nodes -----------------------------------------------------------------------------

    def came(self, actor: Actor, request: Request, push: Push, result: JobResult | None) -> None:
        """A result: it is told at its turn. None: it could not be read."""
        about = actor.under_way.pop(request.request_id, None)
        if about is None:
            return  # its index was given up
        now = now_ms()
        if actor.resumable:
            actor.acks.keep(about.index, push)
        of_lane = self._order_of(actor, about.lane)
        if result is None or not result.success:
            for message in self._failure(request, push, result, now):
                actor.tell(message)
            self._miss(actor, about, MissingReason.JOB_FAILED)
        elif is_silence(result):
            self._miss(actor, about, MissingReason.SILENCE_DETECTED)
        else:
            actor.session.warm_node = push.node_id
            if about.place is not None:
                texts = (result.text_asr or "", result.text_translated or "")
                actor.groups.heard(about.place.group_id, about.place.part_index, *texts, now)
            actor.untold[about.lane, about.index] = about
            self.told(actor, about.lane, of_lane.arrive(about.index, Heard(request, push, result, about), now))
        actor.pump()

    def adopt(
        self, actor: Actor, dispatch: Dispatch, push: Push, result: JobResult | None, last_seq: int | None
    ) -> None:
        """A result from the mail whose request nobody needs to make again."""
        now = now_ms()
        actor.under_way[push.request_id] = RequestContext(push.utterance_index, "", (), dispatch.trace_id, last_seq)
        request = Request(dispatch, b"", b"", now, now, Attempt(push.attempt, now, job_id=push.job_id))
        self.came(actor, request, push, result)

    def failed(self, actor: Actor, request: Request, code: ErrorCode, message: str, details: dict[str, object]) -> None:
        """The mesh could not get a result."""
        about = actor.under_way.pop(request.request_id, None)
        if about is None:
            return
        for told in client_messages.for_failure(request, code, message, details, now_ms()):
            actor.tell(told)
        self._miss(actor, about, MissingReason.JOB_FAILED)
        actor.pump()

    def _failure(self, request: Request, push: Push, result: JobResult | None, now: int) -> list[Message]:
        if result is None:
            return client_messages.for_failure(
                request, ErrorCode.PROCESSING_ERROR, "the result is unreadable", None, now
            )
        return client_messages.for_node_failure(request, push, result, now)

    def _miss(self, actor: Actor, about: RequestContext, reason: str) -> None:
        of_lane = self._order_of(actor, about.lane)
        actor.untold[about.lane, about.index] = about
        self.told(actor, about.lane, of_lane.fail(about.index, reason, now_ms()))
        if about.index < of_lane.next_index:
            actor.untold.pop((about.lane, about.index), None)  # it ended by another result

    def _order_of(self, actor: Actor, lane: str) -> ResultOrder:
        return actor.lanes[lane] if lane else actor.order

    # --- to the listeners -----------------------------------------------------------------------------

    def told(self, actor: Actor, lane: str, turns: list[Release | Missing]) -> None:
        """Tell what has its turn."""
        for turn in turns:
            if isinstance(turn, Missing):
                self._tell_missing(actor, lane, turn)
                continue
            heard = turn.item
            assert isinstance(heard, Heard)
            self._tell_result(actor, heard)

    def _tell_result(self, actor: Actor, heard: Heard) -> None:
        about, now = heard.about, now_ms()
        actor.untold.pop((about.lane, about.index), None)
        *events, message = client_messages.for_result(
            heard.request, heard.push, heard.result, now, wall_ms(), about.place, about.way_in_ms
        )
        for event in events:
            actor.tell(event)
        assert isinstance(message, TranslationResult)
        self._hand_over(actor, about, message)

    def _tell_missing(self, actor: Actor, lane: str, miss: Missing) -> None:
        self._metrics.missing_total.labels(miss.reason).inc()
        about = actor.untold.pop((lane, miss.index), None) or self._give_up(actor, lane, miss)
        trace_id = actor.session.trace_id if about is None else about.trace_id
        message = MissingResult(
            session_id=actor.session_id,
            utterance_index=miss.index,
            reason=miss.reason,
            created_at_ms=wall_ms(),
            trace_id=trace_id,
        )
        if about is not None:
            self._hand_over(actor, about, message)
        elif not lane:
            actor.tell_kept(miss.index, message)

    def _give_up(self, actor: Actor, lane: str, miss: Missing) -> RequestContext | None:
        """The index is over although a job for it is under way."""
        found = [(key, way) for key, way in actor.under_way.items() if (way.lane, way.index) == (lane, miss.index)]
        for request_id, _ in found:
            del actor.under_way[request_id]
            self._requests.run(self._custody.give_up(request_id, CancelReason.GAP_TIMEOUT, now_ms()))
            log.info("index_given_up", session_id=actor.session_id, request_id=request_id, reason=miss.reason)
        return found[0][1] if found else None

    def _hand_over(self, actor: Actor, about: RequestContext, message: TranslationResult | MissingResult) -> None:
        if not about.lane:
            if actor.resumable and about.last_seq is not None:
                message = msgspec.structs.replace(message, last_seq=about.last_seq)
            actor.tell_kept(about.index, message)
            return
        self._rooms.hand_out(actor, about, message)
