"""Outcomes: the results of a session's requests, sent to its client or to the listeners in its room.

Results are released strictly by utterance index (result_order.py): one order for the client (language ""), and one
for each language that listeners of its room want. An index without a result is sent as missing_result, at its turn.

A released result is sent by delivery.py, which also says when it is acknowledged upstream.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from edge.core.convert import is_silence
from edge.core.record import Record
from edge.core.timers import earliest
from edge.requests.core.request import (
    AckResult,
    Request,
    RequestFailed,
    RequestProgressed,
    ResultArrived,
)
from edge.sessions.core.effects import CancelRequest, Count, CounterName, Log, ObserveStages
from edge.sessions.core.limits import SessionLimits
from edge.sessions.core.results import client_messages
from edge.sessions.core.results.delivery import Delivery
from edge.sessions.core.results.request_context import RequestContext
from edge.sessions.core.results.result_order import Missing, Release, ResultOrder
from edge.sessions.core.session import Session
from edge.sessions.core.turn import Turn
from edge.sessions.core.utterances.groups import Groups
from mesh.errors import ErrorCode
from mesh.frames import Push
from mesh.messages.base import Message
from mesh.messages.client import MissingResult, TranslationResult
from mesh.messages.node import JobResult
from mesh.words import CancelReason, MissingReason, ResultVerdict

# A member of an enum costs as much as a call; these are read for every message.
_DELIVERED: Final = ResultVerdict.DELIVERED


class Ready(Record, frozen=True):
    """A result that is buffered until its turn."""

    request: Request
    push: Push
    result: JobResult
    context: RequestContext
    #: When it arrived, by the wall clock.
    arrived_us: int


class Outcomes:
    """The requests of one session until the client, or every listener, has their result."""

    __slots__ = (
        "_limits",
        "_session",
        "_turn",
        "_unreleased",
        "audio_bytes",
        "delivery",
        "groups",
        "language_orders",
        "order",
        "requests",
    )

    def __init__(
        self, turn: Turn, session: Session, limits: SessionLimits, delivery: Delivery, next_index: int | None
    ) -> None:
        self._turn = turn
        self._session = session
        self._limits = limits
        self.delivery = delivery
        self.order = ResultOrder(limits.order, next_index)
        self.groups = Groups(session.session_id, limits.groups)
        #: By language: the order of its listeners.
        self.language_orders: dict[str, ResultOrder] = {}
        #: Pending requests by id, and the audio that is held for them.
        self.requests: dict[str, RequestContext] = {}
        self.audio_bytes = 0
        #: Requests that are over and whose index waits for its turn, by language and index.
        self._unreleased: dict[tuple[str, int], RequestContext] = {}

    # --- requests -----------------------------------------------------------------------------------

    def expect(self, index: int, languages: Set[str] = frozenset()) -> None:
        """Every order gets that index, to wait for it or to skip it. No languages: the client itself wants it."""
        now_ms = self._turn.now_ms
        if not languages:
            self.order.expect(index, now_ms)
            if not self.language_orders:
                return
        for language in languages - self.language_orders.keys():
            self.language_orders[language] = ResultOrder(self._limits.order, index)
        for language, order in list(self.language_orders.items()):
            if language in languages:
                order.expect(index, now_ms)
                continue
            self._release(language, order.skip(index, now_ms))
            if order.end == order.next_index:
                del self.language_orders[language]  # nothing of it is pending; it may begin anew
        if languages:
            self.delivery.open_languages[index] = len(languages)
            self._release("", self.order.skip(index, now_ms))

    def add(self, request_id: str, context: RequestContext) -> None:
        """A request is pending."""
        self.requests[request_id] = context
        self.audio_bytes += context.audio_bytes

    def refuse(self, index: int, last_seq: int, trace_id: str) -> None:
        """A streamed utterance can never be submitted: its index is missing, for the client and for all listeners."""
        for language, order in list(self.language_orders.items()):
            self._release(language, order.skip(index, self._turn.now_ms))
        self._miss(RequestContext(index, "", (), trace_id, last_seq), MissingReason.JOB_FAILED)

    def _remove(self, request_id: str) -> RequestContext | None:
        context = self.requests.pop(request_id, None)
        if context is not None:
            self.audio_bytes -= context.audio_bytes
        return context

    # --- from the tracker ---------------------------------------------------------------------------

    def on_result(self, event: ResultArrived) -> None:
        """A result, or a node's failure: released at its turn."""
        context, push = self._remove(event.request.request_id), event.push
        if context is None:
            self._turn.do(AckResult(push, _DELIVERED))  # its index has ended
            return
        is_resumable, result = self.delivery.is_resumable, event.result
        if is_resumable:
            self.delivery.unacked.add(context.index, push)
        if result is None or not result.success:
            for message in _failure(event.request, push, result, self._turn.now_ms):
                self._turn.send(message)
            self._miss(context, MissingReason.JOB_FAILED)
        elif is_silence(result):
            self._miss(context, MissingReason.SILENCE_DETECTED)
        else:
            self._arrive(Ready(event.request, push, result, context, self._turn.wall_us))
        if not is_resumable:
            self._turn.do(AckResult(push, _DELIVERED))

    def _arrive(self, ready: Ready) -> None:
        """Release a result at its turn; its texts are the context of later utterances at once."""
        result, context, now_ms = ready.result, ready.context, self._turn.now_ms
        self._session.warm_node = ready.push.node_id
        if context.position is not None:
            group_id, part_index, _ = context.position
            self.groups.add_texts(group_id, part_index, result.text_asr or "", result.text_translated or "", now_ms)
        order = self.language_orders[context.language] if context.language else self.order
        released = order.arrive(context.index, ready, now_ms)
        if context.index >= order.next_index:
            self._unreleased[context.language, context.index] = context
        self._release(context.language, released)

    def on_failed(self, event: RequestFailed) -> None:
        """The mesh could not get a result."""
        context = self._remove(event.request.request_id)
        if context is None:
            return
        details = dict(event.details or {})
        for message in client_messages.for_failure(
            event.request, event.code, event.message, details, self._turn.now_ms
        ):
            self._turn.send(message)
        self._miss(context, MissingReason.JOB_FAILED)

    def on_progress(self, event: RequestProgressed) -> None:
        """Progress of a request. Of several for one utterance the client sees that of the first."""
        context, now_ms = self.requests.get(event.request.request_id), self._turn.now_ms
        if context is None or not context.is_first:
            return
        if event.partial is None:
            self._turn.send(client_messages.ui_event(event.request, event.stage, now_ms, event.job_id))
            return
        for message in client_messages.for_partial(event.request, event.partial, now_ms):
            self._turn.send(message)

    # --- in order -----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Report every index as missing that held up later ones for too long."""
        for language, order in [("", self.order), *self.language_orders.items()]:
            self._release(language, order.tick(self._turn.now_ms))

    @property
    def next_due_ms(self) -> int | None:
        """When to tick; None while nothing is held up."""
        return earliest((self.order.next_due_ms, *(order.next_due_ms for order in self.language_orders.values())))

    def _miss(self, context: RequestContext, reason: str) -> None:
        order = self.language_orders[context.language] if context.language else self.order
        self._unreleased[context.language, context.index] = context
        self._release(context.language, order.fail(context.index, reason, self._turn.now_ms))
        if context.index < order.next_index:
            self._unreleased.pop((context.language, context.index), None)  # it ended by another result

    def _release(self, language: str, turns: list[Release | Missing]) -> None:
        for one in turns:
            if isinstance(one, Missing):
                self._send_missing(language, one)
            else:
                assert isinstance(one.item, Ready)
                self._send_result(one.item)

    def _send_result(self, ready: Ready) -> None:
        context, turn = ready.context, self._turn
        self._unreleased.pop((context.language, context.index), None)
        stages = self._stages(ready) if ready.push.stages else None
        *events, message = client_messages.for_result(
            ready.request,
            ready.push,
            ready.result,
            turn.now_ms,
            turn.wall_ms,
            context.position,
            context.uplink_ms,
            stages if self._session.init.stage_timings else None,
        )
        for event in events:
            turn.send(event)
        assert isinstance(message, TranslationResult)
        self.delivery.send(context, message)

    def _stages(self, ready: Ready) -> list[int]:
        """The result is sent now: its last two stages end."""
        push, arrived_us = ready.push, ready.arrived_us
        stages = [*push.stages, max(0, arrived_us - push.sent_us), max(0, self._turn.wall_us - arrived_us)]
        self._turn.do(ObserveStages(stages))
        return stages

    def _send_missing(self, language: str, miss: Missing) -> None:
        self._turn.do(Count(CounterName.MISSING, miss.reason))
        context = self._unreleased.pop((language, miss.index), None) or self._cancel(language, miss)
        message = MissingResult(
            session_id=self._session.session_id,
            utterance_index=miss.index,
            reason=miss.reason,
            created_at_ms=self._turn.wall_ms,
            trace_id=self._session.trace_id if context is None else context.trace_id,
        )
        if context is not None:
            self.delivery.send(context, message)
        elif not language:
            self.delivery.send_unacked(miss.index, message)

    def _cancel(self, language: str, miss: Missing) -> RequestContext | None:
        """The index has ended although requests for it are pending."""
        key = (language, miss.index)
        found = [(request_id, one) for request_id, one in self.requests.items() if (one.language, one.index) == key]
        for request_id, _ in found:
            self._remove(request_id)
            self._turn.do(CancelRequest(request_id, CancelReason.GAP_TIMEOUT))
            self._turn.do(Log("index_abandoned", {"request_id": request_id, "reason": miss.reason}))
        return found[0][1] if found else None

    def check(self) -> None:
        """All counts are exact, and every pending request has its order."""
        self.order.check()
        self.groups.check()
        self.delivery.check()
        for order in self.language_orders.values():
            order.check()
        assert self.audio_bytes == sum(context.audio_bytes for context in self.requests.values())
        assert all(context.language in self.language_orders for context in self.requests.values() if context.language)
        for language, index in self._unreleased:
            order = self.language_orders[language] if language else self.order
            assert index >= order.next_index, "an index that has ended is not buffered"


def _failure(request: Request, push: Push, result: JobResult | None, now_ms: int) -> list[Message]:
    if result is None:
        return client_messages.for_failure(
            request, ErrorCode.PROCESSING_ERROR, "the result is unreadable", None, now_ms
        )
    return client_messages.for_node_failure(request, push, result, now_ms)
