from __future__ import annotations

import math

import pytest

from mesh.frames import NodeCaps, NodeLoad
from selector.fleet.core.node_health import is_healthy
from tests.support.builders.selector import caps

PERCENT_OK = NodeLoad(gpu_percent=100.0)


@pytest.mark.parametrize(
    ("its_caps", "while_registering", "later"),
    [
        (caps(), True, True),
        (caps(gpu_count=0), False, False),
        (caps(services_installed=["asr"], services_ready=["asr"]), True, True),
        (caps(services_installed=["ASR", "tone"], services_ready=["Asr"]), True, True),  # extras hold nobody back
        (caps(services_ready=["asr", "nmt"]), False, True),
        (caps(services_ready=[]), False, False),
        (caps(services_installed=[], services_ready=[]), False, False),
        (caps(services_installed=["tone"], services_ready=["tone"]), False, True),
    ],
)
def test_a_node_begins_whole_and_goes_on_with_what_it_has(
    its_caps: NodeCaps, while_registering: bool, later: bool
) -> None:
    assert is_healthy(its_caps, PERCENT_OK, registering=True) is while_registering
    assert is_healthy(its_caps, PERCENT_OK, registering=False) is later


@pytest.mark.parametrize("percent", [-0.1, 100.1, math.nan, math.inf])
def test_a_gpu_load_that_cannot_be_is_no_health(percent: float) -> None:
    assert not is_healthy(caps(), NodeLoad(gpu_percent=percent), registering=True)
    assert not is_healthy(caps(), NodeLoad(gpu_percent=percent), registering=False)
