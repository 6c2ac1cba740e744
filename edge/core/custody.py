"""Custody: what the session's edge retains until its result is in, and what it does to get that result.

Owns every accepted utterance from `submit` to its one end: delivered, failed, or abandoned because its session
closed. Knows no sockets: frames that arrived go in, effects come out, and time is an argument (docs/adr/0006).

A request is in one of three stages:

    SENDING   a Dispatch is out and unanswered: repeat it, with back-off, by another broker if there is one
    RESTING   told to come back later (Busy, Refused with retry_after_ms, Undone again and again)
    PLACED    a node has the job: ask again now and then, because the word that it failed may have been lost
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from edge.core.memory import Memory
from edge.core.request import (
    AckResult,
    Deliver,
    Effect,
    Fail,
    Request,
    SendCancel,
    SendDispatch,
    Stage,
    TellBackpressure,
    TellPlaced,
)
from edge.core.timers import Timers, back_off_ms, resend_wait_ms
from mesh.errors import ErrorCode
from mesh.frames import Dispatch, Placed, Push, Refused, Undone

#: Names of filters in a refusal (selector/core/filters.py): nodes that would do but were excluded, or lack a free slot.
EXCLUDED: Final = "excluded"
OCCUPIED: Final = "capacity_exceeded"


class Limits(NamedTuple):
    """The bounds this core obeys, from the configuration."""

    resend_ms: int
    resend_ms_max: int
    #: Between the first few repeats: half of the time in which the mesh notices a peer that hangs.
    resend_early_ms_max: int
    attempts_max: int
    audio_bytes_max: int
    ended_kept_max: int
    ended_kept_ms: int


class Custody:
    """All requests of this edge that wait for a result."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.requests: dict[str, Request] = {}
        self.audio_bytes = 0
        self.accepted = 0
        #: How requests ended, and what came for none: outcome -> count.
        self.ended: Counter[str] = Counter()
        self.strays: Counter[str] = Counter()
        self._sessions: dict[str, set[str]] = {}
        self._timers: Timers[str] = Timers()
        self._memory = Memory(limits.ended_kept_max, limits.ended_kept_ms)

    # --- sessions -----------------------------------------------------------------------------

    def open_session(self, session_id: str) -> None:
        """Results for this session are welcome from now on."""
        self._sessions.setdefault(session_id, set())

    def close_session(self, session_id: str, now_ms: int) -> list[Effect]:
        """Nobody waits for this session's results any more."""
        effects: list[Effect] = []
        for request_id in sorted(self._sessions.get(session_id, ())):
            request = self.requests[request_id]
            self._end(request, "abandoned", now_ms)
            effects.append(SendCancel(request, "session_closed"))
        self._sessions.pop(session_id, None)
        return effects

    def waiting(self, session_id: str) -> int:
        """How many utterances of a session wait for their result."""
        return len(self._sessions.get(session_id, ()))

    # --- requests -----------------------------------------------------------------------------

    def has_room(self, audio_bytes: int) -> bool:
        """False if that much more audio would exceed what this edge may retain."""
        return self.audio_bytes + audio_bytes <= self.limits.audio_bytes_max

    def submit(self, dispatch: Dispatch, work: bytes, audio: bytes, deadline_ms: int, now_ms: int) -> list[Effect]:
        """Accept an utterance. One that is already here is the same request again: nothing happens."""
        assert dispatch.session_id in self._sessions, "the session is opened first"
        if dispatch.request_id in self.requests or dispatch.request_id in self._memory:
            return []
        request = Request(dispatch, work, audio, now_ms, deadline_ms)
        self.requests[request.request_id] = request
        self._sessions[request.session_id].add(request.request_id)
        self.audio_bytes += len(audio)
        self.accepted += 1
        return [self._send(request, now_ms)]

    def sent(self, request_id: str, broker: str) -> None:
        """The rim's word on which broker took the last Dispatch ("" = none is alive)."""
        request = self.requests.get(request_id)
        if request is not None:
            request.broker = broker

    def on_placed(self, placed: Placed, now_ms: int) -> list[Effect]:
        """A node has the job."""
        request = self._current(placed.request_id, placed.attempt)
        if request is None:
            return []
        first = request.placed_ms == 0
        request.stage, request.job_id, request.node_id = Stage.PLACED, placed.job_id, placed.node_id
        request.sends = request.busy = 0
        request.refusal = None
        request.placed_ms = request.placed_ms or now_ms
        self._wake(request, now_ms + self.limits.resend_ms_max)
        return [TellPlaced(request)] if first else []

    def on_refused(self, refused: Refused, now_ms: int) -> list[Effect]:
        """No node can take it now: try again when told to, or give up."""
        request = self._current(refused.request_id, refused.attempt)
        # A placed job is at a node; that another one could not be found now means nothing.
        if request is None or request.stage is Stage.PLACED:
            return []
        request.refusal = refused
        if refused.removed.get(EXCLUDED) and not refused.removed.get(OCCUPIED):
            # Nobody else could ever take it: a node that failed once is better than none.
            request.excluded.clear()
        if refused.retry_after_ms <= 0:
            return [self._refuse(request, now_ms)]
        self._rest(request, now_ms + refused.retry_after_ms)
        return []

    def on_undone(self, undone: Undone, now_ms: int) -> list[Effect]:
        """The attempt came to nothing: the next one, elsewhere."""
        request = self._current(undone.request_id, undone.attempt)
        if request is None:
            return []
        if request.attempt >= self.limits.attempts_max:
            self._end(request, "failed", now_ms)
            details = {"reason": undone.reason, "attempts": request.attempt}
            return [Fail(request, ErrorCode.NODE_UNAVAILABLE, "no node kept the utterance", details)]
        if undone.exclude_node and undone.node_id not in request.excluded:
            request.excluded.append(undone.node_id)
        request.attempt += 1
        request.job_id = request.node_id = ""
        request.stage, request.sends, request.busy = Stage.SENDING, 0, 0
        if request.attempt == 2:
            return [self._send(request, now_ms)]
        self._rest(request, now_ms + self.limits.resend_ms)  # twice in a row: let the fleet's picture settle
        return []

    def on_busy(self, dispatch: Dispatch, retry_after_ms: int, now_ms: int) -> list[Effect]:
        """No selector had room for that Dispatch."""
        request = self._current(dispatch.request_id, dispatch.attempt)
        if request is None or request.stage is not Stage.SENDING:
            return []
        wait_ms = back_off_ms(max(1, retry_after_ms), request.busy, self.limits.resend_ms_max)
        request.busy += 1
        self._rest(request, now_ms + wait_ms)
        return [TellBackpressure(request.session_id, wait_ms)]

    def on_bounce(self, dispatch: Dispatch, now_ms: int) -> list[Effect]:
        """A broker could not pass that Dispatch on: do not wait for the whole back-off."""
        request = self._current(dispatch.request_id, dispatch.attempt)
        if request is not None and request.stage is Stage.SENDING:
            self._rest(request, now_ms + self._wait_ms(self.limits.resend_ms // 4 or 1, request.sends))
        return []

    def on_push(self, push: Push, text: bytes, now_ms: int) -> list[Effect]:
        """A result came: it is delivered once; whatever else comes is answered so that its keeper stops."""
        request = self._find(push)
        if request is None:
            verdict = self._verdict_on_stray(push)
        elif push.attempt != request.attempt:
            verdict = "fenced"
        else:
            self._end(request, "delivered", now_ms)
            return [Deliver(request, push, text), AckResult(push, "delivered")]
        self.strays[verdict] += 1
        return [AckResult(push, verdict)]

    # --- time ---------------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """When `tick` has something to do; None while nothing waits."""
        return self._timers.next_due_ms()

    def tick(self, now_ms: int) -> list[Effect]:
        """Resends, retries and deadlines that are due."""
        effects: list[Effect] = []
        for request_id in self._timers.pop_due(now_ms):
            request = self.requests[request_id]
            effects += self._expire(request, now_ms) if now_ms >= request.deadline_ms else [self._send(request, now_ms)]
        self._memory.forget(now_ms)
        return effects

    # --- inside -------------------------------------------------------------------------------

    def _wait_ms(self, first_ms: int, tries: int) -> int:
        return resend_wait_ms(first_ms, tries, self.limits.resend_early_ms_max, self.limits.resend_ms_max)

    def _current(self, request_id: str, attempt: int) -> Request | None:
        request = self.requests.get(request_id)
        return request if request is not None and request.attempt == attempt else None

    def _find(self, push: Push) -> Request | None:
        if push.request_id:
            request = self.requests.get(push.request_id)
            return request if request is not None and request.session_id == push.session_id else None
        # The node's edge restarted and knows only what the node said. A node's word alone must not reach
        # a client, so the job id has to be the one that was placed.
        for request_id in self._sessions.get(push.session_id, ()):
            request = self.requests[request_id]
            if request.job_id == push.job_id and request.node_id == push.node_id:
                return request
        return None

    def _verdict_on_stray(self, push: Push) -> str:
        if push.request_id in self._memory:
            return "duplicate"
        if push.session_id not in self._sessions:
            return "no_session"
        # Without a request id it may still match once Placed has told us the job id.
        return "duplicate" if push.request_id else "no_session"

    def _send(self, request: Request, now_ms: int) -> SendDispatch:
        wait_ms = self.limits.resend_ms_max  # a placed job is only asked after: normally its result comes long before
        if request.stage is not Stage.PLACED:
            request.stage = Stage.SENDING
            wait_ms = self._wait_ms(self.limits.resend_ms, request.sends)
        self._wake(request, now_ms + wait_ms)
        request.sends += 1
        return SendDispatch(request, request.broker if request.sends > 1 else "")

    def _rest(self, request: Request, due_ms: int) -> None:
        request.stage = Stage.RESTING
        self._wake(request, due_ms)

    def _wake(self, request: Request, due_ms: int) -> None:
        self._timers.set(request.request_id, min(due_ms, request.deadline_ms))

    def _expire(self, request: Request, now_ms: int) -> Iterable[Effect]:
        if request.refusal is not None and request.stage is not Stage.PLACED:
            return [self._refuse(request, now_ms), SendCancel(request, "no_available_node")]
        self._end(request, "failed", now_ms)
        message = "the result did not come in time"
        return [Fail(request, ErrorCode.JOB_TIMEOUT, message), SendCancel(request, "job_timeout")]

    def _refuse(self, request: Request, now_ms: int) -> Fail:
        refusal = request.refusal
        assert refusal is not None
        self._end(request, "failed", now_ms)
        code = ErrorCode.__members__.get(refusal.code, ErrorCode.NO_AVAILABLE_NODE)
        details: dict[str, object] = {"reason": refusal.reason, "removed": refusal.removed}
        return Fail(request, code, f"no node can take the utterance: {refusal.reason}", details)

    def _end(self, request: Request, outcome: str, now_ms: int) -> None:
        del self.requests[request.request_id]
        self._sessions[request.session_id].discard(request.request_id)
        self._timers.drop(request.request_id)
        self._memory.add(request.request_id, now_ms)
        self.audio_bytes -= len(request.audio)
        self.ended[outcome] += 1

    def check(self) -> None:
        """Every accepted utterance is either waiting, with a timer, or has ended exactly once."""
        assert self.accepted == len(self.requests) + self.ended.total()
        assert self.audio_bytes == sum(len(request.audio) for request in self.requests.values())
        assert len(self._timers) == len(self.requests)
        assert {key for keys in self._sessions.values() for key in keys} == set(self.requests)
        assert len(self._memory) <= self.limits.ended_kept_max
        for request_id, request in self.requests.items():
            assert request_id in self._timers and request_id not in self._memory
            assert 1 <= request.attempt <= self.limits.attempts_max
            assert (request.stage is Stage.PLACED) <= bool(request.job_id)
