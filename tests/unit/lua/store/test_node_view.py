from __future__ import annotations

import pytest

from lua.store.node_view import REASON_MAX, pack_caps, pack_load, quote_reason, unpack_view, unquote_reason
from lua.store.types.nodes import NodeFacts
from mesh.frames import NodeCaps, NodeLoad


def test_a_view_survives_packing() -> None:
    caps = NodeCaps("1", "linux", 8, 16.5, 1, 8.0, ["asr"], [], ["en"], ["es", "zh"], [], True, 4, "eu", "a", "t")
    load = NodeLoad(12.5, 0.0, 32.0, 3)
    now = f"1794800272565 draining edge:a:0001 0 1794800300000 {quote_reason('a new disk, 50 %')}".encode()
    view = unpack_view(pack_caps(caps), now, pack_load(load), b"p1,p2")
    assert view == NodeFacts(
        "edge:a:0001", 1794800272565, "draining", caps, load, "p1,p2", 0, 1794800300000, "a new disk, 50 %"
    )


def test_a_view_without_a_reason() -> None:
    caps = NodeCaps("1", "linux", 8, 16.5, 1, 8.0, [], [], [], [], [], True, 4)
    assert unpack_view(pack_caps(caps), b"1 ready e 0 0 ", pack_load(NodeLoad()), b"").reason == ""


@pytest.mark.parametrize("reason", ["", "closed", "two words", "line\nbreak", "原因", "100 %"])
def test_a_reason_is_one_word_in_redis_and_itself_again_after(reason: str) -> None:
    assert not set(quote_reason(reason)) & set(" \n\t")
    assert unquote_reason(quote_reason(reason)) == reason


def test_a_reason_is_bounded() -> None:
    assert unquote_reason(quote_reason("x" * 1_000)) == "x" * REASON_MAX
