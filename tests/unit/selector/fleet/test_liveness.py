from __future__ import annotations

from selector.fleet.core.liveness import SENDERS_MAX, LivenessDetector

TTL = 6_000
A, B = "edge:a:1", "edge:b:1"


def looking(*present: str, until_ms: int) -> LivenessDetector:
    """Presence was read from 0 on, every two seconds."""
    living = LivenessDetector(TTL)
    for now_ms in range(0, until_ms + 1, 2_000):
        living.on_presence(present, now_ms)
    return living


def test_everyone_lives_until_presence_was_read_for_as_long_as_it_lasts() -> None:
    living = LivenessDetector(TTL)
    assert living.is_live(A, 0)
    living.on_presence([], 0)
    living.on_presence([], 2_000)
    assert living.is_live(A, TTL - 1)
    living.on_presence([], 4_000)
    assert not living.is_live(A, TTL)


def test_who_is_present_lives_and_others_do_not() -> None:
    living = looking(A, until_ms=10_000)
    assert living.is_live(A, 10_000) and not living.is_live(B, 10_000)
    living.on_presence([B], 12_000)
    assert living.is_live(B, 12_000) and not living.is_live(A, 12_000)


def test_who_speaks_to_us_lives_for_as_long_as_a_presence_lasts() -> None:
    living = looking(until_ms=10_000)
    living.on_frame(A, 10_500)
    assert living.is_live(A, 10_500)
    living.on_presence([], 12_000)
    living.on_presence([], 14_000)
    living.on_presence([], 16_000)
    assert living.is_live(A, 10_499 + TTL) and not living.is_live(A, 10_500 + TTL)


def test_when_redis_fails_everyone_lives_until_all_could_say_so_again() -> None:
    living = looking(until_ms=10_000)
    living.on_read_failed()
    assert living.is_live(A, 10_000)
    for now_ms in (30_000, 32_000, 34_000):
        living.on_presence([], now_ms)
        assert living.is_live(A, now_ms)
    living.on_presence([], 36_000)
    assert not living.is_live(A, 36_000)


def test_an_old_look_proves_nothing() -> None:
    living = looking(until_ms=10_000)
    assert not living.is_live(A, 10_000 + TTL - 1)
    assert living.is_live(A, 10_000 + TTL)


def test_what_is_remembered_of_strangers_is_bounded() -> None:
    living = looking(until_ms=10_000)
    for number in range(SENDERS_MAX + 1):
        living.on_frame(f"edge:{number}", 10_000)
    assert living.is_live(f"edge:{SENDERS_MAX - 1}", 10_001)
    assert not living.is_live(f"edge:{SENDERS_MAX}", 10_001)
