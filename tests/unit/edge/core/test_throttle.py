from __future__ import annotations

from edge.core.throttle import ReadThrottle


def test_few_complaints_cost_nothing() -> None:
    patience = ReadThrottle(50)
    assert all(patience.wait_ms(1_000_000 + number * 20) == 0.0 for number in range(1_000))


def test_a_second_s_worth_may_come_at_once_and_no_more() -> None:
    patience = ReadThrottle(50)
    assert [patience.wait_ms(7) for _ in range(52)] == [0.0] * 50 + [20.0, 40.0]


def test_whoever_rests_as_told_is_read_at_that_pace() -> None:
    patience, now, read = ReadThrottle(50), 0.0, 0
    while now < 10_000:
        now += patience.wait_ms(int(now)) + 1
        read += 1
    assert 500 <= read <= 560


def test_rest_is_forgotten_in_time() -> None:
    patience = ReadThrottle(50)
    for _ in range(100):
        patience.wait_ms(0)
    assert patience.wait_ms(3_000) == 0.0
