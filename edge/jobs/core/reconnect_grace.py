"""Away: nodes whose socket closed here less than the grace ago, and the jobs that wait for them to come back.

Selectors go on choosing such a node for a while, at a price; what they assign to it is held here with its audio. A node
that came back stays listed until its grace would have ended: an Assign for its former connection may be under way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from edge.core.timers import Timers
from edge.jobs.core.job import Payload, key_of_assign
from mesh.frames import Assign


class HeldJob(NamedTuple):
    """A job that is not written yet."""

    assign: Assign
    payload: Payload

    @property
    def bytes(self) -> int:
        """What it costs to hold it."""
        return len(self.payload.work) + len(self.payload.audio)


class GraceLimits(NamedTuple):
    """The bounds this core obeys, from the configuration."""

    grace_ms: int
    nodes_max: int
    jobs_max: int
    bytes_max: int
    jobs_per_node_max: int
    bytes_per_node_max: int


@dataclass(slots=True)
class _Node:
    epoch: int
    is_back: bool = False
    held: dict[str, HeldJob] = field(default_factory=dict)
    bytes: int = 0


class ReconnectGrace:
    """Who left lately, and what is held for them."""

    def __init__(self, limits: GraceLimits) -> None:
        self.limits = limits
        self._nodes: dict[str, _Node] = {}
        self._graces: Timers[str] = Timers()
        self._jobs = 0
        self._bytes = 0

    def __contains__(self, node_id: str) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and not node.is_back

    def gone(self, node_id: str, epoch: int, now_ms: int, has_jobs: bool) -> None:
        """The socket of that epoch closed. Beyond the bound only nodes with jobs are remembered: those must end."""
        if node_id not in self._nodes and len(self._nodes) >= self.limits.nodes_max and not has_jobs:
            return
        node = self._nodes.setdefault(node_id, _Node(epoch))
        node.epoch, node.is_back = epoch, False
        self._graces.set(node_id, now_ms + self.limits.grace_ms)

    def back(self, node_id: str) -> list[HeldJob]:
        """It has a socket here again; the jobs that waited for it."""
        node = self._nodes.get(node_id)
        if node is None:
            return []
        node.is_back = True
        return [self._drop(node, key) for key in list(node.held)]

    def had(self, node_id: str, epoch: int) -> bool:
        """True if that connection of the node was here and closed within the grace."""
        node = self._nodes.get(node_id)
        return node is not None and node.epoch == epoch

    def holds(self, node_id: str, key: str) -> bool:
        """True if that job waits here."""
        node = self._nodes.get(node_id)
        return node is not None and key in node.held

    def hold(self, job: HeldJob) -> bool:
        """Keep a job for a node that is away; False if it is not, or if there is no room."""
        node = self._nodes.get(job.assign.node_id)
        limits = self.limits
        if (
            node is None
            or node.is_back
            or self._jobs >= limits.jobs_max
            or self._bytes + job.bytes > limits.bytes_max
            or len(node.held) >= limits.jobs_per_node_max
            or node.bytes + job.bytes > limits.bytes_per_node_max
        ):
            return False
        node.held[key_of_assign(job.assign)] = job
        node.bytes += job.bytes
        self._jobs += 1
        self._bytes += job.bytes
        return True

    def drop(self, node_id: str, key: str) -> HeldJob | None:
        """Hold that job no longer; None if it is not held."""
        return self._drop(self._nodes[node_id], key) if self.holds(node_id, key) else None

    def drop_all(self, node_id: str) -> list[HeldJob]:
        """Hold nothing more for that node; what was held."""
        node = self._nodes.get(node_id)
        return [self._drop(node, key) for key in list(node.held)] if node else []

    def next_due_ms(self) -> int | None:
        """When the first grace ends; None while there is none."""
        return self._graces.next_due_ms()

    def pop_due(self, now_ms: int) -> list[tuple[str, list[HeldJob]]]:
        """The nodes that did not come back within their grace, each with what was held for it."""
        lost: list[tuple[str, list[HeldJob]]] = []
        for node_id in self._graces.pop_due(now_ms):
            held = self.drop_all(node_id)
            if not self._nodes.pop(node_id).is_back:
                lost.append((node_id, held))
        return lost

    def _drop(self, node: _Node, key: str) -> HeldJob:
        job = node.held.pop(key)
        node.bytes -= job.bytes
        self._jobs -= 1
        self._bytes -= job.bytes
        return job

    def keys(self) -> set[str]:
        """All held jobs, for checks."""
        return {key for node in self._nodes.values() for key in node.held}

    def check(self) -> None:
        """All bounds hold, all counts are true, and every node has its timer."""
        limits = self.limits
        assert self._nodes.keys() == {node_id for node_id in self._nodes if node_id in self._graces}
        assert len(self._graces) == len(self._nodes)
        assert self._jobs == sum(len(node.held) for node in self._nodes.values()) <= limits.jobs_max
        assert self._bytes == sum(node.bytes for node in self._nodes.values()) <= limits.bytes_max
        for node in self._nodes.values():
            assert node.bytes == sum(job.bytes for job in node.held.values()) <= limits.bytes_per_node_max
            assert len(node.held) <= limits.jobs_per_node_max
            assert not (node.held and node.is_back)
