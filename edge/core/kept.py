"""Kept: the results that an edge holds until they are acknowledged. Bounded in number, in bytes, and per node in what
that node says of jobs it was never given here. Holds no timers and sends nothing."""

from __future__ import annotations

from collections import Counter, OrderedDict

from edge.core.assignment import Result


class Kept:
    """Results by key, oldest first."""

    def __init__(self, results_max: int, bytes_max: int, unknown_per_node_max: int) -> None:
        self.results: OrderedDict[str, Result] = OrderedDict()
        self.bytes = 0
        self._results_max = results_max
        self._bytes_max = bytes_max
        self._unknown_per_node_max = unknown_per_node_max
        #: Keys of results without a job here, oldest first, and how many each node has.
        self._unknown: OrderedDict[str, None] = OrderedDict()
        self._unknown_of: Counter[str] = Counter()

    def takes_unknown(self, node_id: str) -> bool:
        """False if the node has as many results without a job here as it may.

        An edge that restarted gets a few such results from honest nodes; a node that invents them gets no further.
        """
        return self._unknown_of.get(node_id, 0) < self._unknown_per_node_max

    def add(self, key: str, result: Result) -> list[str]:
        """Keep a result. Returns the keys of those dropped for it, which may be itself.

        Those without a job here go first: what somebody certainly waits for is not given up for what may be invented.
        """
        self.results[key] = result
        self.bytes += len(result.text)
        if not result.known:
            self._unknown[key] = None
            self._unknown_of[result.done.node_id] += 1
        shed: list[str] = []
        while len(self.results) > self._results_max or self.bytes > self._bytes_max:
            shed.append(next(iter(self._unknown or self.results)))
            self.pop(shed[-1])
        return shed

    def pop(self, key: str) -> None:
        """Keep it no longer."""
        result = self.results.pop(key)
        self.bytes -= len(result.text)
        if not result.known:
            del self._unknown[key]
            node_id = result.done.node_id
            self._unknown_of[node_id] -= 1
            if not self._unknown_of[node_id]:
                del self._unknown_of[node_id]

    def check(self) -> None:
        """All bounds hold and all counts are true."""
        assert len(self.results) <= self._results_max
        assert self.bytes == sum(len(result.text) for result in self.results.values()) <= self._bytes_max
        assert list(self._unknown) == [key for key, result in self.results.items() if not result.known]
        assert self._unknown_of == Counter(self.results[key].done.node_id for key in self._unknown)
        assert all(0 < count <= self._unknown_per_node_max for count in self._unknown_of.values())
