"""Backoff: doubling, its bound, and the cap of early retries."""

from __future__ import annotations

from edge.core.backoff import EARLY_RETRIES, backoff_ms, retry_wait_ms


def test_backoff_doubles_up_to_its_bound() -> None:
    assert [backoff_ms(400, retries, 5_000) for retries in range(6)] == [400, 800, 1_600, 3_200, 5_000, 5_000]
    assert backoff_ms(400, 10**9, 5_000) == 5_000


def test_early_retries_are_capped_until_a_dead_peer_is_detected() -> None:
    waits = [retry_wait_ms(400, retries, 1_500, 5_000) for retries in range(8)]
    assert waits == [400, 800, 1_500, 1_500, 1_500, 1_500, 5_000, 5_000]
    dead_ms = 3_000
    assert sum(waits[:EARLY_RETRIES]) >= 2 * dead_ms
    assert retry_wait_ms(400, 2, 1_500, 1_000) == 1_000
