from __future__ import annotations

from mesh.clock import now_ms, wall_ms, wall_us


def test_monotonic_clock_never_goes_back() -> None:
    times = [now_ms() for _ in range(1_000)]
    assert times == sorted(times)


def test_wall_clocks_differ_in_their_unit_only() -> None:
    before_ms, between_us, after_ms = wall_ms(), wall_us(), wall_ms()
    assert before_ms <= between_us // 1_000 <= after_ms
