from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.states.speed import RATIO_MAX, Speed, observe, ratio_of

HOUR_MS = 3_600_000


def learned(*ratios: float, every_ms: int = 100) -> Speed:
    speed = None
    for place, ratio in enumerate(ratios):
        speed = observe(speed, ratio, place * every_ms, 8, 60_000)
    assert speed is not None
    return speed


def test_first_job_sets_the_mean() -> None:
    assert observe(None, 0.3, 5, 8) == Speed(0.3, 0.0, 1.0, 5)


def test_mean_and_variance_of_a_few_jobs_are_exact() -> None:
    speed = learned(0.2, 0.4, 0.6, every_ms=0)
    assert speed.mean == pytest.approx(0.4)
    assert speed.variance == pytest.approx(0.08 / 3)
    assert speed.jobs == 3


def test_slow_node_is_learned_within_twenty_jobs() -> None:
    speed = learned(*[0.3] * 50, *[0.9] * 20)
    assert speed.mean == pytest.approx(0.9, rel=0.1)
    assert learned(*[0.3] * 50, *[0.9] * 20, *[0.3] * 20).mean == pytest.approx(0.3, rel=0.25)


def test_old_jobs_weigh_little_after_a_long_pause() -> None:
    slow = learned(*[0.9] * 50)
    assert observe(slow, 0.3, slow.at_ms + HOUR_MS, 8, 60_000).mean == pytest.approx(0.3, rel=0.25)
    assert observe(slow, 0.3, slow.at_ms + 100, 8, 60_000).mean > 0.8


def test_short_audio_counts_as_longer() -> None:
    assert ratio_of(300, 1_000, 500) == 0.3
    assert ratio_of(300, 0, 500) == 0.6
    assert ratio_of(3_600_000, 100, 500) == RATIO_MAX


@given(st.lists(st.tuples(st.floats(0, 1_000), st.integers(-1_000, 10**7)), min_size=1, max_size=50))
def test_mean_stays_within_observed_ratios(seen: list[tuple[float, int]]) -> None:
    speed, now_ms = None, 0
    for ratio, later in seen:
        now_ms += later
        speed = observe(speed, ratio, now_ms, 8, 60_000)
        assert 1 <= speed.jobs <= 8 and speed.variance >= 0
    ratios = [ratio for ratio, _ in seen]
    assert speed is not None and min(ratios) - 1e-6 <= speed.mean <= max(ratios) + 1e-6
