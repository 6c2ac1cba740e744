"""The shape of the documents: lines that fit, records of one page, recipes of three lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.unit.docs.test_paths import DOCUMENTS, ROOT

LINE_MAX: Final = 160
RECORD_WORDS_MAX: Final = 470
#: Documents that are not wrapped yet.
LONG_LINES: Final = frozenset({"keys.md"})
RECIPES: Final = 12
RECORDS: Final = sorted(ROOT.glob("docs/adr/*.md"))


@pytest.mark.parametrize(
    "document",
    [path for path in [*DOCUMENTS, ROOT / "CHANGELOG.md"] if path.name not in LONG_LINES],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_line_is_too_long_except_in_tables(document: Path) -> None:
    lines = document.read_text().splitlines()
    assert [line for line in lines if len(line) > LINE_MAX and not line.startswith("|")] == []


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_a_decision_record_is_one_page_with_its_three_parts(record: Path) -> None:
    text = record.read_text()
    assert len(text.split()) <= RECORD_WORDS_MAX
    assert text.startswith(f"# {record.name[:4]}: ")
    assert [part for part in ("**Context.**", "**Decision", "**Consequences.**") if part not in text] == []


def test_decision_records_are_numbered_without_gaps() -> None:
    assert [int(record.name[:4]) for record in RECORDS] == list(range(1, len(RECORDS) + 1))


def test_every_change_has_a_recipe_of_three_lines() -> None:
    recipes = re.findall(r"^## (\d+)\. .+\n\n((?:- .+\n(?:  .+\n)*)+)", (ROOT / "docs/changing.md").read_text(), re.M)
    assert [int(number) for number, _ in recipes] == list(range(1, RECIPES + 1))
    for number, recipe in recipes:
        heads = re.findall(r"^- \*\*(\w+)", recipe, re.M)
        assert heads == ["Touch", "Caught", "Run"], number
