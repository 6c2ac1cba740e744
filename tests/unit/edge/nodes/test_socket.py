"""Node socket: errors beyond the permitted rate delay its reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from edge.metrics import EdgeMetrics
from edge.nodes.socket import NodeSocket
from edge.transport.connection import EdgeConnection
from edge.transport.send_buffer import SendLimits
from mesh.config.network import EdgeConfig


@pytest.mark.parametrize(("errors", "is_delayed"), [(0, False), (1, False), (100, True)])
def test_read_is_delayed_after_errors_beyond_the_rate(errors: int, is_delayed: bool) -> None:
    config = EdgeConfig(node_errors_per_s_max=1)
    connection = cast(EdgeConnection, SimpleNamespace(loop=None))  # nothing is sent or received
    socket = NodeSocket(connection, SendLimits.of(config), EdgeMetrics(CollectorRegistry()), config)
    for _ in range(errors):
        socket.count_error()
    assert (socket.read_delay_ms > 0) is is_delayed
