from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from mesh import config
from tools.config_example import example

PATH = Path(__file__).parents[3] / "config.example.toml"


def test_the_file_is_what_the_settings_say() -> None:
    assert PATH.read_text(encoding="utf-8") == example(), "run: python -m tools.config_example > config.example.toml"


def test_it_names_every_setting_with_its_default() -> None:
    assert tomllib.loads(example()) == msgspec.to_builtins(config.Config())


def test_it_can_be_loaded_as_it_is() -> None:
    assert config.load(str(PATH), {}) == config.Config()


def test_units_bounds_and_comments_are_shown() -> None:
    lines = example().splitlines()
    above = lines[lines.index("dead_ms = 3000") - 1]
    assert above == "# Silence after which a peer counts as gone. [milliseconds, 1 to 86400000]"
