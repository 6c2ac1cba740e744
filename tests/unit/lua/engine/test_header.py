from __future__ import annotations

from pathlib import Path

import pytest

from lua.engine.header import ScriptError
from lua.engine.loader import load_scripts
from tests.support.builders.lua_script import GOOD, TOOL, script_folder


def test_confirmed_line_marks_the_script(tmp_path: Path) -> None:
    text = GOOD.replace("-- USES tool\n", "-- USES tool\n-- CONFIRMED\n")
    assert load_scripts(script_folder(tmp_path, text))["thing_do"].confirmed


@pytest.mark.parametrize(
    ("before", "after", "line", "complaint"),
    [
        ("-- thing_do:", "-- thing:", 1, "the first line must be"),
        ("--   thing  hash", "--   thing  blob", 5, "the type is 'blob'"),
        ("--   thing  hash   the thing", "--  thing", 5, "expected `--   name  type  meaning`"),
        ("local total = count", "local total = 1", 9, "`count` is declared, but the body does not use it"),
        ("helped(thing)", "helped('x')", 5, "`thing` is declared, but the body does not use it"),
        ("local total = count", "local total = count + size", 18, "`size` is not declared"),
        ("local total = count", "local total = count + KEYS[1]", 18, "KEYS must not be used"),
        ("local total = count", "local total = count + ARGV[1]", 18, "ARGV must not be used"),
        ("part.size", "1", 13, "`part.size` is declared, but the body does not use it"),
        ("part.size", "part.size + part.weight", 20, "`part.weight` is not declared"),
        ("ipairs(parts)", "ipairs({})", 7, "the body does not use `parts`"),
        ("--   name   text", "--   count  text", 10, "`count` is taken"),
        ("--   name   text", "--   now_ms text", 10, "`now_ms` is taken"),
        ("-- USES tool", "-- USES hammer", 1, "there is no lua/scripts/shared/hammer.lua"),
        ("helped(thing)", "redis.call('HGET', thing, 'x')", 1, "calls none of ['helped']"),
    ],
)
def test_header_that_does_not_match_the_body_is_refused(
    tmp_path: Path, before: str, after: str, line: int, complaint: str
) -> None:
    assert before in GOOD
    with pytest.raises(ScriptError) as caught:
        load_scripts(script_folder(tmp_path, GOOD.replace(before, after, 1)))
    assert complaint in str(caught.value)
    assert f"thing_do.lua:{line}:" in str(caught.value)


def test_header_without_sections_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="needs the sections"):
        load_scripts(script_folder(tmp_path, "-- thing_do: x.\n\nreturn {}\n"))


def test_shared_fragment_with_an_undeclared_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"tool\.lua:4: `key` is not declared"):
        load_scripts(script_folder(tmp_path, tool=TOOL.replace("helped(key)", "helped(other)")))


def test_name_in_a_comment_or_string_does_not_count_as_used(tmp_path: Path) -> None:
    text = GOOD.replace("local total = count", "local total = 'count' -- count")
    with pytest.raises(ScriptError, match="`count` is declared"):
        load_scripts(script_folder(tmp_path, text))
