from __future__ import annotations

from typing import Any, cast

from prometheus_client import CollectorRegistry

from lua.store.types.deployment import StoredWeights
from mesh.config import Config
from mesh.config.weights import Weights
from mesh.errors import StoreError
from selector.metrics import SelectorMetrics
from selector.placement.weights import CurrentWeights, rules_of


class FakeDeployment:
    """Weights in memory."""

    def __init__(self) -> None:
        self.stored = StoredWeights(0, None, 0, "")
        self.is_down = False

    @property
    def deployment(self) -> FakeDeployment:
        return self

    async def weights(self) -> StoredWeights:
        if self.is_down:
            raise StoreError("down")
        return self.stored

    async def set_weights(self, weights: Weights, expected: int | None, by: str) -> StoredWeights | None:
        if expected not in (None, self.stored.version):
            return None
        self.stored = StoredWeights(self.stored.version + 1, weights, 1, by)
        return self.stored


def current(config: Config | None = None) -> tuple[FakeDeployment, CurrentWeights]:
    store = FakeDeployment()
    return store, CurrentWeights(cast(Any, store), config or Config(), SelectorMetrics(CollectorRegistry()))


async def test_configured_weights_are_in_force_until_redis_has_others() -> None:
    configured = Weights(busy=0.25)
    store, weights = current(Config(weights=configured))
    await weights.refresh()
    assert (weights.version, weights.weights, weights.rules.busy) == (0, configured, 0.25)
    store.stored = StoredWeights(3, Weights(busy=0.75), 1, "operator")
    await weights.refresh()
    assert (weights.version, weights.rules.busy, weights.stored.by) == (3, 0.75, "operator")


async def test_store_error_keeps_the_last_weights_in_force() -> None:
    store, weights = current()
    assert await weights.put(Weights(busy=0.75), 0, "operator") is not None
    store.is_down = True
    await weights.refresh()
    assert (weights.version, weights.weights.busy) == (1, 0.75)


async def test_another_version_in_force_refuses_a_set() -> None:
    _, weights = current()
    assert await weights.put(Weights(busy=0.75), 7, "operator") is None
    assert weights.version == 0


async def test_redis_that_lost_its_weights_returns_to_the_configured_ones() -> None:
    store, weights = current()
    await weights.put(Weights(busy=0.75), None, "operator")
    store.stored = StoredWeights(0, None, 0, "")
    await weights.refresh()
    assert (weights.version, weights.weights) == (0, Weights())


def test_rules_of_a_moment_differ_by_their_time_only() -> None:
    config = Config()
    _, weights = current(config)
    assert weights.rules._replace(now_ms=77) == rules_of(config, config.weights, 77)
