"""Paths in the documents: every file and folder that one names exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
DOCUMENTS: Final = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/adr/*.md"),
    ]
)

_FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`([^`\n]+)`")
_LINK: Final = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_FILE: Final = re.compile(r"[\w.-]+(?:/[\w.-]+)*\.(?:css|html|js|lua|md|py|txt)")
_NAMED: Final = re.compile(r"`([\w./-]+\.(?:js|lua|py)):([\w.]+)`")
_TESTS: Final = re.compile(r"(?<=[\s\"])tests/[\w./-]+")
_FOLDER: Final = re.compile(r"(?:[\w.-]+/)+")


def source_files() -> frozenset[str]:
    """Files of the project, without caches and hidden folders."""
    tops = [path for path in ROOT.iterdir() if not path.name.startswith(".")]
    paths = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top]) if path.is_file()]
    return frozenset(str(path.relative_to(ROOT)) for path in paths if "__pycache__" not in path.parts)


FILES: Final = source_files()
FOLDERS: Final = frozenset(str(folder) for name in FILES for folder in Path(name).parents)


def paths_in(text: str) -> set[str]:
    """Files and folders in code spans; `path:function` counts as its path, a command has those of its tests."""
    spans = {span.partition(":")[0] for span in _CODE.findall(_FENCED.sub("", text))}
    tests = {word for span in spans for word in _TESTS.findall(span)}
    return tests | {span for span in spans if _FILE.fullmatch(span) or _FOLDER.fullmatch(span)}


def exists(path: str) -> bool:
    """A path from the root; a name without a folder may be anywhere in the tree."""
    if path.endswith("/"):
        name = path.rstrip("/")
        return name in FOLDERS or ("/" not in name and any(Path(folder).name == name for folder in FOLDERS))
    return path in FILES or path in FOLDERS or ("/" not in path and any(Path(file).name == path for file in FILES))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_in_a_document_exists(document: Path) -> None:
    paths = paths_in(document.read_text())
    assert sorted(path for path in paths if not exists(path)) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_leads_to_a_file(document: Path) -> None:
    targets = [target for target in _LINK.findall(document.read_text()) if "://" not in target]
    assert [target for target in targets if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_behind_a_path_is_in_that_file(document: Path) -> None:
    named = [(path, name.rpartition(".")[2]) for path, name in _NAMED.findall(document.read_text())]
    sources = {path: (ROOT / path).read_text() for path, _ in named}
    assert [f"{path}:{name}" for path, name in named if name not in sources[path]] == []


def test_a_path_is_recognised_in_every_form() -> None:
    text = "`edge/app.py`, `edge/app.py:Edge.run`, `edge/jobs/`, `lua` and `make test`\n```sh\n`not/here.py`\n```\n"
    assert paths_in(text) == {"edge/app.py", "edge/jobs/"}
    assert paths_in('`make test ARGS="tests/unit tests/lua/test_mail.py"`') == {"tests/unit", "tests/lua/test_mail.py"}


@pytest.mark.parametrize("path", ["edge/nothing.py", "nothing/", "edge/nothing/", "nothing.py"])
def test_a_path_that_does_not_exist_is_found(path: str) -> None:
    assert not exists(path)
