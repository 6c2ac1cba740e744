"""The glossary: terms in alphabetical order, each once, each with an existing module that implements it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import pytest

from tests.unit.docs.test_paths import ROOT, exists

TERMS_MIN: Final = 40


class Entry(NamedTuple):
    term: str
    meaning: str
    modules: list[str]


def entries() -> list[Entry]:
    rows = re.findall(r"^\| (?!term )([^|]+) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs/glossary.md").read_text(), re.M)
    return [Entry(term, meaning, re.findall(r"`([^`]+)`", modules)) for term, meaning, modules in rows]


def test_there_are_about_forty_terms_each_once_in_order() -> None:
    terms = [entry.term for entry in entries()]
    assert len(terms) >= TERMS_MIN
    assert terms == sorted(set(terms))


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.term)
def test_each_term_has_a_short_meaning_and_an_existing_module(entry: Entry) -> None:
    assert 1 <= len(re.findall(r"[.!?](?= |$)", entry.meaning)) <= 3
    assert entry.modules
    assert [module for module in entry.modules if not exists(module)] == []


def test_contributors_are_sent_to_the_glossary() -> None:
    assert "docs/glossary.md" in (ROOT / "CONTRIBUTING.md").read_text()
