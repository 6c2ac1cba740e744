from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh import ids


@pytest.mark.parametrize("good", ["a", "s-1A2B", "node-00", "a.b:c_d-e", "x" * 64])
def test_valid_ids(good: str) -> None:
    assert ids.is_id(good)


@pytest.mark.parametrize("bad", ["", "x" * 65, "a{b}", "a b", "a\n", "é", "a/b", "*", "a\x00", "\ud800"])
def test_invalid_ids(bad: str) -> None:
    assert not ids.is_id(bad)


@given(st.text(max_size=80))
def test_no_accepted_id_can_move_its_slot_or_leave_its_key(text: str) -> None:
    if ids.is_id(text):
        assert not set(text) & set("{}*?[]\\ \r\n")
        assert len(text.encode()) <= 64


@pytest.mark.parametrize("bad", ["", "12345", "1234567", "12345a", "12345\n", " 12345", "１２３４５６", "-12345"])
def test_invalid_codes(bad: str) -> None:
    assert not ids.is_code(bad)
