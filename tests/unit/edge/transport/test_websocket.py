"""Socket: types of messages as metric labels, and the error for our own bug."""

from __future__ import annotations

from edge.metrics import MESSAGE_TYPES
from edge.transport.websocket import internal_error, type_of
from mesh.errors import ErrorCode
from mesh.messages.client import ServerHeartbeat


def test_type_of_a_message_is_its_tag_and_a_label() -> None:
    message = ServerHeartbeat(session_id="s-1", timestamp=0)
    assert type_of(message) == "server_heartbeat" and type_of(message) in MESSAGE_TYPES


def test_type_of_a_malformed_message_is_a_label_of_its_own() -> None:
    assert type_of(None) == "invalid" and type_of(None) in MESSAGE_TYPES


def test_own_bug_is_an_internal_error_without_details() -> None:
    error = internal_error()
    assert error.code is ErrorCode.INTERNAL_ERROR and "Traceback" not in error.message
