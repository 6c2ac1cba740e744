"""RequestTable: pending requests, their audio and timers, and the outcomes of earlier ones.

Owns the conservation of utterances: every accepted one is pending or has ended once, with one of four outcomes. The
tracker decides what is done with a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from edge.core.recent_keys import RecentKeys
from edge.core.timers import Timers, Wake, no_wake
from edge.requests.core.request import Attempt, Request, Stage
from mesh.frames import Push
from mesh.words import UTTERANCE_ENDS, EdgeCount, ResultVerdict


class RequestTable:
    """All pending requests of this edge."""

    def __init__(self, ended_kept_max: int, ended_kept_ms: int, wake: Wake = no_wake) -> None:
        self.requests: dict[str, Request] = {}
        self.audio_bytes = 0
        self.accepted = 0
        self.ended: Counter[EdgeCount] = Counter()
        #: By request id and number of the attempt: when to look at it again.
        self.timers: Timers[tuple[str, int]] = Timers(wake)
        #: Open sessions, and the ids of their requests.
        self.sessions: dict[str, set[str]] = {}
        #: Audio of each session that has any.
        self.bytes_of: dict[str, int] = {}
        #: Sessions from another edge: a result may arrive before its request.
        self._resumed: set[str] = set()
        self._recent = RecentKeys(ended_kept_max, ended_kept_ms)
        self._ended_kept_max = ended_kept_max

    # --- sessions -----------------------------------------------------------------------------

    def open_session(self, session_id: str, *, resumed: bool = False) -> None:
        """Accept results for this session from now on."""
        self.sessions.setdefault(session_id, set())
        if resumed:
            self._resumed.add(session_id)

    def close_session(self, session_id: str) -> None:
        """Its requests have ended."""
        assert not self.sessions.get(session_id)
        self.sessions.pop(session_id, None)
        self._resumed.discard(session_id)

    def of_session(self, session_id: str) -> list[Request]:
        """The session's requests, in the order of their ids."""
        return [self.requests[request_id] for request_id in sorted(self.sessions.get(session_id, ()))]

    def pending(self, session_id: str) -> int:
        """The number of pending requests of a session."""
        return len(self.sessions.get(session_id, ()))

    # --- requests -----------------------------------------------------------------------------

    def is_resumed(self, session_id: str) -> bool:
        """True if another edge may have had requests of the session."""
        return session_id in self._resumed

    def is_known(self, request_id: str, session_id: str, now_ms: int) -> bool:
        """True for a pending or recently ended request. In a resumed session a request that ended before is new."""
        if request_id in self.requests:
            return True
        return session_id not in self._resumed and self._recent.how(request_id, now_ms) is not None

    def add(self, request: Request) -> None:
        """Accept a request."""
        if request.session_id in self._resumed:
            self._recent.drop(request.request_id)  # of any other session only a new request is added
        session_id, audio_bytes = request.session_id, len(request.audio)
        self.requests[request.request_id] = request
        self.sessions[session_id].add(request.request_id)
        if audio_bytes:
            self.audio_bytes += audio_bytes
            self.bytes_of[session_id] = self.bytes_of.get(session_id, 0) + audio_bytes
        self.accepted += 1

    def live(self, request_id: str, number: int) -> tuple[Request, Attempt] | None:
        """The request and its live attempt of that number."""
        request = self.requests.get(request_id)
        attempt = None if request is None else request.attempt(number)
        return None if request is None or attempt is None else (request, attempt)

    def request_of(self, push: Push) -> Request | None:
        """The request that a result is for."""
        if push.request_id:
            request = self.requests.get(push.request_id)
            return request if request is not None and request.session_id == push.session_id else None
        # The node's edge restarted and has only the facts that the node sent. They alone must not reach a client,
        # so the job id has to be one that was placed.
        for request in self.of_session(push.session_id):
            for attempt in request.live():
                if attempt.job_id == push.job_id and attempt.node_id == push.node_id:
                    return request
        return None

    def verdict_on(self, push: Push, now_ms: int) -> ResultVerdict:
        """Deduplicate results: the verdict on one that belongs to no pending request."""
        if self._recent.how(push.request_id, now_ms) is not None:
            return ResultVerdict.DUPLICATE
        if push.session_id not in self.sessions:
            return ResultVerdict.NO_SESSION
        # Without a request id it may still match once Placed has the job id; and pending requests of a resumed
        # session are submitted anew in a moment.
        is_duplicate = push.request_id and push.session_id not in self._resumed
        return ResultVerdict.DUPLICATE if is_duplicate else ResultVerdict.NO_SESSION

    def ended_without(self, request_id: str, number: int, now_ms: int) -> bool:
        """True if the request ended recently, and not with the result of that attempt."""
        how = self._recent.how(request_id, now_ms)
        return how is not None and how != str(number)

    def end(self, request: Request, outcome: EdgeCount, now_ms: int, by: Attempt | None = None) -> None:
        """The request is over; `by`: the attempt that ended it."""
        assert outcome in UTTERANCE_ENDS
        request_id, session_id, audio_bytes = request.request_id, request.session_id, len(request.audio)
        del self.requests[request_id]
        self.sessions[session_id].discard(request_id)
        request.ended_ms = now_ms
        self.timers.drop((request_id, request.current.number))
        if request.hedge is not None:
            self.timers.drop((request_id, request.hedge.number))
        self._recent.add(request_id, now_ms, "" if by is None else str(by.number))
        self.audio_bytes -= audio_bytes
        own = self.bytes_of.pop(session_id, 0) - audio_bytes
        if own:
            self.bytes_of[session_id] = own
        self.ended[outcome] += 1

    def forget(self, request_ids: Iterable[str]) -> None:
        """Drop the outcomes of these requests: a duplicate counts as new."""
        for request_id in request_ids:
            self._recent.drop(request_id)

    # --- conservation -------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Utterances by state or outcome: accepted = the sum of the others, always."""
        ends: dict[str, int] = {outcome: self.ended[outcome] for outcome in UTTERANCE_ENDS}
        return {EdgeCount.ACCEPTED: self.accepted, **ends, EdgeCount.IN_FLIGHT: len(self.requests)}

    def check(self) -> None:
        """Every accepted utterance is pending, with a timer per attempt, or has ended exactly once."""
        assert self.accepted == len(self.requests) + sum(self.ended[outcome] for outcome in UTTERANCE_ENDS)
        assert set(self.ended) <= set(UTTERANCE_ENDS)
        assert self.audio_bytes == sum(len(request.audio) for request in self.requests.values())
        assert self.audio_bytes == sum(self.bytes_of.values()) and all(self.bytes_of.values())
        assert {key for keys in self.sessions.values() for key in keys} == set(self.requests)
        assert len(self._recent) <= self._ended_kept_max
        self.timers.check()
        assert len(self.timers) == sum(len(request.live()) for request in self.requests.values())
        for request_id, request in self.requests.items():
            assert request_id not in self._recent
            for attempt in request.live():
                assert (request_id, attempt.number) in self.timers
                assert 1 <= attempt.number <= request.attempts
                assert (attempt.stage is Stage.PLACED) == bool(attempt.job_id)
