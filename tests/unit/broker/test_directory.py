from __future__ import annotations

import pytest

from broker.core.credit import Side
from broker.core.directory import Directory, PeerChange, RemovalReason


def directory() -> Directory:
    return Directory(cells=16, peers_max=2, queue_max=4, queue_bytes_max=1_000, connection_start=0)


def test_peer_that_reconnects_counts_from_another_base() -> None:
    known = directory()
    first = known.add(b"selector:a:1", Side.BACK, 0)
    known.remove(first, RemovalReason.SILENT)
    again = known.add(b"selector:a:1", Side.BACK, 0)
    assert again is not first
    assert again.window.sent != first.window.sent
    assert known.changes == [
        PeerChange("peer_connected", "selector:a:1", ""),
        PeerChange("peer_lost", "selector:a:1", "silent"),
        PeerChange("peer_connected", "selector:a:1", ""),
    ]


def test_refused_peer_is_noted_once_while_it_is_remembered() -> None:
    known = directory()
    for identity in (b"edge:old:1", b"edge:old:1", b"edge:\xff:1", b"edge:third:1", b"edge:old:1"):
        known.refuse(identity, "frame version 1, expected 2")
    assert known.changes == [
        PeerChange("peer_refused", "edge:old:1", "frame version 1, expected 2"),
        PeerChange("peer_refused", "edge:\ufffd:1", "frame version 1, expected 2"),
    ], "as many as peers at most, until the rim has logged them"
    known.changes.clear()
    known.refuse(b"edge:third:1", "")
    known.refuse(b"edge:old:1", "")
    assert not known.changes, "the two that are remembered"
    known.refuse(b"edge:\xff:1", "")
    assert len(known.changes) == 1, "it was evicted"


def test_routes_contain_the_live_selectors_only() -> None:
    known = directory()
    known.add(b"edge:a:1", Side.FRONT, 0)
    assert known.routes.order(1) == []
    selector = known.add(b"selector:a:1", Side.BACK, 0)
    assert known.routes.order(1) == [selector]
    assert known.is_full()
    known.remove(selector, RemovalReason.GOODBYE)
    assert known.routes.order(1) == []
    known.check()


def test_peer_is_listed_as_blocked_until_unblocked_or_removed() -> None:
    known = directory()
    peer = known.add(b"edge:a:1", Side.FRONT, 0)
    known.block(peer)
    known.block(peer)
    assert list(known.blocked.values()) == [peer]
    known.remove(peer, RemovalReason.UNREACHABLE)
    assert not known.blocked
    known.check()


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (lambda known, peer: known.by_name.clear(), "indexes differ"),
        (lambda known, peer: setattr(peer, "blocked", True), "flag and list differ"),
        (lambda known, peer: setattr(peer, "is_known", False), "removed but still listed"),
        (lambda known, peer: setattr(peer.window, "consumed", peer.window.sent + 1), "consumed more"),
    ],
)
def test_check_detects_inconsistent_indexes(break_it, complaint: str) -> None:  # type: ignore[no-untyped-def]
    known = directory()
    peer = known.add(b"selector:a:1", Side.BACK, 0)
    break_it(known, peer)
    with pytest.raises(AssertionError, match=complaint):
        known.check()
