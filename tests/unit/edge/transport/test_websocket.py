"""Socket: types of messages as metric labels, and the error for our own bug."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from edge.metrics import EdgeMetrics
from edge.transport.websocket import internal_error
from mesh.errors import ErrorCode
from mesh.messages.client import ServerHeartbeat
from mesh.words import SocketKind


def test_message_is_counted_by_its_tag() -> None:
    metrics = EdgeMetrics(CollectorRegistry())
    metrics.sent[SocketKind.SESSION][ServerHeartbeat].inc()
    metrics.sent[SocketKind.SESSION][ServerHeartbeat].inc()
    assert metrics.messages_total.totals() == {(SocketKind.SESSION, "out", "server_heartbeat"): 2}


def test_malformed_message_has_a_type_of_its_own() -> None:
    metrics = EdgeMetrics(CollectorRegistry())
    metrics.received[SocketKind.NODE][type(None)].inc()
    assert metrics.messages_total.totals() == {(SocketKind.NODE, "in", "invalid"): 1}


def test_own_bug_is_an_internal_error_without_details() -> None:
    error = internal_error()
    assert error.code is ErrorCode.INTERNAL_ERROR and "Traceback" not in error.message
