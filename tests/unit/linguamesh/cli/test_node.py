"""`lingua node`: demo nodes from its options."""

from __future__ import annotations

from functools import partial

import pytest

from linguamesh.cli import node as demo
from linguamesh.cli.main import build_parser
from linguamesh.local import demo_pipeline
from mesh.errors import ConfigError


def test_demo_nodes_have_the_speed_region_and_tenant_of_the_options() -> None:
    words = [
        "node",
        "--count",
        "2",
        "--name",
        "d",
        "--speed",
        "240",
        "--region",
        "eu",
        "--gpu-tier",
        "high",
        "--tenant",
        "acme",
    ]
    nodes = demo._nodes(build_parser().parse_args(words))
    assert [node.node_id for node in nodes] == ["d-0", "d-1"]
    register = nodes[0]._profile.register("d-0")
    assert (register.region, register.gpu_tier, register.tenant_id) == ("eu", "high", "acme")
    handler = nodes[0]._jobs._handler
    assert isinstance(handler, partial) and handler.keywords == {"ms_per_s": 240.0}


def test_demo_node_has_the_default_speed() -> None:
    options = build_parser().parse_args(["node"])
    assert options.speed == demo_pipeline.MS_PER_S
    register = demo._nodes(options)[0]._profile.register(None)
    assert (register.region, register.gpu_tier, register.tenant_id) == (None, None, None)


@pytest.mark.parametrize("speed", ["0", "-1", "60001", "nan"])
def test_speed_out_of_range_is_refused(speed: str) -> None:
    with pytest.raises(ConfigError, match="--speed"):
        demo._nodes(build_parser().parse_args(["node", "--speed", speed]))
