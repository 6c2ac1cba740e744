"""Token-bucket throttle: rate, burst and recovery."""

from __future__ import annotations

from edge.core.throttle import ReadThrottle


def test_messages_within_the_rate_are_not_delayed() -> None:
    throttle = ReadThrottle(50)
    assert all(throttle.wait_ms(1_000_000 + number * 20) == 0.0 for number in range(1_000))


def test_burst_of_one_second_is_not_delayed_and_the_next_message_is() -> None:
    throttle = ReadThrottle(50)
    assert [throttle.wait_ms(7) for _ in range(52)] == [0.0] * 50 + [20.0, 40.0]


def test_peer_that_is_delayed_is_read_at_the_permitted_rate() -> None:
    throttle, now, read = ReadThrottle(50), 0.0, 0
    while now < 10_000:
        now += throttle.wait_ms(int(now)) + 1
        read += 1
    assert 500 <= read <= 560


def test_bucket_refills_with_time() -> None:
    throttle = ReadThrottle(50)
    for _ in range(100):
        throttle.wait_ms(0)
    assert throttle.wait_ms(3_000) == 0.0
