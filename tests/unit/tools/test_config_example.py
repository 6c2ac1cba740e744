from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest
from msgspec.inspect import StructType, type_info

from mesh import config
from mesh.config.base import Count, Ms, Section
from tools.config_example import WIDTH, UnexplainedError, example, section

PATH = Path(__file__).parents[3] / "config.example.toml"


class OneUnexplained(Section, frozen=True):
    """A section."""

    #: Covers the first setting only.
    first_ms: Ms = 1
    second_ms: Ms = 2


class Entry(Section, frozen=True):
    """An entry of a list."""

    #: Name of the entry.
    name: str
    size: Count = 1


class UnexplainedEntry(Section, frozen=True):
    """A section with a list."""

    #: All entries.
    entries: tuple[Entry, ...] = ()


def explanations() -> dict[str, str]:
    """`section.key` -> the comment above it, in one line."""
    found: dict[str, str] = {}
    section_name, above = "", ""
    for line in example().splitlines():
        if line.startswith("#"):
            above += line.removeprefix("#").removeprefix(" ") + " "
            continue
        if line.startswith("["):
            section_name = line.strip("[]") if not above or "." not in line else section_name
        elif line:
            found[f"{section_name}.{line.partition(' = ')[0]}"] = above.strip()
        above = ""
    return found


def test_example_file_matches_settings() -> None:
    assert PATH.read_text(encoding="utf-8") == example(), "run: python -m tools.config_example > config.example.toml"


def test_example_lists_every_setting_with_its_default() -> None:
    assert tomllib.loads(example()) == msgspec.to_builtins(config.Config())


def test_example_loads_as_it_is() -> None:
    assert config.load(str(PATH), {}) == config.Config()


def test_example_shows_explanation_unit_and_bounds() -> None:
    text = explanations()
    assert text["link.dead_ms"] == (
        "Failure detection timeout: a peer without a beat for this long counts as dead, and senders fail over to"
        " another. [milliseconds, 1 to 86400000]"
    )
    assert text["weights.stale_ms_per_s"].endswith("[milliseconds per second, 0 to 600000]")
    assert text["weights.speed_half_life_s"].endswith("[seconds, 1 to 86400]")
    assert text["log.level"].endswith("[one of debug, info, warning, error]")


def test_example_explains_every_setting_by_itself() -> None:
    text = explanations()
    for name, hint in get_type_hints(config.Config).items():
        shape = type_info(hint)
        assert isinstance(shape, StructType)
        for field in shape.fields:
            if name != "modules":  # one table, whose entries are tables of their own
                sentence = text[f"{name}.{field.name}"]
                assert re.match(r"[A-Z].*\.( |$)", sentence), f"{name}.{field.name}: {sentence!r}"
                assert not re.match("The same|Of these|Also|And ", sentence), f"{name}.{field.name} leans on another"


def test_example_explains_fields_of_entries() -> None:
    lines = example().splitlines()
    assert "#   pool_id: Number of the pool, unique. [0 to 65535]" in lines
    assert "#   services: Service types that the node must have." in lines


def test_comment_lines_fit_the_page() -> None:
    assert max(len(line) for line in example().splitlines() if line.startswith("#")) <= WIDTH


@pytest.mark.parametrize(
    ("cls", "named"), [(OneUnexplained, "x.second_ms"), (UnexplainedEntry, "x.entries.size")], ids=["field", "entry"]
)
def test_setting_without_its_own_explanation_is_an_error(cls: type, named: str) -> None:
    with pytest.raises(UnexplainedError, match=re.escape(named)):
        section("x", type_info(cls))
