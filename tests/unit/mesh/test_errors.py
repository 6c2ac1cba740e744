from __future__ import annotations

import re

import pytest

from mesh.errors import ErrorCode, PeerError

#: The original's codes: clients know them, so they must stay.
ORIGINAL = """
INVALID_MESSAGE INTERNAL_ERROR INVALID_SESSION SESSION_CLOSED NODE_UNAVAILABLE NODE_OVERLOADED MODEL_NOT_AVAILABLE
MODEL_LOAD_FAILED UNSUPPORTED_FEATURE INVALID_PAIRING_CODE NO_AVAILABLE_NODE WS_DISCONNECTED NMT_TIMEOUT TTS_TIMEOUT
JOB_TIMEOUT MODEL_VERIFY_FAILED MODEL_CORRUPTED NO_GPU_AVAILABLE NODE_ID_CONFLICT INVALID_CAPABILITY_SCHEMA
SCHEDULER_DEPENDENCY_DOWN PROCESSING_ERROR
"""


@pytest.mark.parametrize("name", ORIGINAL.split())
def test_codes_of_the_original_exist(name: str) -> None:
    assert ErrorCode[name].name == name


def test_numbers_are_unique_and_in_their_hundreds() -> None:
    numbers = [code.number for code in ErrorCode]
    assert len(set(numbers)) == len(numbers)
    assert numbers == sorted(numbers), "keep the list in order"
    assert all(100 <= number < 700 for number in numbers)


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_a_wire_name_and_a_hint(code: ErrorCode) -> None:
    assert re.fullmatch(r"[A-Z][A-Z_]+", code.name)
    assert 10 < len(code.hint) < 120


def test_peer_error_carries_code_message_and_details() -> None:
    error = PeerError(ErrorCode.INVALID_ID, "bad id", {"id": "x"})
    assert (str(error), error.code, error.details) == ("bad id", ErrorCode.INVALID_ID, {"id": "x"})
