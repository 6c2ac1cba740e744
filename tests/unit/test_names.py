"""Names that lead a reader: one class per name in a process, modules named by nouns, folders of a readable size."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "edge", "linguamesh", "lua", "mesh", "selector", "tools")
#: Process -> the packages that it loads.
PROCESSES = {
    "broker": ("broker", "mesh"),
    "edge": ("edge", "mesh"),
    "selector": ("selector", "lua", "mesh"),
    "linguamesh": ("linguamesh", "mesh"),
}
#: Classes that share a name because they implement the same protocol: process and name -> the protocol.
SAME_PROTOCOL: dict[tuple[str, str], str] = {}

#: Gerunds that are terms of art, as a module's last word.
TERMS_OF_ART = {
    "pairing": "Bluetooth and OAuth call it so: a code binds a session to a node",
    "routing": "the choice of a next hop in a network",
    "streaming": "audio that is sent while it is recorded",
    "hedging": "the tail at scale: a second copy of a late request",
    "endpointing": "speech recognition: where an utterance ends",
}
#: Words that stand for a thing without naming it.
PRONOUN_LIKE = {
    "about", "anything", "away", "common", "ends", "everything", "here", "item", "items", "kept", "misc", "news",
    "other", "others", "rest", "shared", "something", "stuff", "them", "thing", "things", "those", "what", "who",
}  # fmt: skip
#: Words in no name, of a module, class or function.
FORBIDDEN_WORDS = {"util", "utils", "manager", "helper", "helpers", "v2", "phase2"}
#: Names that others fixed: an HTTP path of the protocol is quoted, not chosen.
QUOTED: set[str] = set()

MODULES_MAX = 12
#: Folders that may hold more, and why.
LARGER_FOLDERS: dict[str, str] = {
    "tests/browser": "one test per module of console, and the fixtures of all",
    "tests/loopback/edge": "one test per subject of an edge",
    "tests/loopback/sdk": "one test per subject of the SDK",
    "tests/loopback/selector": "one test per subject of a selector",
    "tests/lua": "one test per family of scripts",
}


def modules(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def words_of(name: str) -> list[str]:
    """The words of a snake_case or CamelCase name, in lower case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")


def defined_names(path: Path) -> Iterator[str]:
    yield path.stem
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


@pytest.mark.parametrize("process", PROCESSES)
def test_no_class_name_is_defined_twice_in_a_process(process: str) -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules(*PROCESSES[process]):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    twice = {name: at for name, at in places.items() if len(at) > 1}
    allowed = {name for of, name in SAME_PROTOCOL if of == process}
    assert {name: at for name, at in twice.items() if name not in allowed} == {}
    assert allowed <= set(twice), "SAME_PROTOCOL lists a name that is defined once"


def test_no_module_is_named_by_a_bare_gerund_or_pronoun() -> None:
    paths = [*modules(*PACKAGES), *modules("tests/support")]
    last_words = {path.relative_to(ROOT): words_of(path.stem)[-1] for path in paths}
    gerunds = [str(path) for path, word in last_words.items() if word.endswith("ing") and word not in TERMS_OF_ART]
    assert gerunds == []
    assert [str(path) for path in last_words if path.stem in PRONOUN_LIKE] == []


@pytest.mark.parametrize("package", (*PACKAGES, "tests", "bench"))
def test_no_name_has_a_word_without_meaning(package: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules(package)
        for name in defined_names(path)
        if FORBIDDEN_WORDS & set(words_of(name)) and name not in QUOTED
    }
    assert found == set()


def test_no_folder_has_too_many_modules() -> None:
    counts: dict[str, int] = defaultdict(int)
    for path in [*modules(*PACKAGES, "tests", "bench"), *(ROOT / "console").rglob("*.js")]:
        counts[str(path.parent.relative_to(ROOT))] += path.name != "__init__.py"
    larger = {folder: count for folder, count in counts.items() if count > MODULES_MAX}
    assert {folder: count for folder, count in larger.items() if folder not in LARGER_FOLDERS} == {}
    assert set(LARGER_FOLDERS) <= set(larger), "LARGER_FOLDERS lists a folder that is not larger"
