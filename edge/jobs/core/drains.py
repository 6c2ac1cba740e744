"""Drains: nodes that an operator takes out of service, and the deadline of each for its running jobs."""

from __future__ import annotations

from dataclasses import dataclass

from edge.core.timers import Timers, Wake, no_wake
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

    def __init__(self, wake: Wake = no_wake) -> None:
        self._wake = wake
        self._drains: dict[str, NodeDrain] = {}
        self._deadlines: Timers[str] = Timers(wake)
        #: Nodes that finished their last job since the last `pop_emptied`.
        self._emptied: dict[str, None] = {}

    def of(self, node_id: str) -> NodeDrain | None:
        """The node's drain, if it is in one."""
        return self._drains.get(node_id)

    def start(self, control: ControlNode, due_ms: int) -> None:
        """Drain the node until `due_ms`; a later command replaces an earlier one."""
        self._drains[control.node_id] = NodeDrain(control, due_ms)
        self._deadlines.set(control.node_id, due_ms)

    def stop(self, node_id: str) -> None:
        """End the drain: the node is resumed or offline."""
        self._drains.pop(node_id, None)
        self._deadlines.drop(node_id)
        self._emptied.pop(node_id, None)

    def has_no_job(self, node_id: str) -> None:
        """The node's last job ended; reported once per drain."""
        drain = self._drains.get(node_id)
        if drain is not None and not drain.reported_empty:
            drain.reported_empty = True
            self._emptied[node_id] = None
            self._wake(0)  # at the next tick

    def next_due_ms(self) -> int | None:
        """When `pop_emptied` or `pop_due` has something; 0 = at once, None if neither will."""
        return 0 if self._emptied else self._deadlines.next_due_ms()

    def pop_emptied(self) -> list[str]:
        """The nodes that finished their last job."""
        nodes = list(self._emptied)
        self._emptied.clear()
        return nodes

    def pop_due(self, now_ms: int) -> list[str]:
        """The nodes whose deadline has passed. Their drains are removed."""
        nodes = self._deadlines.pop_due(now_ms)
        for node_id in nodes:
            self.stop(node_id)
        return nodes

    def check(self) -> None:
        """Every drain has its deadline, and no other node has one."""
        self._deadlines.check()
        assert len(self._drains) == len(self._deadlines) and all(node in self._deadlines for node in self._drains)
        assert self._emptied.keys() <= self._drains.keys()
