"""Options and commands of a local stack; its processes are in tests/e2e."""

from __future__ import annotations

from pathlib import Path

import pytest

from linguamesh.local.paths import StateDirectory
from linguamesh.local.stack import Stack, StackOptions
from mesh.errors import ConfigError


@pytest.mark.parametrize("wrong", [{"edges": 0}, {"brokers": 65}, {"nodes": -1}, {"port": 70_000}])
def test_option_out_of_range_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="--" + next(iter(wrong))):
        StackOptions(**wrong).check()


def test_environment_gives_each_broker_its_sockets(tmp_path: Path) -> None:
    with StateDirectory(str(tmp_path)) as directory:
        environment = Stack(StackOptions(brokers=2))._environment(directory, 5010)
    assert environment["LINGUA_EDGE_PORT"] == "5010"
    frontends = environment["LINGUA_LINK_FRONTENDS"].split(",")
    assert len(set(frontends)) == 2 and not set(frontends) & set(environment["LINGUA_LINK_BACKENDS"].split(","))


def test_only_brokers_get_an_index(tmp_path: Path) -> None:
    stack = Stack(StackOptions())
    with StateDirectory(str(tmp_path)) as directory:
        brokers = stack._processes_of("broker", 2, directory, {})
        (edge,) = stack._processes_of("edge", 1, directory, {})
    assert [process.name for process in brokers] == ["broker-0", "broker-1"]
    assert brokers[1].spec.command[-2:] == ["--index", "1"]
    assert "--index" not in edge.spec.command and "--die-with-parent" in edge.spec.command
