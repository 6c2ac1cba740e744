"""Node socket: one connection on /ws/node with its state and its read throttle."""

from __future__ import annotations

from edge.core.throttle import ReadThrottle
from edge.metrics import EdgeMetrics
from edge.nodes.core.connection import NodeConnection
from edge.transport.connection import EdgeConnection
from edge.transport.send_buffer import SendLimits
from edge.transport.websocket import Socket
from mesh.clock import now_ms
from mesh.config.network import EdgeConfig
from mesh.words import SocketKind


class NodeSocket(Socket):
    """One connection on /ws/node."""

    def __init__(
        self, connection: EdgeConnection, limits: SendLimits, metrics: EdgeMetrics, config: EdgeConfig
    ) -> None:
        super().__init__(connection, SocketKind.NODE, limits, metrics)
        self.node = NodeConnection(config.heartbeat_min_ms)
        self.opened_ms = now_ms()
        #: How long the reader waits before its next message: the node is throttled.
        self.read_delay_ms = 0.0
        self._throttle = ReadThrottle(config.node_errors_per_s_max)

    def count_error(self) -> None:
        """The node sent an error, or a message that is one: throttle its next reads beyond the permitted rate."""
        self.read_delay_ms = self._throttle.wait_ms(now_ms())
