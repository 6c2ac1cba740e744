from __future__ import annotations

import random

from mesh.jitter import JITTER, jittered_ms


def test_interval_is_shortened_by_the_draw() -> None:
    assert jittered_ms(1_000, lambda: 0.0) == 1_000
    assert jittered_ms(1_000, lambda: 0.5) == 1_000 - round(1_000 * JITTER / 2)


def test_intervals_differ_within_the_bound() -> None:
    drawn = {jittered_ms(1_000, random.Random(seed).random) for seed in range(100)}
    assert all(1_000 * (1 - JITTER) <= interval <= 1_000 for interval in drawn)
    assert len(drawn) > 50
