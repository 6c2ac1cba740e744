"""Drains: nodes that an operator takes out of service, and the deadline of each for its running jobs."""

from __future__ import annotations

from dataclasses import dataclass

from edge.core.timers import Timers
from edge.jobs.core.job import TimerKind
from mesh.frames import ControlNode


@dataclass(slots=True)
class NodeDrain:
    """One node's drain."""

    control: ControlNode
    due_ms: int
    #: That the node has no job left is reported.
    reported_empty: bool = False


class Drains:
    """The drains that have not reached their deadline."""

    def __init__(self, timers: Timers[tuple[TimerKind, str]]) -> None:
        self.nodes: dict[str, NodeDrain] = {}
        self._timers = timers

    def start(self, control: ControlNode, due_ms: int) -> None:
        """Drain the node until `due_ms`; a later command replaces an earlier one."""
        self.nodes[control.node_id] = NodeDrain(control, due_ms)
        self._timers.set((TimerKind.DRAIN_END, control.node_id), due_ms)

    def stop(self, node_id: str) -> None:
        """End the drain: the node is resumed or offline."""
        self.nodes.pop(node_id, None)
        self._timers.drop((TimerKind.DRAIN_END, node_id))
        self._timers.drop((TimerKind.DRAINED, node_id))

    def has_no_job(self, node_id: str) -> None:
        """The node's last job ended; reported once per drain."""
        drain = self.nodes.get(node_id)
        if drain is not None and not drain.reported_empty:
            drain.reported_empty = True
            self._timers.set((TimerKind.DRAINED, node_id), 0)  # at the next tick

    def check(self) -> None:
        """Every drain has its deadline, and no other node has one."""
        timers = set(self._timers)
        assert {node_id for kind, node_id in timers if kind is TimerKind.DRAIN_END} == self.nodes.keys()
        assert {node_id for kind, node_id in timers if kind is TimerKind.DRAINED} <= self.nodes.keys()
