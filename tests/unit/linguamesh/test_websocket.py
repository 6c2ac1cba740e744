"""Addresses, and the backoff of reconnects."""

import pytest

from linguamesh.errors import Unreachable
from linguamesh.websocket import RECONNECT_BASE_S, RECONNECT_CAP_S, dial, reconnect_delay_s, with_path


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("ws://127.0.0.1:5010", "ws://127.0.0.1:5010/ws/node"),
        ("wss://mesh.example/", "wss://mesh.example/ws/node"),
        ("ws://127.0.0.1:5010/ws/node", "ws://127.0.0.1:5010/ws/node"),
        ("wss://mesh.example/behind/ws/node?x=1", "wss://mesh.example/behind/ws/node?x=1"),
        ("http://127.0.0.1:5010", "ws://127.0.0.1:5010/ws/node"),
        ("https://mesh.example/behind?x=1", "wss://mesh.example/behind?x=1"),
        ("ftp://mesh.example/x", "ftp://mesh.example/x"),
        ("127.0.0.1:5010", "127.0.0.1:5010"),
    ],
)
def test_path_and_scheme_are_completed(url: str, full: str) -> None:
    assert with_path(url, "/ws/node") == full


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:1/x", "127.0.0.1:5010", "nonsense", "http://[::1", "ws://h:x"])
async def test_invalid_address_names_the_valid_schemes(url: str) -> None:
    with pytest.raises(Unreachable, match="ws:// or wss://"):
        await dial(with_path(url, "/ws/node"))


def test_backoff_has_full_jitter_and_a_cap() -> None:
    first = [reconnect_delay_s(0) for _ in range(200)]
    late = [reconnect_delay_s(5_000) for _ in range(200)]
    assert 0 <= min(first) <= max(first) <= RECONNECT_BASE_S
    assert RECONNECT_CAP_S / 2 < max(late) <= RECONNECT_CAP_S
    assert min(late) < RECONNECT_CAP_S / 2
