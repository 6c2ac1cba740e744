"""Kept: the results that an edge holds until they are acknowledged, and when each is to be sent again.

Bounded in number, in bytes, in age, and per node in what that node says of jobs it was never given here.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from edge.core.backoff import retry_wait_ms
from edge.core.timers import Timers
from edge.jobs.core.job import SendDone, UnackedResult


class UnackedLimits(NamedTuple):
    """The bounds this core obeys, from the configuration."""

    results_max: int
    bytes_max: int
    unknown_per_node_max: int
    #: A result older than this belongs to a job that the mesh has forgotten.
    kept_ms: int
    resend_ms: int
    resend_ms_max: int
    #: Between the first few repeats: half of the time in which the mesh notices a peer that hangs.
    resend_early_ms_max: int


class UnackedResults:
    """Results by key, oldest first."""

    def __init__(self, limits: UnackedLimits) -> None:
        self.limits = limits
        self.results: OrderedDict[str, UnackedResult] = OrderedDict()
        self.bytes = 0
        self._resends: Timers[str] = Timers()
        self._of_node: dict[str, dict[str, UnackedResult]] = {}
        #: Keys of results without a job here, oldest first, and how many each node has.
        self._unknown: OrderedDict[str, None] = OrderedDict()
        self._unknown_of: Counter[str] = Counter()

    def of_node(self, node_id: str) -> Iterable[UnackedResult]:
        """The node's results."""
        return self._of_node.get(node_id, {}).values()

    def takes_unknown(self, node_id: str) -> bool:
        """False if the node has as many results without a job here as it may.

        An edge that restarted gets a few such results from honest nodes; a node that invents them gets no further.
        """
        return self._unknown_of.get(node_id, 0) < self.limits.unknown_per_node_max

    def add(self, key: str, result: UnackedResult) -> list[str]:
        """Keep a result. Returns the keys of those dropped for it, which may be itself.

        Those without a job here go first: what somebody certainly waits for is not given up for what may be invented.
        """
        self.results[key] = result
        self._of_node.setdefault(result.done.node_id, {})[key] = result
        self.bytes += len(result.text)
        if not result.known:
            self._unknown[key] = None
            self._unknown_of[result.done.node_id] += 1
        self._resends.set(key, result.received_ms)
        shed: list[str] = []
        while len(self.results) > self.limits.results_max or self.bytes > self.limits.bytes_max:
            shed.append(next(iter(self._unknown or self.results)))
            self.pop(shed[-1])
        return shed

    def pop(self, key: str) -> None:
        """Keep it no longer."""
        result = self.results.pop(key)
        self.bytes -= len(result.text)
        self._resends.drop(key)
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
        """Send it now, and again when nobody acknowledged it for a while."""
        result = self.results[key]
        self._resends.set(key, now_ms + self._wait_ms(self.limits.resend_ms, result.sends))
        frame = result.done
        if result.sends:
            frame = msgspec.structs.replace(frame, resend=frame.resend + result.sends)
        result.sends += 1
        return SendDone(key, frame, result.text, result.broker if result.sends > 1 else "")

    def sent(self, key: str, broker: str) -> None:
        """Which broker took the last JobDone ("" = none is alive)."""
        result = self.results.get(key)
        if result is not None:
            result.broker = broker

    def hurry(self, key: str, now_ms: int) -> None:
        """The mesh seems not to know: send it as soon as can be."""
        self._resends.set(key, now_ms)

    def came_back(self, key: str, retry_after_ms: int, now_ms: int) -> None:
        """A broker could not pass it on: try again sooner than if it had been lost."""
        result = self.results.get(key)
        if result is not None:
            wait_ms = max(retry_after_ms, self.limits.resend_ms // 4)
            self._resends.set(key, now_ms + self._wait_ms(wait_ms or 1, result.sends - 1))

    def next_due_ms(self) -> int | None:
        """When one is to be sent again; None while there is none."""
        return self._resends.next_due_ms()

    def pop_due(self, now_ms: int) -> tuple[list[SendDone], list[str]]:
        """What is to be sent again, and the keys of those that are too old; these are still here, without a timer."""
        again: list[SendDone] = []
        expired: list[str] = []
        for key in self._resends.pop_due(now_ms):
            if now_ms - self.results[key].received_ms >= self.limits.kept_ms:
                expired.append(key)
            else:
                again.append(self.send(key, now_ms))
        return again, expired

    def _wait_ms(self, first_ms: int, tries: int) -> int:
        return retry_wait_ms(first_ms, tries, self.limits.resend_early_ms_max, self.limits.resend_ms_max)

    def check(self) -> None:
        """All bounds hold, all counts are true, and every result has its timer."""
        assert len(self._resends) == len(self.results) <= self.limits.results_max
        assert self.bytes == sum(len(result.text) for result in self.results.values()) <= self.limits.bytes_max
        assert sum(len(results) for results in self._of_node.values()) == len(self.results)
        assert list(self._unknown) == [key for key, result in self.results.items() if not result.known]
        assert self._unknown_of == Counter(self.results[key].done.node_id for key in self._unknown)
        assert all(0 < count <= self.limits.unknown_per_node_max for count in self._unknown_of.values())
