from __future__ import annotations

from pathlib import Path

import pytest

from lua.engine.header import read_header
from lua.engine.loader import FOLDER, load_scripts
from mesh.errors import StoreError
from tests.support.builders.lua_script import GOOD, TOOL, script_folder

BODY_LINES_MAX = 80


def test_script_with_a_matching_header_loads(tmp_path: Path) -> None:
    script = load_scripts(script_folder(tmp_path))["thing_do"]
    assert [field.name for field in script.header.keys] == ["thing"]
    assert [field.name for field in script.header.args] == ["count", "name"]
    assert not script.confirmed
    assert "local function helped" in script.source and "local thing = KEYS" in script.source
    assert len(script.sha) == 40


def test_arguments_are_ordered_by_the_header(tmp_path: Path) -> None:
    script = load_scripts(script_folder(tmp_path))["thing_do"]
    assert script.arguments({"name": "n", "count": 3, "parts": [{"size": 1}, {"size": 2}]}) == [3, "n", 2, 1, 2]
    for wrong in ({"name": "n", "count": 3}, {"name": "n", "count": 3, "parts": [], "more": 1}):
        with pytest.raises(AssertionError):
            script.arguments(wrong)
    with pytest.raises(KeyError):
        script.arguments({"name": "n", "cuont": 3, "parts": []})


def test_reply_is_decoded_by_its_declared_types(tmp_path: Path) -> None:
    script = load_scripts(script_folder(tmp_path))["thing_do"]
    assert script.read([[7, b"a", b"b"], [7]]) == [[7, [b"a", b"b"]], [7, []]]
    [wrong] = script.read([[]])
    assert isinstance(wrong, StoreError) and "0 fields" in str(wrong)


def test_shared_fragments_precede_the_fragments_that_use_them(tmp_path: Path) -> None:
    folder = script_folder(tmp_path, tool=TOOL.replace("-- tool: helps.\n", "-- tool: helps.\n-- USES base\n"))
    tool = folder / "shared" / "tool.lua"
    tool.write_text(tool.read_text().replace("or now_ms", "or base_ms()"))
    (folder / "shared" / "base.lua").write_text("-- base: time.\n\nlocal function base_ms()\n  return now_ms\nend\n")
    source = load_scripts(folder)["thing_do"].source
    assert 0 < source.index("local function base_ms") < source.index("local function helped")


def test_scripts_with_other_text_have_another_sha(tmp_path: Path) -> None:
    first = load_scripts(script_folder(tmp_path))["thing_do"]
    again = load_scripts(script_folder(tmp_path))["thing_do"]
    other = load_scripts(script_folder(tmp_path, GOOD.replace("total + part.size", "total - part.size")))["thing_do"]
    assert first.sha == again.sha != other.sha


def test_every_script_of_ours_loads_and_stays_small() -> None:
    scripts = load_scripts()
    paths = [*FOLDER.glob("*.lua"), *FOLDER.glob("shared/*.lua")]
    assert scripts.keys() < {path.stem for path in paths}
    for path in paths:
        text = path.read_text()
        body = text.splitlines()[read_header(path, text).length :]
        assert len(body) <= (BODY_LINES_MAX if path.parent == FOLDER else 2 * BODY_LINES_MAX), f"{path} is too long"
