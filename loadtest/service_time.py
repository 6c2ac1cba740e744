"""How long a simulated node takes for a job: constant, exponential or lognormal, from a seeded generator."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

#: Bound on one service time, so that the tail of a distribution cannot outlast a run.
SERVICE_S_MAX: Final = 10.0
_DEFAULT_SIGMA: Final = 0.5


class Distribution(StrEnum):
    """The word before the first colon of --service-time."""

    CONSTANT = "constant"
    EXPONENTIAL = "exponential"
    LOGNORMAL = "lognormal"


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """A distribution with that mean; `sigma` is the lognormal's shape."""

    distribution: Distribution
    mean_s: float
    sigma: float = 0.0

    @classmethod
    def parse(cls, text: str) -> ServiceTime:
        """`constant:50`, `exponential:50` or `lognormal:50:0.5`, the mean in ms; ValueError for anything else."""
        name, *numbers = text.split(":")
        if not 1 <= len(numbers) <= 2:
            raise ValueError(f"{text!r} is not DISTRIBUTION:MEAN_MS or lognormal:MEAN_MS:SIGMA")
        distribution, mean_ms = Distribution(name), float(numbers[0])
        if len(numbers) == 2 and distribution is not Distribution.LOGNORMAL:
            raise ValueError(f"{text!r}: only lognormal has a sigma")
        if not 0 <= mean_ms <= SERVICE_S_MAX * 1_000:
            raise ValueError(f"{text!r}: the mean is 0 to {SERVICE_S_MAX * 1_000:g} ms")
        sigma = float(numbers[1]) if len(numbers) == 2 else _DEFAULT_SIGMA
        return cls(distribution, mean_ms / 1_000, sigma if distribution is Distribution.LOGNORMAL else 0.0)

    def sample_s(self, generator: random.Random) -> float:
        """One service time in seconds, at most SERVICE_S_MAX."""
        return min(SERVICE_S_MAX, self._draw_s(generator))

    def _draw_s(self, generator: random.Random) -> float:
        if self.distribution is Distribution.CONSTANT or self.mean_s == 0:
            return self.mean_s
        if self.distribution is Distribution.EXPONENTIAL:
            return generator.expovariate(1 / self.mean_s)
        # The mean of a lognormal is exp(mu + sigma^2 / 2).
        return generator.lognormvariate(math.log(self.mean_s) - self.sigma**2 / 2, self.sigma)
