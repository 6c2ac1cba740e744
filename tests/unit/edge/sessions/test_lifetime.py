"""What the passing of time does to a session."""

from __future__ import annotations

from edge.sessions.core.lifetime import Lifetime, LifetimeLimits

LIMITS = LifetimeLimits(idle_ms=60, resume_ms=100, renew_ms=1_000)


def test_idle_is_told_once_until_the_client_speaks_again() -> None:
    life = Lifetime(LIMITS, 0)
    assert life.due_ms(True) == 60 and life.idle_for_ms(59) == 0
    assert life.idle_for_ms(75) == 75 and life.idle_for_ms(200) == 0
    assert life.due_ms(True) == 1_000
    life.received(300)
    assert life.due_ms(True) == 360 and life.idle_for_ms(360) == 60


def test_client_that_is_away_is_not_idle_but_awaited() -> None:
    life = Lifetime(LIMITS, 0)
    life.detached(10)
    assert (life.due_ms(False), life.detached_until_ms) == (110, 110)
    life.attached(90)
    assert (life.due_ms(True), life.detached_until_ms) == (150, 0)


def test_record_is_renewed_in_time() -> None:
    life = Lifetime(LIMITS, 0)
    assert life.due_ms(False) == 1_000
    life.renewed(1_000)
    assert life.due_ms(False) == 2_000


def test_closing_has_one_end_however_often_it_is_said() -> None:
    life = Lifetime(LIMITS, 0)
    assert life.closing(50, 5) and not life.closing(50, 40)
    assert life.due_ms(False) == life.closing_until_ms == 55
