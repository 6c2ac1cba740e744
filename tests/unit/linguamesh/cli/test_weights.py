"""`lingua weights`: the TOML that `show` prints and `set` reads."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from linguamesh.cli.weights import as_toml, read_weights
from mesh.config.weights import Weights
from mesh.errors import ConfigError


def test_output_of_show_can_be_set(tmp_path: Path) -> None:
    changed = Weights(strategy="least_connections", busy_ms=1.5, warm_ms=-3.0)
    file = tmp_path / "weights.toml"
    file.write_text(as_toml({"version": 1, "weights": msgspec.to_builtins(changed)}))
    assert read_weights(file) == changed


def test_table_and_missing_weights_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "weights.toml"
    file.write_text("[weights]\nwarm_ms = 75\n")
    assert read_weights(file) == Weights(warm_ms=75.0)


def test_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        read_weights(tmp_path / "absent.toml")
