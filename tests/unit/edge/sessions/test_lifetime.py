"""What the passing of time does to a session."""

from __future__ import annotations

from edge.sessions.core.lifetime import Lifetime, LifetimeLimits

LIMITS = LifetimeLimits(idle_ms=60, resume_ms=100, renew_ms=1_000)


def test_idle_is_told_once_until_the_client_speaks_again() -> None:
    lifetime = Lifetime(LIMITS, 0)
    assert lifetime.due_ms(True) == 60 and lifetime.idle_for_ms(59) == 0
    assert lifetime.idle_for_ms(75) == 75 and lifetime.idle_for_ms(200) == 0
    assert lifetime.due_ms(True) == 1_000
    lifetime.heard_ms = 300
    assert lifetime.due_ms(True) == 360 and lifetime.idle_for_ms(360) == 60


def test_client_that_is_away_is_not_idle_but_awaited() -> None:
    lifetime = Lifetime(LIMITS, 0)
    lifetime.detached(10)
    assert (lifetime.due_ms(False), lifetime.detached_until_ms) == (110, 110)
    lifetime.attached(90)
    assert (lifetime.due_ms(True), lifetime.detached_until_ms) == (150, 0)


def test_record_is_renewed_in_time() -> None:
    lifetime = Lifetime(LIMITS, 0)
    assert lifetime.due_ms(False) == 1_000
    lifetime.renewed(1_000)
    assert lifetime.due_ms(False) == 2_000


def test_closing_has_one_end_however_often_it_is_said() -> None:
    lifetime = Lifetime(LIMITS, 0)
    assert lifetime.closing(50, 5) and not lifetime.closing(50, 40)
    assert lifetime.due_ms(False) == lifetime.closing_until_ms == 55
