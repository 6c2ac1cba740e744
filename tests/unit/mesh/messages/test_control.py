from __future__ import annotations

import json

import pytest

from mesh.messages.base import encode
from mesh.messages.control import ControlError, Drain, Pair, WeightsSet, decode_command
from tests.support.builders import message_checks as checks


@pytest.mark.parametrize(
    "command",
    [
        Drain(node_id="n", deadline_ms=5, reason="update"),
        Drain(node_id="n", resume=True),
        Pair(node_id="n"),
        WeightsSet(weights={"busy": 1.0}, expected_version=3, by="ann"),
    ],
)
def test_command_round_trips(command: Drain | Pair | WeightsSet) -> None:
    assert decode_command(encode(command)) == command


@pytest.mark.parametrize(
    "text", ['{"type":"reboot"}', '{"type":"drain"}', '{"type":"drain","node_id":"n","deadline_ms":-1}']
)
def test_malformed_command_is_refused(text: str) -> None:
    checks.refused(decode_command, text)


def test_error_of_a_command_has_the_type_error() -> None:
    written = json.loads(encode(ControlError(status=404, code="INVALID_ID", message="no such node")))
    assert written == {"type": "error", "status": 404, "code": "INVALID_ID", "message": "no such node"}
