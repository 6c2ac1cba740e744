"""Reconnect grace: nodes whose socket closed here less than the grace ago, and the jobs buffered for them.

Selectors go on selecting a detached node for a while, at a cost; a job that they assign to it is buffered here with its
audio. A node that reattached stays listed until its grace would have ended: an Assign for its former connection may be
in flight.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from edge.core.timers import Timers
from edge.jobs.core.job import Payload, TimerKind
from mesh.frames import Assign


class BufferedJob(NamedTuple):
    """A job that is not written yet."""

    assign: Assign
    payload: Payload
    key: str

    @property
    def bytes(self) -> int:
        """Its size in the buffer."""
        return len(self.payload.work) + len(self.payload.audio)


class GraceLimits(NamedTuple):
    """Bounds of the grace and its buffer, from the configuration."""

    grace_ms: int
    nodes_max: int
    jobs_max: int
    bytes_max: int
    jobs_per_node_max: int
    bytes_per_node_max: int


@dataclass(slots=True)
class DetachedNode:
    """A node whose connection of `epoch` closed within the grace."""

    epoch: int
    is_back: bool = False
    buffered: dict[str, BufferedJob] = field(default_factory=dict)
    bytes: int = 0


class ReconnectGrace:
    """Detached nodes and their buffered jobs."""

    def __init__(self, limits: GraceLimits, timers: Timers[tuple[TimerKind, str]]) -> None:
        self.limits = limits
        #: Nodes whose last connection here closed within the grace.
        self.nodes: dict[str, DetachedNode] = {}
        self._timers = timers
        self._jobs = 0
        self._bytes = 0

    def __contains__(self, node_id: str) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and not node.is_back

    def detach(self, node_id: str, epoch: int, now_ms: int, has_jobs: bool) -> None:
        """The socket of that epoch closed. Beyond the bound only nodes with jobs are listed: their jobs must end."""
        if node_id not in self.nodes and len(self.nodes) >= self.limits.nodes_max and not has_jobs:
            return
        node = self.nodes.setdefault(node_id, DetachedNode(epoch))
        node.epoch, node.is_back = epoch, False
        self._timers.set((TimerKind.GRACE, node_id), now_ms + self.limits.grace_ms)

    def reattach(self, node_id: str) -> list[BufferedJob]:
        """The node has a socket here again; the jobs buffered for it."""
        node = self.nodes.get(node_id)
        if node is None:
            return []
        node.is_back = True
        return [self._drop(node, key) for key in list(node.buffered)]

    def buffer(self, job: BufferedJob) -> bool:
        """Buffer a job for a detached node; False if the node is not detached or the buffer is full."""
        node = self.nodes.get(job.assign.node_id)
        limits = self.limits
        if (
            node is None
            or node.is_back
            or self._jobs >= limits.jobs_max
            or self._bytes + job.bytes > limits.bytes_max
            or len(node.buffered) >= limits.jobs_per_node_max
            or node.bytes + job.bytes > limits.bytes_per_node_max
        ):
            return False
        node.buffered[job.key] = job
        node.bytes += job.bytes
        self._jobs += 1
        self._bytes += job.bytes
        return True

    def drop(self, node_id: str, key: str) -> BufferedJob | None:
        """Remove a buffered job; None if it is not buffered."""
        node = self.nodes.get(node_id)
        return self._drop(node, key) if node is not None and key in node.buffered else None

    def drop_all(self, node_id: str) -> list[BufferedJob]:
        """Remove and return all buffered jobs of a node."""
        node = self.nodes.get(node_id)
        return [self._drop(node, key) for key in list(node.buffered)] if node else []

    def on_due(self, nodes: Iterable[str]) -> list[tuple[str, list[BufferedJob]]]:
        """The grace of these nodes ended. Returns those that did not reattach, each with its buffered jobs."""
        offline: list[tuple[str, list[BufferedJob]]] = []
        for node_id in nodes:
            buffered = self.drop_all(node_id)
            if not self.nodes.pop(node_id).is_back:
                offline.append((node_id, buffered))
        return offline

    def _drop(self, node: DetachedNode, key: str) -> BufferedJob:
        job = node.buffered.pop(key)
        node.bytes -= job.bytes
        self._jobs -= 1
        self._bytes -= job.bytes
        return job

    def keys(self) -> set[str]:
        """The keys of all buffered jobs, for checks."""
        return {key for node in self.nodes.values() for key in node.buffered}

    def check(self) -> None:
        """All bounds hold, all counts are true, and every node has its timer."""
        limits = self.limits
        assert {node_id for kind, node_id in self._timers if kind is TimerKind.GRACE} == self.nodes.keys()
        assert self._jobs == sum(len(node.buffered) for node in self.nodes.values()) <= limits.jobs_max
        assert self._bytes == sum(node.bytes for node in self.nodes.values()) <= limits.bytes_max
        for node in self.nodes.values():
            assert node.bytes == sum(job.bytes for job in node.buffered.values()) <= limits.bytes_per_node_max
            assert len(node.buffered) <= limits.jobs_per_node_max
            assert not (node.buffered and node.is_back)
