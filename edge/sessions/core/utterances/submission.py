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
from mesh.frames import Dispatch, Push, encode


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
        turn, session, outcomes, segment = self._turn, self._session, self._outcomes, utterance.segment
        index, is_for_others = utterance.message.utterance_index, fans[0].listeners != (session.session_id,)
        position = outcomes.groups.join(turn.wall_ms, turn.now_ms, None if segment is None else segment.began_ms)
        deadline_ms = turn.wall_ms + self._limits.deadline_ms
        dispatches = [
            session.dispatch(utterance, fan.target, position, edge=self._edge, deadline_ms=deadline_ms) for fan in fans
        ]
        outcomes.expect(index, {fan.target for fan in fans} if is_for_others else set())
        if is_for_others:
            self._reserve(index, fans)
        for number, (fan, (dispatch, work)) in enumerate(zip(fans, dispatches, strict=True)):
            context = RequestContext(
                index,
                fan.target if is_for_others else "",
                fan.listeners if is_for_others else (),
                utterance.trace_id,
                None if segment is None else segment.last_seq,
                utterance.uplink_ms,
                position,
                is_first=number == 0,
                audio_bytes=len(utterance.audio),
            )
            outcomes.add(dispatch.request_id, context)
            turn.do(Count(CounterName.UTTERANCES))
            adopted = self.adopted.pop(dispatch.request_id, None) if self.adopted else None
            if adopted is None:
                due_ms = turn.now_ms + self._limits.deadline_ms
                turn.do(Submit(dispatch, encode(work), utterance.audio, turn.now_ms, due_ms))
            else:
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
