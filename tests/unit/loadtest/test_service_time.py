"""Service times: parsed, bounded, and the same for the same seed."""

from __future__ import annotations

import random
import statistics

import pytest

from loadtest.service_time import SERVICE_S_MAX, Distribution, ServiceTime


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("constant:50", ServiceTime(Distribution.CONSTANT, 0.05)),
        ("exponential:0", ServiceTime(Distribution.EXPONENTIAL, 0.0)),
        ("lognormal:40", ServiceTime(Distribution.LOGNORMAL, 0.04, 0.5)),
        ("lognormal:40:0.8", ServiceTime(Distribution.LOGNORMAL, 0.04, 0.8)),
    ],
)
def test_a_service_time_is_parsed(text: str, expected: ServiceTime) -> None:
    assert ServiceTime.parse(text) == expected


@pytest.mark.parametrize("text", ["", "50", "normal:50", "constant", "constant:x", "constant:50:1", "constant:-1"])
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        ServiceTime.parse(text)


@pytest.mark.parametrize("text", ["constant:50", "exponential:50", "lognormal:50:0.5"])
def test_samples_have_the_mean_and_follow_from_the_seed(text: str) -> None:
    service_time = ServiceTime.parse(text)
    first, second = ([service_time.sample_s(g) for _ in range(20_000)] for g in (random.Random(1), random.Random(1)))
    assert first == second
    assert statistics.mean(first) == pytest.approx(0.05, rel=0.05)


def test_a_tail_is_bounded() -> None:
    service_time = ServiceTime.parse("lognormal:10000:3")
    generator = random.Random(2)
    assert max(service_time.sample_s(generator) for _ in range(10_000)) == SERVICE_S_MAX
