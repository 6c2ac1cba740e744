from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.messages.client import decode_from_client, encode
from mesh.messages.rooms import Participant, RoomMembers, WebrtcOffer
from tests.support.builders import message_checks as checks


def test_signal_content_is_kept_as_it_is() -> None:
    content: dict[str, Any] = {"sdp": "v=0", "deep": [None, {"a": 1.5}]}
    text = json.dumps({"type": "webrtc_offer", "room_code": "123456", "to": "s-2", "sdp": content})
    message = decode_from_client(text)
    assert isinstance(message, WebrtcOffer)
    assert json.loads(encode(message)) == json.loads(text)


@pytest.mark.parametrize("name", ["x" * 129, 5, ["Ann"]])
def test_display_name_out_of_bounds_is_refused(name: Any) -> None:
    text = json.dumps({"type": "room_join", "room_code": "123456", "display_name": name})
    assert "display_name" in checks.refused(decode_from_client, text).message


def test_member_without_preferences_omits_them() -> None:
    member = Participant(participant_id="s", session_id="s", joined_at="2026-01-01T00:00:00Z")
    [written] = json.loads(encode(RoomMembers(room_code="123456", members=[member])))["members"]
    assert "raw_voice_preferences" not in written
