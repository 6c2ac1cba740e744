from __future__ import annotations

import re

import pytest

from mesh import ids, random_ids


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
def test_new_ids_have_their_form_and_are_unique(make: object, form: str) -> None:
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
