from __future__ import annotations

from selector.fleet.core.liveness import HEARD_MAX, LivenessDetector

TTL = 6_000
A, B = "edge:a:1", "edge:b:1"


def looking(*present: str, until_ms: int) -> LivenessDetector:
    """Presence was read from 0 on, every two seconds."""
    living = LivenessDetector(TTL)
    for now_ms in range(0, until_ms + 1, 2_000):
        living.looked(present, now_ms)
    return living


def test_everyone_lives_until_presence_was_read_for_as_long_as_it_lasts() -> None:
    living = LivenessDetector(TTL)
    assert living.lives(A, 0)
    living.looked([], 0)
    living.looked([], 2_000)
    assert living.lives(A, TTL - 1)
    living.looked([], 4_000)
    assert not living.lives(A, TTL)


def test_who_is_present_lives_and_others_do_not() -> None:
    living = looking(A, until_ms=10_000)
    assert living.lives(A, 10_000) and not living.lives(B, 10_000)
    living.looked([B], 12_000)
    assert living.lives(B, 12_000) and not living.lives(A, 12_000)


def test_who_speaks_to_us_lives_for_as_long_as_a_presence_lasts() -> None:
    living = looking(until_ms=10_000)
    living.heard(A, 10_500)
    assert living.lives(A, 10_500)
    living.looked([], 12_000)
    living.looked([], 14_000)
    living.looked([], 16_000)
    assert living.lives(A, 10_499 + TTL) and not living.lives(A, 10_500 + TTL)


def test_when_redis_fails_everyone_lives_until_all_could_say_so_again() -> None:
    living = looking(until_ms=10_000)
    living.look_failed()
    assert living.lives(A, 10_000)
    for now_ms in (30_000, 32_000, 34_000):
        living.looked([], now_ms)
        assert living.lives(A, now_ms)
    living.looked([], 36_000)
    assert not living.lives(A, 36_000)


def test_an_old_look_proves_nothing() -> None:
    living = looking(until_ms=10_000)
    assert not living.lives(A, 10_000 + TTL - 1)
    assert living.lives(A, 10_000 + TTL)


def test_what_is_remembered_of_strangers_is_bounded() -> None:
    living = looking(until_ms=10_000)
    for number in range(HEARD_MAX + 1):
        living.heard(f"edge:{number}", 10_000)
    assert living.lives(f"edge:{HEARD_MAX - 1}", 10_001)
    assert not living.lives(f"edge:{HEARD_MAX}", 10_001)
