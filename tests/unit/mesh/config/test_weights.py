from __future__ import annotations

import msgspec
import pytest

from mesh.config.weights import Weights


@pytest.mark.parametrize(
    "tree", [{"bussy": 1.0}, {"busy": -0.1}, {"load_ms": -1}, {"optimism_jobs": 0}, {"strategy": "random"}]
)
def test_unknown_or_unbounded_weight_is_refused(tree: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(tree, Weights)


def test_saving_may_be_negative() -> None:
    assert msgspec.convert({"warm_ms": -20}, Weights).warm_ms == -20


def test_paired_node_outweighs_every_other_cost_together() -> None:
    weights = Weights()
    others = weights.busy_ms + weights.load_ms + weights.region_ms + weights.tier_ms + weights.detached_ms
    assert weights.paired_ms > others
