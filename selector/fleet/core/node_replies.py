"""What to answer about nodes: pure decisions from a frame and what Redis said about it."""

from __future__ import annotations

from lua.store.types.nodes import Drained, HeartbeatReply
from mesh.frames import ControlNode, NodeHeartbeat, NodeStale, StatusChanged
from mesh.words import NodeCommand, StaleReason
from selector.core.reply import Reply


def on_beaten(frame: NodeHeartbeat, beaten: HeartbeatReply) -> Reply | None:
    """NodeStale when the connection is not the one in force."""
    if beaten.verdict == "ok":
        return None
    return Reply(frame.edge, NodeStale(frame.node_id, frame.epoch, beaten.verdict))


def on_status(node_id: str, edge: str, epoch: int, status: str, reason: str) -> Reply | None:
    """The node's edge tells it. A node that no edge ever had has nobody to tell."""
    return Reply(edge, StatusChanged(node_id, epoch, status, reason)) if edge else None


def on_drained(node_id: str, drained: Drained, reason: str, deadline_ms: int) -> Reply:
    """The operator's command for the edge that holds the node's socket; `deadline_ms` on the wall clock, 0: resume."""
    command = NodeCommand.DRAIN if deadline_ms else NodeCommand.RESUME
    return Reply(drained.edge, ControlNode(node_id, drained.epoch, command, reason, deadline_ms))


def on_lost(node_id: str, edge: str, epoch: int) -> Reply:
    """Redis has no such connection of the node any more: if it is there still, its edge registers it again."""
    return Reply(edge, NodeStale(node_id, epoch, StaleReason.UNKNOWN))
