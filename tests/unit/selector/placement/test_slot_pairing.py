from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.placement.core.slot_pairing import pair


@pytest.mark.parametrize(
    ("freed", "wanted", "requests", "freed_later", "left"),
    [
        ("", "", [], [], []),
        ("a", "", [None], [0], []),
        ("ab", "ba", [1, 0], [0, 0], []),
        ("ab", "b", [None, 0], [0, 0], []),
        ("aab", "aba", [0, 2, 1], [1, 0, 0], []),
        ("ab", "cc", [0, 1], [0, 0], []),
        ("a", "aac", [0], [0], [1, 2]),
        ("ba", "aa", [1, 0], [0, 0], []),
    ],
)
def test_request_is_in_the_call_that_frees_its_first_choice(
    freed: str, wanted: str, requests: list[int | None], freed_later: list[int], left: list[int]
) -> None:
    assert pair(freed, wanted) == (requests, freed_later, left)


NODES = st.text("abc", max_size=8)


@given(NODES, NODES)
def test_every_request_has_one_call_or_is_left(freed: str, wanted: str) -> None:
    pairing = pair(freed, wanted)
    paired = [request for request in pairing.requests if request is not None]
    assert sorted([*paired, *pairing.left]) == list(range(len(wanted)))
    assert len(pairing.requests) == len(pairing.freed_later) == len(freed)
    assert not pairing.left or None not in pairing.requests, "no call stays empty while a request is left"
    for node in "abc":
        own = sum(
            1
            for place, request in enumerate(pairing.requests)
            if request is not None and freed[place] == wanted[request] == node
        )
        assert own >= min(freed.count(node), wanted.count(node))


@given(NODES, NODES)
def test_slots_in_use_are_as_the_selection_assumed_when_its_call_runs(freed: str, wanted: str) -> None:
    """The selection counts all slots of the batch as free; those of later calls are not yet."""
    pairing = pair(freed, wanted)
    used = {node: freed.count(node) for node in "abc"}
    assumed = dict.fromkeys("abc", 0)
    for place, node in enumerate(freed):
        used[node] -= 1
        request = pairing.requests[place]
        if request is not None and wanted[request] == node:
            assert used[node] == assumed[node] + pairing.freed_later[place]
            used[node] += 1
            assumed[node] += 1
