"""The restart backoff of a supervised process; real processes are in tests/loopback."""

from __future__ import annotations

from linguamesh.local.process import RESTART_BASE_S, RESTART_CAP_S, restart_delay_s


def test_restart_backoff_doubles_up_to_the_cap() -> None:
    delays = [restart_delay_s(crashes) for crashes in range(1, 9)]
    assert delays[:3] == [RESTART_BASE_S, 2 * RESTART_BASE_S, 4 * RESTART_BASE_S]
    assert delays == sorted(delays) and delays[-1] == RESTART_CAP_S
