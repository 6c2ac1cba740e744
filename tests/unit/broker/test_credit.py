from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.credit import Peer, Side, Window
from broker.core.queues import LaneQueues


def opened(size: int = 5, connection: int = 3) -> Peer:
    peer = Peer(b"selector:a:1", Side.BACK, queues=LaneQueues(4, 1_000), connection=connection, now_ms=0)
    peer.window.size = size
    peer.window.on_consumed(peer.window.sent)
    return peer


def test_window_is_closed_until_the_peer_replies_in_its_counters() -> None:
    peer = Peer(b"selector:a:1", Side.BACK, queues=LaneQueues(4, 1_000), connection=3, now_ms=0)
    peer.window.size = 5
    peer.window.on_consumed(0)
    assert peer.credit() == 0
    peer.window.on_consumed(peer.window.sent)
    assert peer.credit() == 5


def test_credit_is_window_minus_outstanding() -> None:
    peer = opened(5)
    peer.window.sent += 3
    assert (peer.credit(), peer.window.outstanding()) == (2, 3)
    peer.window.on_consumed(peer.window.sent - 1)
    assert (peer.credit(), peer.window.outstanding()) == (4, 1)


def test_no_credit_when_the_window_shrinks_below_outstanding() -> None:
    peer = opened(5)
    peer.window.sent += 4
    peer.window.size = 1
    assert peer.credit() < 0


@pytest.mark.parametrize("distance", [1, -(1 << 32), -(1 << 31), 1 << 32, 5 << 32])
def test_counters_of_another_connection_or_of_the_future_are_ignored(distance: int) -> None:
    window = Window(7)
    window.on_consumed(window.sent + distance)
    assert not window.is_open
    assert window.outstanding() == 0


@given(st.integers(1, 1 << 30), st.lists(st.integers(-(1 << 62), 1 << 62)))
def test_outstanding_is_never_negative_for_any_reported_counter(connection: int, consumed: list[int]) -> None:
    window = Window(connection)
    window.sent += 10
    for value in consumed:
        window.on_consumed(value)
        assert window.outstanding() >= 0
