"""What the mesh says about a node itself: its status, and an operator's commands."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from mesh.messages import node as wire
from mesh.words import NodeCommand

_log = logging.getLogger("linguamesh.node")


@dataclass(frozen=True, slots=True)
class Control:
    """An operator's command: "drain" or "resume"."""

    command: str
    reason: str | None
    #: Time that is left for the jobs that the node has; what is unfinished then goes to other nodes.
    deadline_ms: int | None


class ControlState:
    """The latest word on the node. `on_control` is the user's; it is called once per command."""

    def __init__(self, on_control: Callable[[Control], None] | None) -> None:
        #: "registering", "ready", "degraded", "draining" or "offline"; "" before the first registration.
        self.status = ""
        #: No new jobs are to be expected; those that come all the same are run.
        self.draining = False
        self._on_control = on_control

    def on_registered(self, ack: wire.NodeRegisterAck) -> None:
        """A connection begins. Whether it is drained is said again if it still is."""
        self.status = ack.status
        self.draining = ack.status == "draining"

    def on_status(self, message: wire.NodeStatus) -> None:
        """The mesh sees the node differently now."""
        _log.info("%s is %s now%s", message.node_id, message.status, f": {message.reason}" if message.reason else "")
        self.status = message.status
        if message.status in ("ready", "draining"):
            self.draining = message.status == "draining"

    def on_control(self, message: wire.NodeControl) -> None:
        """An operator's command."""
        _log.info("told to %s%s", message.command, f": {message.reason}" if message.reason else "")
        if message.command in frozenset(NodeCommand):
            self.draining = message.command == NodeCommand.DRAIN
        if self._on_control:
            try:
                self._on_control(Control(message.command, message.reason, message.deadline_ms))
            except Exception:  # noqa: BLE001 - the user's code; the node works on
                _log.exception("the on_control callback failed")
