"""Unacked results: buffered until acknowledged, each with its retry timer.

Bounded in number, in bytes, in age, and per node in results of jobs that this edge did not assign to it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from edge.core.backoff import retry_wait_ms
from edge.core.timers import Timers
from edge.jobs.core.job import SendDone, TimerKind, UnackedResult


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
        """
        self.results[key] = result
        self._of_node.setdefault(result.done.node_id, {})[key] = result
        self.bytes += len(result.text)
        if not result.known:
            self._unknown[key] = None
            self._unknown_of[result.done.node_id] += 1
        evicted: list[str] = []
        while len(self.results) > self.limits.results_max or self.bytes > self.limits.bytes_max:
            evicted.append(next(iter(self._unknown or self.results)))
            self.pop(evicted[-1])
        return evicted

    def pop(self, key: str) -> None:
        """Remove a result."""
        result = self.results.pop(key)
        self.bytes -= len(result.text)
        self._timers.drop((TimerKind.RETRY, key))
        node_id = result.done.node_id
        of_node = self._of_node[node_id]
        del of_node[key]
        if not of_node:
            del self._of_node[node_id]
        if not result.known:
            del self._unknown[key]
            self._unknown_of[node_id] -= 1
            if not self._unknown_of[node_id]:
                del self._unknown_of[node_id]

    # --- sending ------------------------------------------------------------------------------

    def send(self, key: str, now_ms: int) -> SendDone:
        """Send a result now, and schedule its retry."""
        result, limits = self.results[key], self.limits
        wait_ms = retry_wait_ms(limits.retry_ms, result.sends, limits.retry_early_ms_max, limits.retry_ms_max)
        self._timers.set((TimerKind.RETRY, key), now_ms + wait_ms)
        frame = result.done
        if result.sends:
            frame = msgspec.structs.replace(frame, resend=frame.resend + result.sends)
        result.sends += 1
        return SendDone(result, frame, result.broker)

    def retry_now(self, key: str, now_ms: int) -> None:
        """Retry at the next tick: a selector does not know of the result."""
        self._timers.set((TimerKind.RETRY, key), now_ms)

    def on_returned(self, key: str, retry_after_ms: int, now_ms: int) -> None:
        """A broker returned the JobDone: retry sooner than after a loss."""
        result, limits = self.results.get(key), self.limits
        if result is not None:
            first_ms = max(1, retry_after_ms, limits.retry_ms // 4)
            wait_ms = retry_wait_ms(first_ms, result.sends - 1, limits.retry_early_ms_max, limits.retry_ms_max)
            self._timers.set((TimerKind.RETRY, key), now_ms + wait_ms)

    def on_due(self, keys: Iterable[str], now_ms: int) -> tuple[list[SendDone], list[str]]:
        """The retries of these results, and the keys of expired ones, which the caller must `pop`."""
        retries: list[SendDone] = []
        expired: list[str] = []
        for key in keys:
            if now_ms - self.results[key].received_ms >= self.limits.age_ms_max:
                expired.append(key)
            else:
                retries.append(self.send(key, now_ms))
        return retries, expired

    def check(self) -> None:
        """All bounds hold, all counts are true, and every result has its timer."""
        assert len(self.results) <= self.limits.results_max
        assert {key for kind, key in self._timers if kind is TimerKind.RETRY} == self.results.keys()
        assert self.bytes == sum(len(result.text) for result in self.results.values()) <= self.limits.bytes_max
        assert sum(len(results) for results in self._of_node.values()) == len(self.results)
        assert list(self._unknown) == [key for key, result in self.results.items() if not result.known]
        assert self._unknown_of == Counter(self.results[key].done.node_id for key in self._unknown)
        assert all(0 < count <= self.limits.unknown_per_node_max for count in self._unknown_of.values())
