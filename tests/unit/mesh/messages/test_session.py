from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.errors import PeerError
from mesh.messages.client import decode_from_client, encode
from mesh.messages.session import Backpressure, SessionInit
from mesh.words import BackpressureAction
from tests.support.builders.messages import FROM_CLIENT

by_type = {sample.type: sample.message for sample in FROM_CLIENT}


def session_init(**changes: Any) -> SessionInit:
    message = decode_from_client(json.dumps({**by_type["session_init"], **changes}))
    assert isinstance(message, SessionInit)
    return message


@pytest.mark.parametrize("mode", ["two_way_auto", "TWO_WAY_AUTO", "Two_Way_Auto"])
def test_mode_is_case_insensitive(mode: str) -> None:
    assert session_init(mode=mode).mode == "two_way_auto"


def test_type_is_case_insensitive() -> None:
    assert session_init(type="SESSION_INIT") == session_init()


def test_unknown_mode_is_refused_by_name() -> None:
    with pytest.raises(PeerError, match="mode"):
        session_init(mode="three_way")


def test_integer_may_come_as_a_float() -> None:
    assert session_init(partial_update_interval_ms=1000.0).partial_update_interval_ms == 1000


@pytest.mark.parametrize("action", BackpressureAction)
def test_backpressure_writes_its_action_as_plain_word(action: BackpressureAction) -> None:
    written = json.loads(encode(Backpressure(action=action, resume_after_ms=500)))
    assert written == {"type": "backpressure", "action": str(action.value), "resume_after_ms": 500}
