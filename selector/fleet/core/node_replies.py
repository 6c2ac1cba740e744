"""Replies about nodes: pure decisions from a frame and the store's answer."""

from __future__ import annotations

from lua.store.types.nodes import Drained, HeartbeatReply
from mesh.frames import ControlNode, NodeHeartbeat, NodeStale, StatusChanged
from mesh.words import NodeCommand, StaleReason
from selector.core.reply import Reply


def on_beaten(frame: NodeHeartbeat, beaten: HeartbeatReply) -> Reply | None:
    """NodeStale when the connection is not the current one."""
    if beaten.verdict == "ok":
        return None
    return Reply(frame.edge, NodeStale(frame.node_id, frame.epoch, beaten.verdict))


def on_status(node_id: str, edge: str, epoch: int, status: str, reason: str) -> Reply | None:
    """For the node's edge, which notifies the node; None for a node without an edge."""
    return Reply(edge, StatusChanged(node_id, epoch, status, reason)) if edge else None


def on_drained(node_id: str, drained: Drained, reason: str, deadline_ms: int) -> Reply:
    """The operator's command for the edge of the node's socket; `deadline_ms` on the wall clock, 0: resume."""
    command = NodeCommand.DRAIN if deadline_ms else NodeCommand.RESUME
    return Reply(drained.edge, ControlNode(node_id, drained.epoch, command, reason, deadline_ms))


def on_lost(node_id: str, edge: str, epoch: int) -> Reply:
    """Redis has no record of the node's connection: if it is still open, its edge registers it again."""
    return Reply(edge, NodeStale(node_id, epoch, StaleReason.UNKNOWN))
