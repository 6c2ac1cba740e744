"""Submission: a complete utterance becomes requests: one for the client, or one per language of its listeners."""

from __future__ import annotations

from typing import NamedTuple

from edge.requests.core.request import Attempt, Request, ResultArrived
from edge.rooms.core.events import numbered_key
from edge.rooms.core.fanout import Fan
from edge.sessions.core.effects import Count, CounterName, ExpectRelay, Submit
from edge.sessions.core.events import MailedResult
from edge.sessions.core.limits import SessionLimits
from edge.sessions.core.results.outcomes import Outcomes
from edge.sessions.core.results.request_context import RequestContext
from edge.sessions.core.session import FinalizedUtterance, Session
from edge.sessions.core.turn import Turn
from edge.sessions.core.utterances.groups import GroupPosition
from mesh.frames import Dispatch, Push, Work, encode


class OrderedResult(NamedTuple):
    """A result from the mail whose turn it is, and its last chunk; None: the utterance was not streamed."""

    mailed: MailedResult
    last_seq: int | None


class Submission:
    """Of one session. `edge`: the identity of this edge, to which results are sent."""

    __slots__ = ("_edge", "_limits", "_outcomes", "_session", "_turn", "adopted")

    def __init__(self, turn: Turn, session: Session, limits: SessionLimits, outcomes: Outcomes, edge: str) -> None:
        self._turn = turn
        self._session = session
        self._limits = limits
        self._outcomes = outcomes
        self._edge = edge
        #: Results from the mail whose audio the client has yet to resend, by request id.
        self.adopted: dict[str, MailedResult] = {}

    def submit(self, utterance: FinalizedUtterance, fans: list[Fan]) -> None:
        """Submit an utterance for these listeners. PeerError if it can never be submitted."""
        if fans[0].listeners == (self._session.session_id,):
            self.submit_own(utterance, fans[0].target)
            return
        index, position = utterance.message.utterance_index, self._join(utterance)
        made = [(fan, *self._dispatch(utterance, fan.target, position)) for fan in fans]
        self._outcomes.expect(index, {fan.target for fan in fans})
        self._reserve(index, fans)
        for fan, dispatch, work in made:
            self._add(utterance, dispatch, work, position, fan.target, fan.listeners, is_first=fan is fans[0])

    def submit_own(self, utterance: FinalizedUtterance, target: str) -> None:
        """Submit an utterance for the client itself. PeerError if it can never be submitted."""
        position = self._join(utterance)
        dispatch, work = self._dispatch(utterance, target, position)
        self._outcomes.expect(utterance.message.utterance_index)
        self._add(utterance, dispatch, work, position)

    def _join(self, utterance: FinalizedUtterance) -> GroupPosition:
        turn, segment = self._turn, utterance.segment
        return self._outcomes.groups.join(turn.wall_ms, turn.now_ms, None if segment is None else segment.began_ms)

    def _dispatch(self, utterance: FinalizedUtterance, target: str, position: GroupPosition) -> tuple[Dispatch, Work]:
        deadline_ms = self._turn.wall_ms + self._limits.deadline_ms
        return self._session.dispatch(utterance, target, position, edge=self._edge, deadline_ms=deadline_ms)

    def _add(
        self,
        utterance: FinalizedUtterance,
        dispatch: Dispatch,
        work: Work,
        position: GroupPosition,
        language: str = "",
        listeners: tuple[str, ...] = (),
        *,
        is_first: bool = True,
    ) -> None:
        """The request is pending: submit it, unless the mail had its result."""
        turn, audio, segment = self._turn, utterance.audio, utterance.segment
        last_seq = None if segment is None else segment.last_seq
        context = RequestContext(
            dispatch.utterance_index,
            language,
            listeners,
            utterance.trace_id,
            last_seq,
            utterance.uplink_ms,
            position,
            is_first,
            len(audio),
        )
        self._outcomes.add(dispatch.request_id, context)
        adopted = self.adopted.pop(dispatch.request_id, None) if self.adopted else None
        if adopted is None:
            now_ms = turn.now_ms
            turn.do(Submit(dispatch, encode(work), audio, now_ms, now_ms + self._limits.deadline_ms))
        else:
            turn.do(Count(CounterName.UTTERANCES))
            self._deliver(dispatch, adopted)

    def _reserve(self, index: int, fans: list[Fan]) -> None:
        """Each listener gets that index before later ones, also if it changes its language meanwhile."""
        key = numbered_key(self._session.session_id, index)
        for fan in fans:
            for listener in fan.listeners:
                self._turn.do(ExpectRelay(listener, key))

    def _deliver(self, dispatch: Dispatch, adopted: MailedResult) -> None:
        """The audio of a result from the mail was resent: it has its result."""
        (push, result), now_ms = adopted, self._turn.now_ms
        request = Request(dispatch, b"", b"", now_ms, now_ms, Attempt(push.attempt, now_ms))
        self._outcomes.on_result(ResultArrived(request, push, result))

    def send_mailed(self, ordered: OrderedResult) -> None:
        """Send a result from the mail whose turn it is: its request is not submitted anew."""
        (push, result), now_ms = ordered.mailed, self._turn.now_ms
        self.adopted.pop(push.request_id, None)
        dispatch = _dispatch_of(push, self._session, self._edge)
        context = RequestContext(push.utterance_index, "", (), dispatch.trace_id, ordered.last_seq)
        self._outcomes.add(push.request_id, context)
        request = Request(dispatch, b"", b"", now_ms, now_ms, Attempt(push.attempt, now_ms, job_id=push.job_id))
        self._outcomes.on_result(ResultArrived(request, push, result))


def _dispatch_of(push: Push, session: Session, edge: str) -> Dispatch:
    """The known part of the request of a result from the mail."""
    return Dispatch(
        request_id=push.request_id,
        attempt=push.attempt,
        session_id=session.session_id,
        utterance_index=push.utterance_index,
        edge=edge,
        tenant_id=session.tenant_id,
        src_lang=session.init.src_lang,
        tgt_lang=session.init.tgt_lang,
        lang_a="",
        lang_b="",
        services=[],
        public=not session.tenant_id,
        audio_ms=0,
        deadline_ms=0,
        trace_id=session.trace_id,
    )
