"""Unacked results: buffered until acknowledged, each with its retry timer.

A result goes directly to the edge of its session (Push), and the end of its job to a selector (Finished). Each has its
own acknowledgement, and the entry ends with the second of the two. A result that is not acknowledged in time goes by a
selector (JobDone), which finishes the job too and finds the session's owner or its mail.

Bounded in number, in bytes, in age, and per node in results of jobs that this edge did not assign to it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from itertools import chain
from typing import Final, NamedTuple

from edge.core.backoff import retry_wait_ms
from edge.core.timers import Timers
from edge.jobs.core.job import Effect, SendDone, SendFinished, SendResult, TimerKind, UnackedResult, job_done

# A member of an enum costs as much as a call; these are read for every message.
_RETRY: Final = TimerKind.RETRY


class UnackedLimits(NamedTuple):
    """Bounds of unacked results, from the configuration."""

    results_max: int
    bytes_max: int
    unknown_per_node_max: int
    #: A result older than this belongs to a job whose record has expired.
    age_ms_max: int
    retry_ms: int
    retry_ms_max: int
    #: Cap of the first retry intervals: see edge.link.link.early_ms_max.
    retry_early_ms_max: int


class UnackedResults:
    """Unacked results by key, oldest first."""

    def __init__(self, limits: UnackedLimits, timers: Timers[tuple[TimerKind, str]]) -> None:
        self.limits = limits
        self.results: OrderedDict[str, UnackedResult] = OrderedDict()
        self.bytes = 0
        self._timers = timers
        self._of_node: dict[str, dict[str, UnackedResult]] = {}
        #: Keys of results whose job this edge did not assign, oldest first, and their number per node.
        self._unknown: OrderedDict[str, None] = OrderedDict()
        self._unknown_of: Counter[str] = Counter()
        #: Keys of acknowledged results whose job is not finished yet, in the order of their acknowledgements.
        self._acked: OrderedDict[str, None] = OrderedDict()

    def of_node(self, node_id: str) -> Iterable[UnackedResult]:
        """The node's results."""
        return self._of_node.get(node_id, {}).values()

    def accepts_unknown(self, node_id: str) -> bool:
        """False if the node has reached its bound of results whose job this edge did not assign.

        After a restart an edge receives a few such results from honest nodes; the bound stops a node that invents them.
        """
        return self._unknown_of.get(node_id, 0) < self.limits.unknown_per_node_max

    def add(self, key: str, result: UnackedResult) -> list[str]:
        """Buffer a result, which the caller must `send`. Returns the keys of those evicted for it, maybe its own.

        Results of unknown jobs are evicted first: a result that a client waits for is not evicted for an invented one.
        Nor is it for an acknowledged one: those are evicted before, and not returned, because no client loses anything.
        The audit of its node's slots then finds that the job has ended.
        """
        self.results[key] = result
        self._of_node.setdefault(result.push.node_id, {})[key] = result
        self.bytes += result.size
        if not result.known:
            self._unknown[key] = None
            self._unknown_of[result.push.node_id] += 1
        evicted: list[str] = []
        while len(self.results) > self.limits.results_max or self.bytes > self.limits.bytes_max:
            if self._acked and len(self.results) > self.limits.results_max:
                self.pop(next(iter(self._acked)))
            else:
                evicted.append(self._oldest_unacked())
                self.pop(evicted[-1])
        return evicted

    def _oldest_unacked(self) -> str:
        """The next one to evict; one of an unknown job, if there is one."""
        return next(key for key in chain(self._unknown, self.results) if key not in self._acked)

    def pop(self, key: str) -> None:
        """Remove a result."""
        result = self.results.pop(key)
        self.bytes -= result.size
        self._timers.drop((_RETRY, key))
        if result.is_acked:
            del self._acked[key]
        node_id = result.push.node_id
        of_node = self._of_node[node_id]
        del of_node[key]
        if not of_node:
            del self._of_node[node_id]
        if not result.known:
            del self._unknown[key]
            self._unknown_of[node_id] -= 1
            if not self._unknown_of[node_id]:
                del self._unknown_of[node_id]

    def acked(self, key: str) -> None:
        """The session's edge has it: its payload is not needed any more. The caller pops a finished one."""
        result = self.results[key]
        result.is_acked = True
        self._acked[key] = None
        self.bytes -= result.size
        result.size, result.payload = 0, ()

    # --- sending ------------------------------------------------------------------------------

    def send(self, key: str, result: UnackedResult, now_ms: int) -> list[Effect]:
        """Send a new result, and schedule its retry. Without a known edge it goes by a selector at once."""
        if not result.session_edge:
            return [self.retry(key, now_ms)]
        self._timers.set((_RETRY, key), now_ms + self.limits.retry_ms)
        result.sends = result.finish_sends = 1
        return [SendResult(result), SendFinished(result)]

    def retry(self, key: str, now_ms: int) -> SendDone | SendFinished:
        """Send by a selector what is not acknowledged, and schedule the next retry."""
        result, limits = self.results[key], self.limits
        sends = max(result.sends, result.finish_sends)
        wait_ms = retry_wait_ms(limits.retry_ms, sends, limits.retry_early_ms_max, limits.retry_ms_max)
        self._timers.set((_RETRY, key), now_ms + wait_ms)
        if result.is_acked:
            result.finish_sends += 1
            return SendFinished(result, to_cell=True)
        done = job_done(result)
        result.sends += 1
        return SendDone(result, done, result.broker)

    def retry_now(self, key: str, now_ms: int) -> None:
        """Retry at the next tick: a selector does not know of the result."""
        self._timers.set((_RETRY, key), now_ms)

    def on_returned(self, key: str, retry_after_ms: int, now_ms: int) -> None:
        """A broker returned the JobDone: retry sooner than after a loss."""
        result, limits = self.results.get(key), self.limits
        if result is not None:
            first_ms = max(1, retry_after_ms, limits.retry_ms // 4)
            wait_ms = retry_wait_ms(first_ms, result.sends - 1, limits.retry_early_ms_max, limits.retry_ms_max)
            self._timers.set((_RETRY, key), now_ms + wait_ms)

    def on_due(self, keys: Iterable[str], now_ms: int) -> tuple[list[Effect], list[str]]:
        """The retries of these results, and the keys of expired ones, which the caller must `pop`."""
        retries: list[Effect] = []
        expired: list[str] = []
        for key in keys:
            if now_ms - self.results[key].received_ms >= self.limits.age_ms_max:
                expired.append(key)
            else:
                retries.append(self.retry(key, now_ms))
        return retries, expired

    def check(self) -> None:
        """All bounds hold, all counts are true, and every result has its timer."""
        assert len(self.results) <= self.limits.results_max
        assert {key for kind, key in self._timers if kind is _RETRY} == self.results.keys()
        assert self.bytes == sum(result.size for result in self.results.values()) <= self.limits.bytes_max
        assert sum(len(results) for results in self._of_node.values()) == len(self.results)
        assert list(self._unknown) == [key for key, result in self.results.items() if not result.known]
        assert self._unknown_of == Counter(self.results[key].push.node_id for key in self._unknown)
        assert self._acked.keys() == {key for key, result in self.results.items() if result.is_acked}
        assert not any(result.is_acked and result.is_finished for result in self.results.values())
        assert all(result.size == sum(map(len, result.payload)) for result in self.results.values())
        assert all(0 < count <= self.limits.unknown_per_node_max for count in self._unknown_of.values())
