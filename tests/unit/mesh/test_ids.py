from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh import ids, random_ids


@pytest.mark.parametrize("good", ["a", "s-1A2B", "node-00", "a.b:c_d-e", "x" * 64])
def test_good_ids(good: str) -> None:
    assert ids.is_id(good)


@pytest.mark.parametrize("bad", ["", "x" * 65, "a{b}", "a b", "a\n", "é", "a/b", "*", "a\x00", "\ud800"])
def test_bad_ids(bad: str) -> None:
    assert not ids.is_id(bad)


@given(st.text(max_size=80))
def test_no_accepted_id_can_move_its_slot_or_leave_its_key(text: str) -> None:
    if ids.is_id(text):
        assert not set(text) & set("{}*?[]\\ \r\n")
        assert len(text.encode()) <= 64


@pytest.mark.parametrize(
    ("make", "form"),
    [
        (random_ids.new_session_id, r"s-[0-9A-F]{20}"),
        (random_ids.new_node_id, r"node-[0-9A-F]{16}"),
        (random_ids.new_job_unique, r"[0-9a-f]{32}"),
        (random_ids.new_trace_id, r"[0-9a-f]{32}"),
        (random_ids.new_room_id, r"room-[0-9a-f]{32}"),
        (lambda: random_ids.new_peer_identity("edge", "a"), r"edge:a:[0-9a-f]{8}"),
    ],
)
def test_new_ids_have_their_form_and_never_repeat(make: object, form: str) -> None:
    assert callable(make)
    made = {make() for _ in range(200)}
    assert len(made) == 200
    for one in made:
        assert re.fullmatch(form, one)
        assert ids.is_id(one)


def test_codes_are_six_digits_of_which_the_first_is_not_zero() -> None:
    codes = [random_ids.new_code() for _ in range(1_000)]
    assert all(re.fullmatch(r"[1-9][0-9]{5}", code) and ids.is_code(code) for code in codes)
    assert len(set(codes)) > 900


@pytest.mark.parametrize("bad", ["", "12345", "1234567", "12345a", "12345\n", " 12345", "１２３４５６", "-12345"])
def test_what_is_no_code(bad: str) -> None:
    assert not ids.is_code(bad)
