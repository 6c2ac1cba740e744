"""`lingua pair`: the printed code."""

from __future__ import annotations

import pytest

from linguamesh.cli.pair import _as_text


@pytest.mark.parametrize(("expires_in_ms", "minutes"), [(300_000, "5"), (90_000, "1.5")])
def test_code_is_the_first_line_and_its_validity_the_second(expires_in_ms: int, minutes: str) -> None:
    text = _as_text({"node_id": "node-3", "code": "482913", "expires_in_ms": expires_in_ms})
    assert text.splitlines() == ["482913", f"For node-3, one client, within {minutes} minutes."]
